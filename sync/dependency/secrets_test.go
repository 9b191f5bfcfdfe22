package dependency

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSecrets: a Secret that is created, changed or deleted is told to those who use
// it, and no other one to anybody, whether a few are watched by name or many
// together. Values do not travel, and an idle Watcher asks nothing.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		for _, number := range []int{1, maxNamed + 2} {
			t.Run(fmt.Sprintf("%s %d", server, number), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, server, nil)
				site, link := r.ref(Repository, "site"), r.ref(Connection, "link")
				r.put("s0", "1")
				r.put("stranger", "1")
				var names []string
				var refs []Ref
				for n := range number {
					names = append(names, fmt.Sprint("s", n))
					refs = append(refs, r.ref(Secret, names[n]))
				}
				r.w.Use(site, refs...)
				r.w.Use(link, refs[0])
				r.knows(names...)
				asked := r.wire.requests()
				at := "/namespaces/" + r.namespace + "/" + r.resource.Resource + " "
				if number == 1 {
					at += "metadata.name=s0"
				}
				if len(asked) != 1 || !strings.HasSuffix(asked[0], at) {
					t.Errorf("asked %q", asked)
				}
				r.put("stranger", "2")
				r.put("s0", "2")
				r.tells("changed", link, site)
				r.remove("s0")
				r.tells("deleted", link, site)
				r.remove("stranger")
				r.put("s0", "3")
				r.tells("created", link, site)
				r.w.Use(link)
				r.put("s0", "4")
				r.tells("changed for one", site)
				if now := r.wire.requests(); len(now) != 1 {
					t.Errorf("asked %q", now)
				}
			})
		}
	}
}

// TestReadBeforeTheWatch: what has changed between a reader and the first stream is
// told, and what has not is not.
func TestReadBeforeTheWatch(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, func(r *rig) {
				for _, name := range []string{"changed", "deleted", "same"} {
					r.put(name, "1")
				}
				for _, name := range []string{"changed", "created", "deleted", "same"} {
					r.w.Use(r.ref(Repository, name), r.ref(Secret, name))
					r.read(name)
				}
				r.put("changed", "2")
				r.put("created", "1")
				r.remove("deleted")
			})
			r.tells("between", r.ref(Repository, "changed"), r.ref(Repository, "created"), r.ref(Repository, "deleted"))
			r.put("same", "2")
			r.tells("afterwards", r.ref(Repository, "same"))
		})
	}
}

// TestBetweenStreams: what has happened while no stream was open the next one tells.
func TestBetweenStreams(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, func(r *rig) { r.idle = true })
			all := []string{"changed", "created", "deleted", "same"}
			for _, name := range all {
				r.w.Use(r.ref(Repository, name), r.ref(Secret, name))
				if name != "created" {
					r.put(name, "1")
				}
			}
			once := func() {
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.w.streamOnce(ctx, scope{namespace: r.namespace}) }()
				r.knows(all...)
				stop()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			once()
			if user, told := r.w.next(); told {
				t.Errorf("the first picture is told to %v", user)
			}
			r.put("changed", "2")
			r.put("created", "1")
			r.remove("deleted")
			r.w.Use(r.ref(Repository, "last"), r.ref(Secret, "last")) // it is known at the end
			all = append(all, "last")
			once()
			for _, name := range []string{"changed", "created", "deleted"} {
				if user, _ := r.w.next(); user != r.ref(Repository, name) {
					t.Errorf("told %v, want %s", user, name)
				}
			}
			if user, told := r.w.next(); told {
				t.Errorf("%v is told too", user)
			}
		})
	}
}

// TestSecretsThatMayNotBeWatched: it is said once, the server is left alone, and one
// who reads a change tells all others.
func TestSecretsThatMayNotBeWatched(t *testing.T) {
	t.Parallel()
	r := newRig(t, "denied", nil)
	site, other := r.ref(Repository, "site"), r.ref(Repository, "other")
	r.put("a", "1")
	r.w.Use(site, r.ref(Secret, "a"), r.ref(Secret, "b"))
	r.read("a")
	r.w.Use(other, r.ref(Secret, "a"))
	deadline, tick := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for len(r.wire.requests()) < 2 || r.log.count("may not be watched") == 0 {
		select {
		case <-deadline:
			t.Fatalf("it is not said; asked %q", r.wire.requests())
		case <-tick.C:
		}
	}
	r.put("a", "2")
	r.read("a")
	r.tells("read", other, site)
	if n := len(r.wire.requests()); n != 2 {
		t.Errorf("asked %d times", n)
	}
	if n := r.log.count("may not be watched"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
