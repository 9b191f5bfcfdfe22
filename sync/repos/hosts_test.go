package repos

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// hostRig is a controller whose Repositories are at hosts that answer as the test
// says, in virtual time.
type hostRig struct {
	*crowdRig
	ask   func(ctx context.Context, url string) // by Resolve; nil = at once
	token func(ctx context.Context, url string) // by Remote; nil = at once
	held  chan struct{}                         // of the bubble, for ask

	gate  sync.Mutex // guards asked
	asked map[string]int
}

// Resolve implements Prober.
func (s *hostRig) Resolve(ctx context.Context, r git.Remote, _ gitref.Selector) (git.Ref, error) {
	s.gate.Lock()
	s.asked[r.URL]++
	s.gate.Unlock()
	if s.ask != nil {
		s.ask(ctx, r.URL)
	}
	return git.Ref{Name: "refs/heads/main", Hash: headOfAll}, ctx.Err()
}

// times is how often a URL was asked.
func (s *hostRig) times(url string) int {
	s.gate.Lock()
	defer s.gate.Unlock()
	return s.asked[url]
}

// withHosts runs f beside a controller of the Repositories r0000, r0001, ... at
// these URLs.
func withHosts(t *testing.T, urls []string, s *hostRig, f func()) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		client, _, _ := embedded(t)
		s.crowdRig, s.asked, s.held = &crowdRig{t: t, client: client, urls: urls}, map[string]int{}, make(chan struct{})
		s.fill(len(urls))
		objects, queue := informers(client)
		controller := New(client, objects, queue, Options{Git: s, Logger: log,
			Remotes: Remotes(func(ctx context.Context, _, _ string, repo api.Repository) (git.Remote, error) {
				if s.token != nil {
					s.token(ctx, repo.Spec.Git.URL)
				}
				return git.Remote{URL: repo.Spec.Git.URL}, ctx.Err()
			})})
		stop := running(t, objects.Run, queue.Run, controller.Run)
		f()
		stop()
	})
}

// TestSilentHost: one that never answers, neither Git nor the API that its tokens
// come from, holds up the Repositories of no other.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	var urls []string
	for i := range 20 {
		urls = append(urls, fmt.Sprintf("https://silent.example.com/r%d.git", i), fmt.Sprintf("https://git-%d.example.com/r.git", i))
	}
	isSilent := func(url string) bool { return strings.Contains(url, "silent.example.com") }
	silent := func(ctx context.Context, url string) {
		if isSilent(url) {
			<-ctx.Done()
		}
	}
	for what, s := range map[string]*hostRig{"Git": {ask: silent}, "tokens": {token: silent}} {
		withHosts(t, urls, s, func() {
			time.Sleep(3 * time.Minute)
			for _, url := range urls {
				if n := s.times(url); !isSilent(url) && n < 2 {
					t.Errorf("%s: %s was asked %d times in three minutes", what, url, n)
				}
			}
		})
	}
}

// TestHostThatComesBack: the objects that waited while a host was silent do not all ask it
// at once when it answers, and are all reconciled soon.
func TestHostThatComesBack(t *testing.T) {
	t.Parallel()
	const crowd = 400
	urls := make([]string, crowd)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://one.example.com/r%d.git", i)
	}
	s := new(hostRig)
	var mu sync.Mutex // guards looks and seen
	var looks []time.Time
	seen := map[string]bool{}
	s.ask = func(ctx context.Context, url string) {
		mu.Lock()
		looks, seen[url] = append(looks, time.Now()), true
		mu.Unlock()
		select {
		case <-s.held:
		case <-ctx.Done():
		}
	}
	withHosts(t, urls, s, func() {
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		mu.Lock()
		looks = nil
		clear(seen)
		mu.Unlock()
		close(s.held)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if n, most := busiest(looks), 60; n > most {
			t.Errorf("%d looks in one second, want at most %d", n, most)
		}
		if len(seen) < crowd {
			t.Errorf("%d of %d were looked at", len(seen), crowd)
		}
		t.Logf("%d looks, at most %d in one second", len(looks), busiest(looks))
	})
}
