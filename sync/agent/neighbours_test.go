package agent

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/neighbour"
	"limpet/sync/repos"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/testenv/suite"
)

var long = flag.Bool("fault", suite.IsFull(), "run the long forms, as 'make full' does")

// street is two agents and another controller on one API, and what they look after.
type street struct {
	t       *testing.T
	server  *testenv.Server
	people  *kube.Client
	other   *other
	agents  []*Agent
	times   neighbour.Times
	sources []*testenv.Repository
	edits   int
	last    string // what was not settled yet
}

const agentCount = 2

func newStreet(t *testing.T, count int, times neighbour.Times, period time.Duration) *street {
	s := &street{t: t, server: testenv.Start(t, testenv.Options{Leases: true}), times: times}
	connect := func(user, agent string) *kube.Client {
		c, err := kube.Connect(t.Context(), kube.Config{Server: s.server.URL, TLS: kube.TLS{CAFile: s.server.CAFile}, Token: s.server.TokenOf(user), UserAgent: agent})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	s.people = connect("people", "kubectl/v1.36.0 (linux/amd64)")
	s.other = newOther(t, s.server, period)
	start(t, s.other.Run)
	host, forge := testenv.Git(t, testenv.GitOptions{}), forgetest.New(t, forgetest.Options{})
	forge.Token("glpat-of-the-team", forgetest.Rights{})
	secrets := t.TempDir()
	for n := range count {
		source := testenv.EmptyRepo(t)
		s.sources = append(s.sources, source)
		s.commit(n)
		url := host.Serve(fmt.Sprintf("boards-%d.git", n), source.Dir)
		if n == 0 {
			url = host.URL + "/missing.git"
		}
		s.create("Repository", fmt.Sprint("repo-", n), map[string]any{"title": "Boards", "type": "git", "workflows": []any{},
			"git": map[string]any{"url": url, "branch": testenv.Branch}, "sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(10)}})
		if n < 2 {
			name := fmt.Sprint("team-", n)
			s.create("Connection", name, map[string]any{"title": "Team", "type": "gitlab", "url": forge.URL})
			dir := filepath.Join(secrets, "default."+name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "token"), []byte("glpat-of-the-team"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range agentCount {
		a, _ := newAgent(t, func(c *Config) {
			c.API = kube.Config{Server: s.server.URL, TLS: kube.TLS{CAFile: s.server.CAFile}, Token: s.server.TokenOf(fmt.Sprint("agent-", n)), UserAgent: "limpet/test", Logger: c.Logger}
			c.CredentialsDir, c.AllowInsecureGit, c.Neighbour = secrets, true, times
			c.Jobs.Agent = fmt.Sprint("agent-", n)
		})
		s.agents = append(s.agents, a)
		start(t, a.Run)
	}
	return s
}

func (s *street) create(kind, name string, spec map[string]any) {
	s.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind(kind)
	u.SetName(name)
	at := api.Repositories
	if kind == "Connection" {
		at = api.Connections
	}
	if _, err := s.people.Resource(at).Namespace("default").Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// commit changes the one dashboard of a source.
func (s *street) commit(n int) {
	s.edits++
	data, err := json.Marshal(map[string]any{"uid": fmt.Sprint("board-", n), "title": fmt.Sprint("Board ", s.edits), "schemaVersion": 41, "tags": []any{}, "panels": []any{}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.sources[n].Commit(s.t, fmt.Sprint("edit ", s.edits), testenv.Change{Path: "board.json", Data: data})
}

// retitle changes the spec of a Repository.
func (s *street) retitle(n int) {
	s.edits++
	patch := fmt.Appendf(nil, `{"spec":{"title":"Boards %d"}}`, s.edits)
	if _, err := s.people.Resource(api.Repositories).Namespace("default").Patch(s.t.Context(), fmt.Sprint("repo-", n), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// settled says that all is looked after and pulled as it is now.
func (s *street) settled() bool {
	for _, kind := range []string{"repositories", "connections"} {
		list, err := s.people.Resource(api.Repositories.GroupVersion().WithResource(kind)).Namespace("default").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			repo, err := api.RepositoryView(u)
			if err != nil {
				s.t.Fatal(err)
			}
			if repo.Status.ObservedGeneration != u.GetGeneration() {
				s.last = fmt.Sprintf("%s: generation %d, %+v", u.GetName(), u.GetGeneration(), repo.Status)
				return false
			}
			n := 0
			if _, err := fmt.Sscanf(u.GetName(), "repo-%d", &n); err == nil && n > 0 && (repo.Status.Sync.State != api.StateSuccess || repo.Status.Sync.LastRef != s.sources[n].Head(s.t)) {
				s.last = fmt.Sprintf("%s: %+v", u.GetName(), repo.Status)
				return false
			}
		}
	}
	return true
}

func (s *street) settle() {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Log(s.last)
		}
	}()
	eventuallyIn(s.t, time.Minute, "all is looked after", s.settled)
}

func (s *street) phase(want neighbour.Phase) func() bool {
	return func() bool {
		for _, a := range s.agents {
			if a.shares.neighbour.State().Phase != want {
				return false
			}
		}
		return true
	}
}

// shared says that each object is looked after by one agent.
func (s *street) shared() bool {
	for n := range s.sources {
		boards, links := 0, 0
		for _, a := range s.agents {
			if (tenure{a}).Mine(repositoryKey(n)) {
				boards++
			}
			if (linkTenure{a}).Mine(repositoryKey(n)) {
				links++
			}
		}
		if boards != 1 || links != 1 {
			return false
		}
	}
	return true
}

func repositoryKey(n int) repos.Key {
	return repos.Key{Namespace: "default", Name: fmt.Sprint("repo-", n)}
}

// noLease says that no agent is a member.
func (s *street) noLease() bool {
	list, err := s.people.Resource(testenv.Leases).Namespace("default").List(s.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		return false
	}
	// The end of one is seen before its request is written down.
	left := 0
	for _, w := range s.server.Writes(s.t, 0) {
		switch {
		case !strings.Contains(w.Path, "/leases") || w.Code >= 300:
		case w.Method == http.MethodPost:
			left++
		case w.Method == http.MethodDelete:
			left--
		}
	}
	return left == 0
}

// window has people change things for a while, and returns what was written. A
// commit is seen within the interval of its Repository, a change of the spec at once.
func (s *street) window(d, every time.Duration, commits bool) []note {
	s.t.Helper()
	mark := s.server.Mark(s.t)
	end, tick := time.After(d), time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		one := 1 + n%(len(s.sources)-1)
		if commits && n%3 < 2 {
			s.commit(one)
		} else {
			s.retitle(one)
		}
		select {
		case <-tick.C:
			continue
		case <-end:
		}
		s.settle()
		return notesOf(s.t, s.server.Writes(s.t, mark))
	}
}

func eventuallyIn(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(limit), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}

// TestNeighbours: two agents look after what there is as long as nobody else does,
// yield at the first write of another controller, take over when it falls silent,
// and yield again when it is back. Nobody writes what another has just said.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	count, times, period := 5, neighbour.Times{Silence: 8 * time.Second, Grace: 2 * time.Second, Late: time.Second}, 2*time.Second
	alone, shared, every := 4*time.Second, 4*time.Second, time.Second
	if *long {
		count, times, period = 12, neighbour.Times{Silence: time.Minute, Grace: 20 * time.Second}, 20*time.Second
		alone, shared, every = 4*time.Minute, 100*time.Second, 5*time.Second
	}
	began := time.Now()
	s := newStreet(t, count, times, period)
	mark := s.server.Mark(t)
	report := func(what string, notes []note) {
		t.Logf("fault: %s, after %s: %s", what, time.Since(began).Round(time.Second), table(counts(notes)))
	}
	quiet := func(what string, notes []note) {
		t.Helper()
		for _, n := range notes {
			if n.agent() && n.what != "work" {
				t.Errorf("%s: %s %s of %s by %s: %d %s", what, n.Method, n.what, n.of, n.who, n.Code, n.Body)
			}
		}
	}
	peace := func(what string, notes []note) {
		t.Helper()
		for _, n := range notes {
			if n.Code >= 400 && n.what != "work" {
				t.Errorf("%s: a %s of %s by %s is refused with %d", what, n.what, n.of, n.who, n.Code)
			}
		}
	}

	eventuallyIn(t, time.Minute, "the agents take over", s.phase(neighbour.Active))
	s.settle()
	eventuallyIn(t, time.Minute, "each object has one agent", s.shared)
	report("taken over", notesOf(t, s.server.Writes(t, mark)))
	notes := s.window(alone, every, true)
	report("the agents alone", notes)
	peace("the agents alone", notes)

	s.other.atWork.Store(true)
	eventuallyIn(t, time.Minute, "the agents yield", s.phase(neighbour.Passive))
	eventuallyIn(t, time.Minute, "the agents have given their leases back", s.noLease)
	if text := s.agents[0].paintControllers().Text(time.Now()); text != "looked after by grafana" {
		t.Errorf("repositories are %s", text)
	}
	if err := s.agents[0].Suspend(t.Context(), repos.Suspension{Namespace: "default", Repository: "repo-1"}); err == nil {
		t.Error("a person may believe that a repository is suspended which the other controller looks after")
	}
	notes = s.window(shared, every, true)
	report("the other controller at work", notes)
	quiet("passive", notes)

	s.other.atWork.Store(false)
	s.retitle(1)
	eventuallyIn(t, times.Silence*2, "the agents take over", s.phase(neighbour.Active))
	for _, a := range s.agents {
		if state := a.shares.neighbour.State(); state.Since.Sub(state.Seen) < times.Silence {
			t.Errorf("it took over %s after the last write", state.Since.Sub(state.Seen))
		}
	}
	s.settle()
	notes = s.window(alone/2, every, *long)
	report("the other controller silent", notes)
	peace("silent", notes)

	s.other.atWork.Store(true)
	eventuallyIn(t, time.Minute, "the agents yield again", s.phase(neighbour.Passive))
	eventuallyIn(t, time.Minute, "the agents have given their leases back again", s.noLease)
	notes = s.window(shared/2, every, true)
	report("the other controller back", notes)
	quiet("passive again", notes)

	for _, text := range redundant(notesOf(t, s.server.Writes(t, mark))) {
		t.Error("redundant: ", text)
	}
	t.Logf("fault: %d writes in %s, none redundant", len(notesOf(t, s.server.Writes(t, mark))), time.Since(began).Round(time.Second))
}
