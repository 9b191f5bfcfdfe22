package cli

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/alecthomas/kong"
)

// flagText is the value of a flag after the parse, as text.
func flagText(t *testing.T, _ *cli, flags []*kong.Flag, name string) string {
	t.Helper()
	for _, f := range flags {
		if f.Name == name {
			v := f.Target
			if v.Kind() == reflect.Pointer && !v.IsNil() {
				v = v.Elem()
			}
			return fmt.Sprint(v.Interface())
		}
	}
	t.Fatalf("no flag --%s", name)
	return ""
}
