package apiserver

import "reflect"

// sameValue compares decoded JSON. 1 and 1.0 are not the same: they are stored
// differently.
func sameValue(a, b any) bool { return reflect.DeepEqual(a, b) }
