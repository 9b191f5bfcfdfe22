package dependency

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watching is a Watcher whose looks are the test's.
type watching struct {
	place
	w    *Watcher
	n    *notifier
	log  *logText
	last map[Thing]string
}

func newWatching(t *testing.T, dir string, uses ...Thing) *watching {
	x := &watching{place: place{t, dir}, log: &logText{}, last: map[Thing]string{}}
	x.w = New(Options{Dir: filepath.Join(dir, "git"), Logger: slog.New(slog.NewTextHandler(x.log, nil))})
	for _, u := range uses {
		x.w.Use(Thing{Repository, "ns", u.Name}, byName(u))
	}
	<-x.w.touched
	x.n = newNotifier(x.w)
	t.Cleanup(x.n.close)
	return x
}

// look says whether there is another version of a thing than at the last look.
func (x *watching) look(of Thing) bool {
	x.t.Helper()
	if !x.w.look(x.n) {
		x.t.Fatalf("the kernel does not tell: %v", x.n.err)
	}
	x.w.registry.mu.Lock()
	defer x.w.registry.mu.Unlock()
	before := x.last[of]
	x.last[of] = x.w.registry.seen[of].version
	return x.last[of] != before
}

// told looks when the kernel tells of something, until there is another version.
func (x *watching) told(what string, of Thing) {
	x.t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case <-x.w.touched:
			if x.look(of) {
				return
			}
		case <-late:
			x.t.Fatalf("%s: not told; watched: %v", what, x.n.dirs)
		}
	}
}

// TestNotified: the kernel tells of each change, one after another, wherever it is.
func TestNotified(t *testing.T) {
	t.Parallel()
	type step struct {
		what   string
		change func(p place)
	}
	site := thing(File, "site")
	inPlace := step{"written in place", func(p place) { p.write("git/ns.site/token", "in place") }}
	gone := func(name string) func(p place) { return func(p place) { p.do(os.RemoveAll(p.path(name))) } }
	for name, c := range map[string]struct {
		path   string // of a rule; "" = the file of site
		before func(p place)
		steps  []step
	}{
		"files": {"", func(p place) { p.write("git/ns.site/token", "1") }, []step{
			inPlace,
			{"an editor's rename", func(p place) {
				p.write("git/ns.site/.token.swp", "second")
				p.do(os.Rename(p.path("git/ns.site/.token.swp"), p.path("git/ns.site/token")))
			}},
			{"rights", func(p place) { p.do(os.Chmod(p.path("git/ns.site/token"), 0o400)) }},
			{"removed", gone("git/ns.site/token")},
			{"flat", func(p place) { p.write("git/ns.site_token", "1") }},
			{"flat, in place", func(p place) { p.write("git/ns.site_token", "2") }},
		}},
		"late": {"", func(place) {}, []step{
			{"all of it", func(p place) { p.write("git/ns.site/token", "1") }}, inPlace,
			{"removed", gone("git")},
			{"all anew", func(p place) { p.write("git/ns.site/token", "1") }}, inPlace,
			{"another one in its place", func(p place) {
				p.write("new/ns.site/token", "2")
				p.do(os.Rename(p.path("git"), p.path("old")))
				p.do(os.Rename(p.path("new"), p.path("git")))
			}}, {"written there", func(p place) { p.write("git/ns.site/token", "3") }},
			{"what is above it", func(p place) {
				p.do(os.Rename(p.dir, p.dir+"-old"))
				p.write("git/ns.site/token", "4")
			}}, inPlace,
		}},
		"a mount of its own": {"", func(p place) {
			p.write("git/ns.site/..1/token", "1")
			p.link("..1", "git/ns.site/..data")
			p.do(os.Symlink("..data/token", p.path("git/ns.site/token")))
		}, []step{
			{"swapped", func(p place) { p.write("git/ns.site/..2/token", "2"); p.link("..2", "git/ns.site/..data") }},
			{"swapped, the old one gone", func(p place) {
				p.write("git/ns.site/..3/token", "3")
				p.link("..3", "git/ns.site/..data")
				gone("git/ns.site/..2")(p)
			}}, inPlace,
		}},
		"one mount for all": {"", func(p place) {
			p.write("git/..1/ns.site/token", "1")
			p.link("..1", "git/..data")
			p.do(os.Symlink("..data/ns.site", p.path("git/ns.site")))
		}, []step{
			{"swapped", func(p place) { p.write("git/..2/ns.site/token", "2"); p.link("..2", "git/..data") }}, inPlace,
		}},
		"a link to the directory": {"", func(p place) {
			p.write("v1/ns.site/token", "1")
			p.do(os.Symlink("v1", p.path("git")))
		}, []step{
			{"swapped", func(p place) { p.write("v2/ns.site/token", "2"); p.link("v2", "git") }}, inPlace,
		}},
		"a rule's file": {"rules/token", func(place) {}, []step{
			{"comes", func(p place) { p.write("rules/token", "1") }},
			{"written in place", func(p place) { p.write("rules/token", "2") }},
			{"is a link", func(p place) { p.write("far/away/real", "3"); p.link("../far/away/real", "rules/token") }},
			{"written where it leads", func(p place) { p.write("far/away/real", "4") }},
			{"removed there", gone("far/away")},
			{"there again", func(p place) { p.write("far/away/real", "5") }},
			{"leads to itself", func(p place) { p.link("token", "rules/token") }},
			{"an absolute link", func(p place) { p.link(p.path("far/away/real"), "rules/token") }},
			{"written there", func(p place) { p.write("far/away/real", "6") }},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := site
			p := place{t, filepath.Join(t.TempDir(), "below")}
			p.do(os.Mkdir(p.dir, 0o700))
			if c.path != "" {
				of = Thing{Kind: Path, Name: p.path(c.path)}
			}
			c.before(p)
			x := newWatching(t, p.dir, of)
			x.look(of)
			for _, s := range c.steps {
				s.change(p)
				x.told(s.what, of)
			}
		})
	}
}

