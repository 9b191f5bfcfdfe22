package transport_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/git"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// TestGate: who was told to wait asks no more, for no repository of that host; who
// asks with other credentials does.
func TestGate(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	for _, name := range []string{"a.git", "b.git"} {
		gittest.NewOrigin(t, s.Root, name).Commit("one", map[string]string{"a.json": "1"})
	}
	m := mirrortest.Open(t, git.Options{})
	s.During(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := m.Resolve(t.Context(), mirrortest.At(s, "a.git"), gitref.Branch("main"))
	gittest.ErrorIs(t, err, git.Throttled)
	s.During(nil)
	before := s.Requests.Load()
	for _, name := range []string{"a.git", "b.git"} {
		_, err := m.Resolve(t.Context(), mirrortest.At(s, name), gitref.Branch("main"))
		if e := gittest.ErrorIs(t, err, git.Throttled, "Retry-After"); e.RetryAfter <= 0 || e.RetryAfter > 2*time.Minute {
			t.Errorf("retry after %v", e.RetryAfter)
		}
	}
	if n := s.Requests.Load() - before; n != 0 {
		t.Errorf("the host was asked %d times", n)
	}
	other := mirrortest.At(s, "b.git")
	other.Creds, other.AllowInsecure = &auth.Credentials{Username: "u", Password: gittest.Secret}, true
	if _, err := m.Resolve(t.Context(), other, gitref.Branch("main")); err != nil {
		t.Error(err)
	}
}

// TestLongList: a list of refs that comes drop by drop ends in time.
func TestLongList(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	s.During(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		io.WriteString(w, "001e# service=git-upload-pack\n00003fff")
		<-r.Context().Done()
	})
	m := mirrortest.Open(t, git.Options{Refs: 200 * time.Millisecond})
	_, err := m.Resolve(t.Context(), mirrortest.At(s, "a.git"), gitref.Branch("main"))
	gittest.ErrorIs(t, err, git.Timeout, "the list of refs takes more than 200ms")
}

// TestWhole: a server that sends just enough not to be silent is left all the same,
// over http and over git's own signs of life; others at the same host have their turn.
func TestWhole(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	gittest.NewOrigin(t, s.Root, "a.git").Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{Whole: 3 * time.Second, PerHost: 1})
	ref := gittest.Must[git.Ref](t)(m.Resolve(t.Context(), mirrortest.At(s, "a.git"), gitref.Branch("main")))
	asked, left := make(chan struct{}), make(chan struct{})
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		defer close(left)
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		io.WriteString(w, "00000008NAK\n")
		close(asked)
		drop := time.NewTicker(5 * time.Millisecond)
		defer drop.Stop()
		for {
			io.WriteString(w, "0038\x02remote: Counting objects: still at it, please wait\r")
			select {
			case <-drop.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	done := make(chan error, 1)
	go func() {
		_, err := m.Fetch(t.Context(), mirrortest.At(s, "a.git"), ref)
		done <- err
	}()
	<-asked
	s.During(nil)
	if _, err := m.Resolve(t.Context(), mirrortest.At(s, "a.git"), gitref.Branch("main")); err != nil {
		t.Errorf("who waits for the host: %v", err)
	}
	gittest.ErrorIs(t, <-done, git.Timeout, "it takes more than 3s", "KiB received", "--git-timeout")
	<-left
	if _, err := m.Fetch(t.Context(), mirrortest.At(s, "a.git"), ref); err != nil {
		t.Errorf("the next fetch: %v", err)
	}
}

// TestRequestLimits: the calls for one repository keep its limits together; another one at the host
// has none of them.
func TestRequestLimits(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	for _, name := range []string{"a.git", "b.git"} {
		gittest.NewOrigin(t, s.Root, name).Commit("one", map[string]string{"a.json": "1"})
	}
	var running, most atomic.Int64
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/a.git") {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
		}
		s.Backend(w, r)
	})
	m := mirrortest.Open(t, git.Options{PerHost: 8})
	resolve := func(name string, limits git.RequestLimits) {
		r := mirrortest.At(s, name)
		r.Requests = limits
		if _, err := m.Resolve(t.Context(), r, gitref.Branch("main")); err != nil {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { resolve("a.git", git.RequestLimits{MaxConcurrent: 1}) })
	}
	if all.Wait(); most.Load() != 1 {
		t.Errorf("%d requests at a time", most.Load())
	}
	began := time.Now()
	for range 4 {
		resolve("b.git", git.RequestLimits{PerSecond: 5, Burst: 2})
	}
	if took := time.Since(began); took < 380*time.Millisecond {
		t.Errorf("4 requests within %s", took)
	}
}
