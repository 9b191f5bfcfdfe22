package frame

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzStoredForm: every object is read as it was written, and foreign bytes give an error and no
// more memory than an object may have.
func FuzzStoredForm(f *testing.F) {
	f.Add([]byte(`{"spec":{"title":"cpu"}}`))
	f.Add(magic)
	f.Add([]byte(strings.Repeat(`{"a":1},`, 400)))
	var c Compression
	f.Fuzz(func(t *testing.T, data []byte) {
		stored, err := c.Pack(data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Unpack(nil, stored); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes became %d, %v", len(data), len(got), err)
		}
		if got, err := c.Unpack(nil, append(bytes.Clone(magic), data...)); err == nil && len(got) > MaxBody {
			t.Fatalf("%d bytes from %d", len(got), len(data))
		}
	})
}
