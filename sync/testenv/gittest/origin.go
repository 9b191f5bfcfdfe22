package gittest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Origin is a bare repository on the server's side, written through a worktree.
type Origin struct {
	t    testing.TB
	Bare string
	Work string
}

// GitEnv is the environment of git with fixed names and times.
func GitEnv(home string) []string {
	return append(os.Environ(), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ann Author", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Carl", "GIT_COMMITTER_EMAIL=carl@example.com",
		"GIT_AUTHOR_DATE=2026-11-20T10:00:00+0100", "GIT_COMMITTER_DATE=2026-11-20T10:00:00+0100")
}

// Git runs git in dir and returns what it prints.
func Git(t testing.TB, dir string, in []byte, args ...string) string {
	t.Helper()
	return GitWith(t, dir, in, nil, args...)
}

// GitWith is Git with more in the environment.
func GitWith(t testing.TB, dir string, in []byte, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(GitEnv(dir), env...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return strings.TrimRight(out.String(), "\n")
}

// NewOrigin makes root/name with an empty repository.
func NewOrigin(t testing.TB, root, name string) *Origin {
	t.Helper()
	o := &Origin{t: t, Bare: filepath.Join(root, name), Work: t.TempDir()}
	Git(t, root, nil, "init", "-q", "--bare", "-b", "main", o.Bare)
	Git(t, o.Work, nil, "init", "-q", "-b", "main", ".")
	Git(t, o.Work, nil, "remote", "add", "origin", o.Bare)
	return o
}

func (o *Origin) Git(args ...string) string { o.t.Helper(); return Git(o.t, o.Work, nil, args...) }

// Write puts files into the worktree; a nil text deletes.
func (o *Origin) Write(files map[string]string) {
	o.t.Helper()
	for name, text := range files {
		path := filepath.Join(o.Work, name)
		if text == "" {
			if err := os.RemoveAll(path); err != nil {
				o.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			o.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
}

// Commit writes files, commits and pushes; it returns the hash.
func (o *Origin) Commit(message string, files map[string]string) string {
	o.t.Helper()
	o.Write(files)
	o.Git("add", "-A")
	o.Git("commit", "-q", "--allow-empty", "-m", message)
	o.Git("push", "-q", "-f", "origin", "HEAD")
	return o.Git("rev-parse", "HEAD")
}

// Advance makes n commits at once, without a process per commit.
func (o *Origin) Advance(n int, file string, text func(int) string) string {
	o.t.Helper()
	var in strings.Builder
	parent := "refs/heads/main^0"
	for i := range n {
		data := text(i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Carl <carl@example.com> %d +0000\ndata 4\nstep\n", 1800000000+i)
		if i == 0 {
			fmt.Fprintf(&in, "from %s\n", parent)
		}
		fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", file, len(data), data)
	}
	Git(o.t, o.Bare, []byte(in.String()), "fast-import", "--quiet", "--force")
	return Git(o.t, o.Bare, nil, "rev-parse", "refs/heads/main")
}

// Hook has git run a script before a push is taken.
func (o *Origin) Hook(script string) {
	o.t.Helper()
	path := filepath.Join(o.Bare, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		o.t.Fatal(err)
	}
}

// Link commits gitlinks, as git submodule does, with a .gitmodules.
func (o *Origin) Link(modules string, links map[string]string) string {
	o.t.Helper()
	o.Write(map[string]string{".gitmodules": modules})
	o.Git("add", "-A")
	for at, commit := range links {
		o.Git("update-index", "--add", "--cacheinfo", "160000,"+commit+","+at)
	}
	o.Git("commit", "-q", "--allow-empty", "-m", "submodules")
	o.Git("push", "-q", "-f", "origin", "HEAD")
	return o.Git("rev-parse", "HEAD")
}

// ManyTags gives a new repository 1,000 tags of a commit, a list of some 60 kB.
func (o *Origin) ManyTags(commit string) {
	var lines strings.Builder
	lines.WriteString("# pack-refs with: peeled fully-peeled sorted\n")
	for i := range 1000 {
		fmt.Fprintf(&lines, "%s refs/tags/v%04d\n", commit, i)
	}
	if err := os.WriteFile(filepath.Join(o.Bare, "packed-refs"), []byte(lines.String()), 0o600); err != nil {
		o.t.Fatal(err)
	}
}
