package dependency

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// place is a directory with credentials.
type place struct {
	t   testing.TB
	dir string
}

func (p place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p place) do(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p place) path(name string) string { return filepath.Join(p.dir, name) }

// link has a link lead elsewhere in one step, as Kubernetes does.
func (p place) link(to, name string) {
	p.t.Helper()
	p.do(os.Symlink(to, p.path(name)+"_tmp"))
	p.do(os.Rename(p.path(name)+"_tmp", p.path(name)))
}

// TestFiles: what changes the version of a thing's files, and what does not.
func TestFiles(t *testing.T) {
	t.Parallel()
	site, other := ref(File, "site"), ref(File, "other")
	for _, c := range []struct {
		what   string
		before func(p place)
		change func(p place)
		news   bool // of site; other never changes
		absent bool // afterwards
	}{
		{"nothing", nil, func(place) {}, false, false},
		{"another value", nil, func(p place) { p.write("ns.site/token", "second") }, true, false},
		{"one more file", nil, func(p place) { p.write("ns.site/ca.crt", "x") }, true, false},
		{"one less", func(p place) { p.write("ns.site/ca.crt", "x") }, func(p place) { p.do(os.Remove(p.path("ns.site/ca.crt"))) }, true, false},
		{"none left", nil, func(p place) { p.do(os.Remove(p.path("ns.site/token"))) }, true, true},
		{"the directory of it goes", nil, func(p place) { p.do(os.RemoveAll(p.path("ns.site"))) }, true, true},
		{"all go", nil, func(p place) { p.do(os.Rename(p.path("ns.site"), p.dir+"x")); p.write("ns.other/token", "other") }, true, true},
		{"a file for others to read", nil, func(p place) { p.do(os.Chmod(p.path("ns.site/token"), 0o644)) }, true, false},
		{"an editor's rename", nil, func(p place) {
			p.write("ns.site/.token.swp", "second")
			p.do(os.Rename(p.path("ns.site/.token.swp"), p.path("ns.site/token")))
		}, true, false},
		{"an editor's own file", nil, func(p place) { p.write("ns.site/.token.swp", "second") }, false, false},
		{"the secret of its webhook", nil, func(p place) { p.write("ns.site/webhookSecret", "x"); p.write("ns.site_webhookSecret", "x") }, false,
			false},
		{"flat, as systemd has it", nil, func(p place) { p.write("ns.site_token", "second") }, true, false},
		{"flat, changed", func(p place) { p.write("ns.site_token", "first") }, func(p place) { p.write("ns.site_token", "second") }, true, false},
		{"flat, gone", func(p place) { p.write("ns.site_token", "first") }, func(p place) { p.do(os.Remove(p.path("ns.site_token"))) }, true,
			false},
		{"another one that begins alike", nil, func(p place) { p.write("ns.site2/token", "x"); p.write("ns.site2_token", "x") }, false, false},
		{"a pipe that nobody writes to", nil, func(p place) { p.do(exec.Command("mkfifo", p.path("ns.site/identity")).Run()) }, true, false},
		{"a mount of its own, swapped", func(p place) {
			p.do(os.RemoveAll(p.path("ns.site")))
			p.write("ns.site/..1/token", "first")
			p.link("..1", "ns.site/..data")
			p.do(os.Symlink("..data/token", p.path("ns.site/token")))
		}, func(p place) { p.write("ns.site/..2/token", "second"); p.link("..2", "ns.site/..data") }, true, false},
		{"one mount for all, swapped", func(p place) {
			p.do(os.RemoveAll(p.path("ns.site")))
			p.write("..1/ns.site/token", "first")
			p.link("..1", "..data")
			p.do(os.Symlink("..data/ns.site", p.path("ns.site")))
		}, func(p place) { p.write("..2/ns.site/token", "second"); p.link("..2", "..data") }, true, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			p := place{t, filepath.Join(t.TempDir(), "git")}
			f := files{p.dir}
			if got := f.versions(site)[site]; got != "" {
				t.Fatalf("version %q without a directory", got)
			}
			p.write("ns.site/token", "first")
			p.write("ns.other/token", "other")
			if c.before != nil {
				c.before(p)
			}
			before := f.versions(site, other)
			if before[site] == "" || before[other] == "" || before[site] == before[other] {
				t.Fatalf("versions %q", before)
			}
			c.change(p)
			after := f.versions(site, other)
			if (after[site] != before[site]) != c.news || (after[site] == "") != c.absent {
				t.Errorf("version %q, before %q", after[site], before[site])
			}
			if c.what != "all go" && after[other] != before[other] { // it is written again there
				t.Errorf("the other one has version %q, before %q", after[other], before[other])
			}
		})
	}
}

// TestPath: a single file changes, goes and comes, with a directory for credentials
// or without.
func TestPath(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		p := place{t, t.TempDir()}
		f := files{dir}
		file := Ref{Kind: Path, Name: p.path("token")}
		last := ""
		for n, step := range []struct {
			change func()
			absent bool
		}{
			{func() { p.write("token", "first") }, false},
			{func() { p.write("token", "second") }, false},
			{func() { p.do(os.Remove(file.Name)) }, true},
			{func() { p.write("token", "third") }, false},
		} {
			step.change()
			version := f.versions(file, ref(File, "token"))
			if version[file] == last || (version[file] == "") != step.absent || version[ref(File, "token")] != "" {
				t.Errorf("step %d: versions %q, before %q", n+1, version, last)
			}
			last = version[file]
		}
	}
}

// TestFilesOutside: no name leads out of the directory.
func TestFilesOutside(t *testing.T) {
	t.Parallel()
	p := place{t, t.TempDir()}
	p.write("in/ns.site/token", "x")
	p.write("x/token", "x")
	f := files{p.path("in")}
	for _, out := range []Ref{{File, "ns/..", "./x"}, {File, ".", "/x"}, {File, "", "/x"}, {File, "..", ""}} {
		if got := f.versions(out); got[out] != "" {
			t.Errorf("%v has version %q", out, got[out])
		}
	}
}
