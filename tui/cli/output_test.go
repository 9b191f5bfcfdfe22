package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestJSONIsAsWritten: a URL in an object can be copied out of every form of
// JSON, of one object and of many.
func TestJSONIsAsWritten(t *testing.T) {
	t.Parallel()
	const url = "https://git.example.com/x?a=1&b=<2>"
	item := map[string]string{"url": url}
	for _, form := range []string{"json", "jsonl"} {
		var one, many bytes.Buffer
		r := &run{g: &Globals{Output: form}, World: World{Out: &one}}
		if err := r.printOne(item, "", func(io.Writer) {}); err != nil {
			t.Fatal(err)
		}
		r.Out = &many
		if err := r.printList([]map[string]string{item}, table{}); err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{one.String(), many.String()} {
			if !strings.Contains(out, url) {
				t.Errorf("-o %s: %s", form, out)
			}
		}
	}
}
