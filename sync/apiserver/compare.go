package apiserver

import (
	"cmp"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// compareSeconds compares times as they stand in objects; nil is oldest.
func compareSeconds(a, b *metav1.Time) int {
	seconds := func(t *metav1.Time) int64 {
		if t == nil {
			return 0
		}
		return t.Unix()
	}
	return cmp.Compare(seconds(a), seconds(b))
}

// sameValue compares decoded JSON. 1 and 1.0 are not the same: they are stored
// differently.
func sameValue(a, b any) bool { return reflect.DeepEqual(a, b) }