// TestNotOfInterest: what happens beside the way to the files has nobody look.
func TestNotOfInterest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rule := Thing{Kind: Path, Name: filepath.Join(dir, "rules/token")}
	x := newWatching(t, dir, thing(File, "site"), rule)
	x.write("git/ns.site/token", "1")
	x.write("git/ns.other/token", "1")
	x.write("rules/token", "1")
	x.look(rule)
	for name, want := range map[string]bool{
		"git": true, "git/ns.site": true, "git/ns.other": true, "git/ns.site/token": true, "git/ns.site/new": true, "rules/token": true, "rules": true,
		"else": false, "rules/else": false, "git/ns.other/token": false,
	} {
		if got := x.n.matter(x.path(name)); got != want {
			t.Errorf("%s is of interest: %t", name, got)
		}
	}
	if _, watched := x.n.dirs[x.path("git/ns.other")]; watched {
		t.Error("what nobody uses is watched")
	}
	kernel := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	done := make(chan struct{})
	go func() { defer close(done); x.n.read(kernel) }()
	for _, c := range []struct {
		name string // "" = the kernel had more to tell than it keeps
		want int
	}{{"else", 0}, {"rules/token", 1}, {"else", 0}, {"", 1}} {
		for len(x.w.touched) > 0 {
			<-x.w.touched
		}
		if c.name == "" {
			kernel.Errors <- fsnotify.ErrEventOverflow
		} else {
			kernel.Events <- fsnotify.Event{Name: x.path(c.name)}
		}
		kernel.Events <- fsnotify.Event{Name: x.path("else")} // taken when the one before has been dealt with
		if got := len(x.w.touched); got != c.want {
			t.Errorf("%q wakes %d", c.name, got)
		}
	}
	close(kernel.Events)
	<-done
	x.w.Use(Thing{Repository, "ns", "site"})
	x.w.Use(Thing{Repository, "ns", rule.Name})
	x.look(rule)
	if x.n.matter(x.path("git/ns.site/token")) || x.n.matter(rule.Name) || len(x.n.kernel.WatchList()) != len(x.n.dirs) || len(x.n.dirs) > strings.Count(dir, "/")+2 {
		t.Errorf("what nobody uses any more is watched: %v, %v", x.n.kernel.WatchList(), x.n.matters)
	}
}

// TestRunNotified: who uses a file is told long before a poll would be, and nothing
// reads what the kernel tells when Run has returned. Not parallel: others do.
func TestRunNotified(t *testing.T) {
	p := place{t, t.TempDir()}
	p.write("ns.site/token", "1")
	told := make(chan Thing, 8)
	w := New(Options{Tell: func(user Thing) { told <- user }, Dir: p.dir, Logger: slog.New(slog.DiscardHandler)})
	w.Use(a, byName(thing(File, "site")))
	w.SawFiles("ns", "site")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for looks := 0; looks == 0; <-tick.C {
		w.files.mu.Lock()
		looks = w.files.looks
		w.files.mu.Unlock()
	}
	for n := range 2 {
		began := time.Now()
		p.write("ns.site/token", fmt.Sprint("change ", n))
		select {
		case <-told:
			t.Logf("told after %s, of that %s for more changes to come", time.Since(began).Round(time.Millisecond), settle)
		case <-time.After(pollTold / 3):
			t.Fatal("not told")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "(*notifier).read(") {
		t.Errorf("still at work:\n%s", stacks)
	}
}
