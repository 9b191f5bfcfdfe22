package command

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestJSONIsAsWritten: a URL in an object can be copied out of every form of
// JSON, of one object and of many, and what would control the terminal is escaped.
func TestJSONIsAsWritten(t *testing.T) {
	t.Parallel()
	const url = "https://git.example.com/x?a=1&b=<2>"
	const title = "\u009b31m\u202e\u2066\u007f\U000e0041é\n"
	item := map[string]string{"url": url, "title": title}
	for _, form := range []string{"json", "jsonl"} {
		var one, many bytes.Buffer
		e := &Env{Flags: &Flags{Output: form}, Streams: Streams{Out: &one}}
		if err := e.PrintOne(item, "", func(io.Writer) {}); err != nil {
			t.Fatal(err)
		}
		e.Out = &many
		if err := e.PrintList([]map[string]string{item}, Table{}); err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{one.String(), many.String()} {
			if !strings.Contains(out, url) {
				t.Errorf("-o %s: %s", form, out)
			}
			if !strings.Contains(out, `"\u009b31m\u202e\u2066\u007f\udb40\udc41é\n"`) {
				t.Errorf("-o %s: %q", form, out)
			}
		}
	}
}

// TestNoSecretInData: an API of plain CRDs returns secrets as they were given, and no output has
// them.
func TestNoSecretInData(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"json", "jsonl", "yaml"} {
		var out strings.Builder
		e := &Env{Flags: &Flags{Output: form}, Streams: Streams{Out: &out}}
		if err := e.PrintList([]any{map[string]any{"kind": "Repository", "secure": map[string]any{"token": map[string]any{"create": "x1"}},
			"spec": map[string]any{"token": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}}}, Table{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "x1") || strings.Contains(out.String(), "ghp_") || !strings.Contains(out.String(), "Repository") {
			t.Errorf("-o %s: %s", form, out.String())
		}
	}
}

// TestFieldsOfAStream: what is watched and followed has the fields of --json alone too.
func TestFieldsOfAStream(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"json": `{"job.name":"a","type":"job"}` + "\n" + `{"job.name":null,"type":"ended"}` + "\n",
		"yaml": "---\njob.name: a\ntype: job\n---\njob.name: null\ntype: ended\n",
	} {
		var out strings.Builder
		g := &Flags{JSON: []string{"type", "job.name"}, Output: form}
		for _, line := range []StreamLine{{Type: "job", Job: map[string]any{"name": "a"}}, {Type: "ended", Ended: 1}} {
			if err := (&Env{Flags: g, Streams: Streams{Out: &out}}).PrintStream(line); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("%s: %q, want %q", form, out.String(), want)
		}
	}
}
