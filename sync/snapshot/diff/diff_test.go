package diff

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// shown is a comparison as a person reads it.
func shown(c snapshot.TextChange) string {
	var b strings.Builder
	for _, l := range c.Lines {
		op := l.Op
		if op == "@" {
			op = ""
		}
		b.WriteString(op + l.Text + "\n")
	}
	return b.String()
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, before, after, form, want string }{
		{"keys in another order are the same", `{"b":1,"a":[1,{"d":null}]}`, "{\"a\": [1, {\"d\": null}], \"b\": 1}\n",
			"only the form differs: the same JSON, written another way", ""},
		{"a member", `{"b":1,"a":"<x>"}`, `{"a":"<y>","b":1}`, "as JSON, keys sorted",
			"@@ -1,4 +1,4 @@\n {\n-  \"a\": \"<x>\",\n+  \"a\": \"<y>\",\n   \"b\": 1\n }\n"},
		{"a number keeps its digits", `{"n":12345678901234567890}`, `{"n":12345678901234567891}`, "as JSON, keys sorted",
			"@@ -1,3 +1,3 @@\n {\n-  \"n\": 12345678901234567890\n+  \"n\": 12345678901234567891\n }\n"},
		{"empty ones", `{"a":{},"b":[]}`, `{"a":[],"b":[]}`, "as JSON, keys sorted",
			"@@ -1,4 +1,4 @@\n {\n-  \"a\": {},\n+  \"a\": [],\n   \"b\": []\n }\n"},
		{"no JSON", "a\nb\n", "a\nc", "as text", "@@ -1,2 +1,2 @@\n a\n-b\n+c (no end of line)\n"},
		{"one side is no JSON", "{}", "{", "as text", "@@ -1,1 +1,1 @@\n-{} (no end of line)\n+{ (no end of line)\n"},
		{"two values are no JSON", "{}{}", "{}", "as text", "@@ -1,1 +1,1 @@\n-{}{} (no end of line)\n+{} (no end of line)\n"},
		{"nothing differs", "a\n", "a\n", "the content is the same", ""},
		{"not text", "a\x00", "abc", "not text: 2 B became 3 B", ""},
		{"not UTF-8", "\xff", "abc", "not text: 1 B became 3 B", ""},
		{"it is emptied", "a\n", "", "as text", "@@ -1,1 +0,0 @@\n-a\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Texts([]byte(tt.before), []byte(tt.after))
			if got.Form != tt.form || shown(got) != tt.want {
				t.Errorf("%s:\n%s\nwant %s:\n%s", got.Form, shown(got), tt.form, tt.want)
			}
		})
	}
	t.Run("a new and a gone file", func(t *testing.T) {
		t.Parallel()
		if got := shown(Texts(nil, []byte(`{"a":1}`))); got != "@@ -0,0 +1,3 @@\n+{\n+  \"a\": 1\n+}\n" {
			t.Error(got)
		}
		if got := Texts([]byte(`{"a":1}`), nil); got.Deleted != 3 || got.Added != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("near changes are one piece, far ones two", func(t *testing.T) {
		t.Parallel()
		lines := make([]string, 40)
		for i := range lines {
			lines[i] = fmt.Sprint("line ", i)
		}
		changed := func(at ...int) []byte {
			out := slices.Clone(lines)
			for _, i := range at {
				out[i] = "other"
			}
			return []byte(strings.Join(out, "\n") + "\n")
		}
		heads := func(c snapshot.TextChange) (n int) {
			for _, l := range c.Lines {
				if l.Op == "@" {
					n++
				}
			}
			return n
		}
		if got := Texts(changed(), changed(10, 17)); heads(got) != 1 || len(got.Lines) != 1+14+2 {
			t.Errorf("%d heads, %d lines", heads(got), len(got.Lines))
		}
		if got := Texts(changed(), changed(10, 18)); heads(got) != 2 || got.Lines[0].Text != "@@ -8,7 +8,7 @@" {
			t.Errorf("%d heads: %s", heads(got), got.Lines[0].Text)
		}
	})
}

// TestBounds: the result is small and quick for any content.
func TestBounds(t *testing.T) {
	t.Parallel()
	var before, after strings.Builder
	for i := range 30_000 {
		fmt.Fprintln(&before, "old", i)
		fmt.Fprintln(&after, "new", i)
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	wide := `{"a":` + strings.Repeat("[", 60) + strings.TrimSuffix(strings.Repeat("1,", 200_000), ",") + strings.Repeat("]", 60) + "}"
	for name, pair := range map[string][2]string{
		"all differs": {before.String(), after.String()},
		"deep":        {deep, deep + " "},
		"wide":        {wide, wide + " "},
		"many lines":  {"", strings.Repeat("\n", maxRead+1)},
		"a long line": {"", strings.Repeat("é", 100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			got := Texts([]byte(pair[0]), []byte(pair[1]))
			bytes := 0
			for _, l := range got.Lines {
				bytes += len(l.Text)
			}
			if len(got.Lines) > maxLines || bytes > maxLines*(maxLine+40) {
				t.Errorf("%d lines of %d bytes", len(got.Lines), bytes)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			switch name {
			case "all differs":
				if got.Added != 30_000 || got.Deleted != 30_000 || got.More != 60_001-maxLines {
					t.Errorf("+%d -%d, %d more: %s", got.Added, got.Deleted, got.More, got.Form)
				}
			case "deep", "wide":
				if !strings.HasPrefix(got.Form, "as text") {
					t.Error(got.Form)
				}
			case "many lines":
				if got.Form != "not compared: more than 100,000 lines" || got.Lines != nil {
					t.Error(got.Form)
				}
			case "a long line":
				if text := got.Lines[1].Text; !strings.HasSuffix(text, " bytes)") || strings.Contains(text, "\ufffd") {
					t.Error(text[max(len(text)-60, 0):])
				}
			}
		})
	}
}

func FuzzTexts(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`{"a":[2]}`))
	f.Add([]byte("a\nb"), []byte("\xff"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		got := Texts(before, after)
		if len(got.Lines) > maxLines {
			t.Errorf("%d lines", len(got.Lines))
		}
	})
}
