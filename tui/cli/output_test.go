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
		g := &Globals{Output: form}
		var one, many bytes.Buffer
		if err := g.printOne(&one, item, "", func(io.Writer) {}); err != nil {
			t.Fatal(err)
		}
		if err := g.printList(&many, []map[string]string{item}, table{}); err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{one.String(), many.String()} {
			if !strings.Contains(out, url) {
				t.Errorf("-o %s: %s", form, out)
			}
		}
	}
}
