package cli_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// What happens to watches: agents learn of every job, whatever becomes of the
// connection that was to tell them.

// TestNetHalfOpenWatch: a device on the way forgets the connections, and nobody
// hears of it. A job that is made then is found within a minute, although the
// watch is silent and does not break.
func TestNetHalfOpenWatch(t *testing.T) {
	t.Parallel()
	agents := times(1, 12)
	f := newField(t, testenv.Options{}, agents)
	doors := make([]*door, agents)
	for i, a := range f.agents {
		doors[i] = f.through(a)
		a.flags = append(a.flags, "--repository-selector", "site="+a.name)
		f.labelled("repo-"+a.name, "", map[string]string{"site": a.name})
	}
	f.start()
	var took []time.Duration
	for round := range times(1, 3) {
		for _, d := range doors {
			d.freeze()
		}
		began := time.Now()
		for _, a := range f.agents {
			f.job(fmt.Sprintf("job-%d-%s", round, a.name), "repo-"+a.name)
		}
		for left := agents; left > 0; {
			within(t, 70*time.Second, "the next job is done", func() bool { return f.waiting() < left })
			for now := f.waiting(); left > now; left-- {
				took = append(took, time.Since(began))
			}
		}
	}
	if worst := slices.Max(took); worst > time.Minute {
		t.Errorf("a job was done after %s", worst)
	}
	t.Logf("fault: connections half open %d times: jobs done after %.1f to %.1f s", len(took), slices.Min(took).Seconds(), slices.Max(took).Seconds())
}

// TestNetForgottenVersions: while the watches are cut, jobs and repositories come
// and go, and the server forgets the versions in which they did. No job is missed
// and none is done twice; the pictures of bare informers, which share the code of
// the agents, are those of the server.
func TestNetForgottenVersions(t *testing.T) {
	t.Parallel()
	agents := times(2, 4)
	f := newField(t, testenv.Options{NoWatchCache: true}, agents, append(fieldLease(), "--job-interval", "1h")...)
	doors := make([]*door, agents)
	for i, a := range f.agents {
		doors[i] = f.through(a)
		a.flags = append(slices.Clone(a.flags), "--repository-selector", "site="+a.name)
		f.labelled("repo-"+a.name, "", map[string]string{"site": a.name})
	}
	f.start()
	var pictures []*api.Informer
	for range times(2, 36) {
		d := newDoor(t, f.api.URL)
		doors = append(doors, d)
		pictures = append(pictures, f.picture(d.URL))
	}
	var uids []string
	rounds := times(2, 5)
	for round := range rounds {
		for _, d := range doors {
			d.close()
		}
		for _, a := range f.agents {
			for n := range 2 {
				uids = append(uids, string(f.job(fmt.Sprintf("job-%d-%d-%s", round, n, a.name), "repo-"+a.name)))
			}
			f.remove(f.job("short-"+a.name, "repo-"+a.name)) // nobody can know that it was there
		}
		f.repository(fmt.Sprintf("new-%d", round), "")
		if round > 0 {
			f.drop(fmt.Sprintf("new-%d", round-1))
		}
		f.api.Compact(t)
		for _, d := range doors {
			d.reopen()
		}
		within(t, time.Minute, "all jobs have ended", func() bool { return f.waiting() == 0 })
		within(t, time.Minute, "all pictures are right", func() bool {
			for _, p := range pictures {
				_, now := p.Get("default", fmt.Sprintf("new-%d", round))
				_, before := p.Get("default", fmt.Sprintf("new-%d", round-1))
				if !now || before || len(p.List()) != agents+1 {
					return false
				}
			}
			return true
		})
	}
	f.done(time.Minute, uids...)
	relists := 0
	for _, r := range f.api.Requests(t, f.began) {
		if r.User == "picture" || strings.HasPrefix(r.User, "agent-") && strings.HasSuffix(r.Path, "/jobs") && r.Method == "GET" &&
			(strings.Contains(r.Query, "sendInitialEvents=true") || !strings.Contains(r.Query, "watch=")) {
			relists++
		}
	}
	forgotten := (agents + len(pictures)) * rounds
	if least := forgotten; relists < least {
		t.Errorf("the jobs were listed %d times, so versions were not forgotten; want %d at least", relists, least)
	}
	t.Logf("fault: versions forgotten between disconnect and reconnect: %d times, %d lists, %d jobs, none missed or doubled", forgotten, relists, len(uids))
}

// picture runs an informer of the repositories over a way of its own until the
// end of the test.
func (f *field) picture(url string) *api.Informer {
	f.t.Helper()
	client, err := api.Connect(f.t.Context(), api.Config{Server: url, TLS: api.TLS{CAFile: f.api.CAFile}, Token: f.api.TokenOf("picture"), UserAgent: "picture"})
	if err != nil {
		f.t.Fatal(err)
	}
	i := client.Informer(api.Repositories, "default", api.InformerOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = i.Run(ctx) })
	f.t.Cleanup(func() { cancel(); running.Wait(); client.Close() })
	if err := i.WaitSynced(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return i
}

// drop deletes a Repository.
func (f *field) drop(name string) {
	f.t.Helper()
	if err := f.people.Resource(api.Repositories).Namespace("default").Delete(f.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
}
