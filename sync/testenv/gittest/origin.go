package gittest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Origin is a bare repository on the server's side, written through a worktree with which it shares
// the objects.
type Origin struct {
	t    testing.TB
	Bare string
	Work string
}

// Quick in the environment of git keeps it from waiting for the disk, and from starting programs
// that tidy up or check what is not there, and threads for a pack of a few objects.
var Quick = []string{"GIT_CONFIG_COUNT=7", "GIT_CONFIG_KEY_0=core.fsync", "GIT_CONFIG_VALUE_0=none",
	"GIT_CONFIG_KEY_1=fastimport.unpackLimit", "GIT_CONFIG_VALUE_1=1",
	"GIT_CONFIG_KEY_2=maintenance.auto", "GIT_CONFIG_VALUE_2=false", "GIT_CONFIG_KEY_3=receive.autogc", "GIT_CONFIG_VALUE_3=false",
	"GIT_CONFIG_KEY_4=core.commitGraph", "GIT_CONFIG_VALUE_4=false", "GIT_CONFIG_KEY_5=core.multiPackIndex", "GIT_CONFIG_VALUE_5=false",
	"GIT_CONFIG_KEY_6=pack.threads", "GIT_CONFIG_VALUE_6=1"}

// Backend is the path of git http-backend.
var Backend = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), err
})

// Init makes an empty repository in dir, as git init does; config is more of its configuration.
func Init(t testing.TB, dir string, bare bool, config string) {
	t.Helper()
	for _, sub := range []string{"hooks", "objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n",
		"config": fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = %t\n%s", bare, config)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Ref is the hash of a reference of the repository in dir.
func Ref(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if target, ok := strings.CutPrefix(string(text), "ref: "); ok {
		return Ref(t, dir, strings.TrimSpace(target))
	}
	if err != nil { // it may be packed
		return Git(t, dir, nil, "rev-parse", name)
	}
	return strings.TrimSpace(string(text))
}

// GitEnv is the environment of git with fixed names and times.
func GitEnv(home string) []string {
	return append(append(os.Environ(), Quick...), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
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
	Init(t, o.Bare, true, "")
	git := filepath.Join(o.Work, ".git")
	Init(t, git, false, "[remote \"origin\"]\n\turl = "+o.Bare+"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n")
	objects := filepath.Join(git, "objects")
	if err := errors.Join(os.RemoveAll(objects), os.Symlink(filepath.Join(o.Bare, "objects"), objects)); err != nil {
		t.Fatal(err)
	}
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
	return o.publish()
}

// publish sets the branch that is checked out in the bare repository, as a forced push.
func (o *Origin) publish() string {
	o.t.Helper()
	id := Ref(o.t, filepath.Join(o.Work, ".git"), "HEAD")
	head, err := os.ReadFile(filepath.Join(o.Work, ".git", "HEAD"))
	branch := filepath.Join(o.Bare, strings.TrimSpace(strings.TrimPrefix(string(head), "ref: ")))
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(branch), 0o755), os.WriteFile(branch+".lock", []byte(id+"\n"), 0o644),
		os.Rename(branch+".lock", branch)); err != nil {
		o.t.Fatal(err)
	}
	return id
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
	return Ref(o.t, o.Bare, "refs/heads/main")
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
	return o.publish()
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
