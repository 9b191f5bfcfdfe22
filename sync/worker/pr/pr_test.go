package pr

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files")

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestMarkdown(t *testing.T) {
	t.Parallel()
	const base = "https://grafana.example"
	board := func(action, title, path string) File {
		f := File{Action: action, Kind: "Dashboard", Title: title, Path: path,
			Preview: Preview(base, "site", path, "work/1", "https://git.example/pull/7")}
		if action != "added" {
			f.Current = Current(base, "Dashboard", "uid-1", title)
		}
		return f
	}
	many := Review{Repository: "default/site", Commit: commit}
	for i := range 13 {
		many.Files = append(many.Files, board("modified", "Board "+strconv.Itoa(i), "a/b"+strconv.Itoa(i)+".json"))
		if i%2 == 0 {
			many.Files[i].Problems = []string{"spec.panels: " + strings.Repeat("x", 300), "title is missing"}
		}
	}
	hostile := board("added", "a|b `c` <img src=x> @admin\n/close [x](javascript:1) ![i](u) #12 **b** &amp; \\", "x_y/d (1).json")
	hostile.Problems = []string{"|---|\n| @all | <script>alert(1)</script> http://evil.example www.evil.example"}
	for name, r := range map[string]Review{
		"none": {Repository: "default/site", Commit: commit},
		"one":  {Repository: "default/site", Commit: commit, Files: []File{board("modified", "CPU & Memory", "sub dir/cpu.json")}},
		"parsed": {Repository: "default/site", Commit: commit, Parsed: true,
			Files: []File{{Action: "deleted", Kind: "Dashboard", Title: "Old", Path: "old.json"}}},
		"unread": {Repository: "default/site", Commit: commit,
			Files: []File{{Action: "added", Path: "bad.json", Problems: []string{"not JSON"}}}},
		"many": many,
		"fork": {Repository: "default/site", Commit: commit, Fork: true,
			Files: []File{{Action: "added", Kind: "Dashboard", Title: "New", Path: "n.json"}}},
		"hostile":  {Repository: "default/site", Commit: commit, Files: []File{hostile}},
		"hostiles": {Repository: "default/site", Commit: commit, Files: []File{hostile, hostile}},
	} {
		t.Run(name, func(t *testing.T) {
			got, path := r.Markdown(), filepath.Join("testdata", name+".md")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || got != string(want) {
				t.Errorf("%v; got\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

// TestSize: no titles, paths and problems make a comment that a host does not take; what is left
// out is counted.
func TestSize(t *testing.T) {
	t.Parallel()
	for _, sign := range []string{"<", "@", "&", "-1", "x"} {
		r, long := Review{Repository: "default/x", Commit: commit, Unchecked: 7}, strings.Repeat(sign, 400)
		for range 10 {
			r.Files = append(r.Files, File{Action: "modified", Kind: "Dashboard", Title: long, Path: long, Problems: []string{long, long},
				Current: "https://h/" + strings.Repeat("c", maxLink-10), Preview: "https://h/" + strings.Repeat("p", maxLink-10)})
		}
		got := r.Markdown()
		rows := strings.Count(got, "| modified |")
		if n := utf8.RuneCountInString(got); n > 60_000 || len(got) > 32_000 || rows < 2 || !strings.Contains(got, "and 7 more files, not checked") ||
			rows < 10 && !strings.Contains(got, "\nand "+strconv.Itoa(10-rows)+" more file") {
			t.Errorf("%q: %d bytes, %d characters, %d rows", sign, len(got), n, rows)
		}
	}
	if got := cell("&12 GH-12 PROJ-7 a-b", 99); got != "&#38;\u200b12 GH\\-\u200b12 PROJ\\-\u200b7 a\\-b" {
		t.Errorf("%q", got)
	}
}

// FuzzCell: whatever a title holds, it stays in its cell, and nothing of it is markup.
func FuzzCell(f *testing.F) {
	for _, s := range []string{"plain", "a|b", "@all", "<b>", "[x](y)", "`c`", "a\nb", "\\|", "\\", "&lt;", "www.x.y", "﷽\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := cell(s, 100)
		if strings.ContainsAny(got, "\n\r|<\x00") || len(got) > 1000 {
			t.Errorf("%q is %q", s, got)
		}
		plain := false // the rune before was a backslash that escapes
		for i, r := range got {
			special := strings.ContainsRune("`*_{}[]()>.:@#!~$%", r)
			entity := r == '#' && i > 0 && got[i-1] == '&'
			if special && !plain && !entity {
				t.Errorf("%q is %q: %q is not escaped", s, got, r)
			}
			plain = r == '\\' && !plain
			if r == '@' && !strings.HasPrefix(got[i+1:], "\u200b") {
				t.Errorf("%q is %q: a mention works", s, got)
			}
		}
	})
}
