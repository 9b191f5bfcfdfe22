package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"limpet/sync/testenv/suite"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

var (
	boards  = schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v1", Resource: "dashboards"}
	folders = schema.GroupVersionResource{Group: api.FolderGroup, Version: "v1", Resource: "folders"}
)

// lived is one Repository on the API machinery, default/boards at a host of
// GitLab's kind with git http-backend behind it, and the agent that looks after it.
type lived struct {
	*home
	t      *testing.T
	api    *testenv.Server
	people *kube.Client
	forge  *forgetest.Host
	git    *testenv.GitServer
	repo   *testenv.Repository
	agent  *daemon
	url    string // of the webhook listener
	mark   testenv.Mark
}

func newLived(t *testing.T) *lived {
	t.Helper()
	l := &lived{home: newHome(t), t: t, api: testenv.Start(t, testenv.Options{Leases: true}), repo: testenv.Repo(t, 3, 5),
		forge: forgetest.New(t, forgetest.Options{TLS: true, Speaks: []string{"gitlab"}})}
	l.forge.Add("ops/boards", forgetest.Repository{DefaultBranch: testenv.Branch})
	l.forge.Token(gitToken, forgetest.Rights{Hooks: true})
	l.git = testenv.Git(t, testenv.GitOptions{User: "oauth2", Password: gitToken})
	l.git.Serve("ops/boards.git", l.repo.Dir)
	l.forge.Behind(l.git)
	l.file(t, "credentials/default.boards/token", gitToken)
	l.file(t, "credentials/default.boards/ca.crt", string(l.forge.CA))
	l.args = []string{"--provisioning-server-url", l.api.URL, "--tls-ca-file", l.api.CAFile, "--token-file", l.file(t, "token", l.api.TokenOf("agent-0")+"\n")}
	var err error
	if l.people, err = kube.Connect(t.Context(), kube.Config{Server: l.api.URL, TLS: kube.TLS{CAFile: l.api.CAFile}, Token: l.api.Token, UserAgent: "people"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.people.Close)
	l.agent = l.daemon(t, "--controllers", "on", "--credentials-dir", filepath.Join(l.dir, "credentials"), "--claim-expiry", "6s", "--lease-renewal-interval", "2s",
		"--webhook-listen", "127.0.0.1:0", "--webhook-url", "https://limpet.example.com")
	until(t, "webhooks are received", func() bool {
		found := listening.FindStringSubmatch(l.agent.log.String())
		if found != nil {
			l.url = "http://" + found[1]
		}
		return found != nil
	})
	l.mark = l.api.Mark(t)
	return l
}

// create makes the Repository, as a person does with an API that adds nothing.
func (l *lived) create() {
	l.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Boards", "type": "gitlab", "workflows": []any{"write"},
		"gitlab": map[string]any{"url": l.forge.URL + "/ops/boards", "branch": testenv.Branch, "path": testenv.Directory},
		"sync":   map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(10)}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("boards")
	u.SetFinalizers([]string{api.FinalizerRemove, api.FinalizerRemoveJobs, api.FinalizerCleanup})
	if _, err := l.people.Resource(api.Repositories).Namespace("default").Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// until waits until the Repository is like that, and returns it.
func (l *lived) until(what string, ok func(api.Repository) bool) (repo api.Repository) {
	l.t.Helper()
	until(l.t, what, func() bool {
		u, err := l.people.Resource(api.Repositories).Namespace("default").Get(l.t.Context(), "boards", metav1.GetOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		if repo, err = api.RepositoryView(u); err != nil {
			l.t.Fatal(err)
		}
		return ok(repo)
	})
	return repo
}

// pulled waits until a commit is synced and its job is gone.
func (l *lived) pulled(commit string) api.Repository {
	l.t.Helper()
	repo := l.until("it is pulled", func(repo api.Repository) bool {
		return repo.Status.Sync.LastRef == commit && repo.Status.Sync.State == api.StateSuccess
	})
	until(l.t, "the job is gone", func() bool { return len(l.list(api.Jobs)) == 0 })
	return repo
}

func (l *lived) list(r schema.GroupVersionResource) []unstructured.Unstructured {
	l.t.Helper()
	list, err := l.people.Resource(r).List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return list.Items
}

// writes is how often the agent wrote to Repositories, and the jobs that it made, since
// the last call.
func (l *lived) writes() (repositories, jobs int) {
	l.t.Helper()
	for _, r := range l.api.Writes(l.t, l.mark) {
		_, rest, _ := strings.Cut(r.Path, "/namespaces/default/")
		switch {
		case r.User != "agent-0" || r.Code >= 300:
		case strings.HasPrefix(rest, "repositories/"):
			repositories++
		case rest == "jobs" && r.Method == http.MethodPost:
			jobs++
		}
	}
	l.mark = l.api.Mark(l.t)
	return repositories, jobs
}

// push delivers a push as GitLab does, with the secret that it was given.
func (l *lived) push(secret, after string) (code int, answer string) {
	l.t.Helper()
	body := fmt.Appendf(nil, `{"object_kind":"push","ref":"refs/heads/%s","after":%q,"project":{"path_with_namespace":"ops/boards"},"total_commits_count":1,"commits":[{"id":%q,"added":[],"removed":[],"modified":["grafana/x.json"]}]}`, testenv.Branch, after, after)
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+webhookPath, bytes.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Gitlab-Event", "Push Hook")
	req.Header.Set("X-Gitlab-Event-UUID", after)
	req.Header.Set("X-Gitlab-Token", secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestLife goes with a Repository from its creation over its first pull, those of its
// interval and of a push, to its end, and counts the writes of the agent. Nothing is left
// of it, neither on the API nor at the host nor in the state file.
func TestLife(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	l := newLived(t)
	wrote := func(what string, repositories, jobs int) {
		t.Helper()
		if r, j := l.writes(); r > repositories || j != jobs {
			t.Errorf("%s: %d writes to Repositories, at most %d; %d jobs made, want %d", what, r, repositories, j, jobs)
		}
	}
	l.create()
	repo := l.pulled(l.repo.Head(t))
	wrote("created and pulled", 3, 1)
	if s := repo.Status; !s.Health.Healthy || s.ObservedGeneration != 1 || len(s.FieldErrors) > 0 {
		t.Errorf("status %+v", s)
	}
	hooks := l.forge.Hooks("ops/boards")
	if len(hooks) != 1 || hooks[0].URL != "https://limpet.example.com"+webhookPath {
		t.Fatalf("hooks %+v", hooks)
	}

	// Nothing new: the host is asked, nothing is written.
	l.git.Reset()
	checks := 0
	until(t, "the interval has come twice", func() bool { checks += l.git.Reset().InfoRefs; return checks >= 2 })
	wrote("nothing new", 0, 0)

	l.pulled(l.repo.Edit(t, l.repo.Dashboards()[1].Path))
	wrote("a new commit", 3, 1)

	head := l.repo.Edit(t, l.repo.Dashboards()[2].Path)
	if code, answer := l.push(hooks[0].Secret, head); code != http.StatusAccepted {
		t.Errorf("push: %d %s", code, answer)
	}
	l.pulled(head)
	wrote("a push", 4, 1)

	if err := l.people.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "boards", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone", func() bool { return len(l.list(api.Repositories)) == 0 })
	for _, kind := range []schema.GroupVersionResource{api.Jobs, boards, folders} {
		if left := l.list(kind); len(left) > 0 {
			t.Errorf("%d %s are left, such as %s", len(left), kind.Resource, left[0].GetName())
		}
	}
	if hooks := l.forge.Hooks("ops/boards"); len(hooks) > 0 {
		t.Errorf("hooks %+v are left", hooks)
	}
	if code := l.agent.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.nothingKept()
	l.noSecret(t, l.agent.log.String(), gitToken, hooks[0].Secret)
}

// nothingKept asks the state file what it knows of the Repository.
func (l *lived) nothingKept() {
	l.t.Helper()
	store, _, err := state.Open(l.t.Context(), state.Options{Path: l.state()})
	if err != nil {
		l.t.Fatal(err)
	}
	defer store.Close()
	claims, err := store.Claims(l.t.Context())
	if err != nil || len(claims) > 0 {
		l.t.Errorf("claims %+v, %v", claims, err)
	}
	facts, err := store.Facts(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for key := range facts {
		if strings.Contains(key, "boards") {
			l.t.Errorf("fact %s is left", key)
		}
	}
	names, err := store.SecretNames(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(name, "boards") {
			l.t.Errorf("secret %s is left", name)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(l.state()), "mirrors")); err != nil {
		l.t.Error(err)
	}
}

// door is the last hop to a server as a network device keeps it: it can forget
// the connections that are open while new ones work, which toxiproxy cannot, and
// it counts those who come while the server is away.
type door struct {
	URL string

	target string
	ln     net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	open   map[net.Conn]net.Conn
	frozen map[net.Conn]bool
	shut   bool
	came   int
}

// newDoor makes a door to a URL until the end of the test.
func newDoor(t *testing.T, target string) *door {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{target: u.Host, open: map[net.Conn]net.Conn{}, frozen: map[net.Conn]bool{}}
	if d.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = d.ln.Addr().String()
	d.URL = u.String()
	d.all.Go(d.serve)
	t.Cleanup(func() {
		d.ln.Close()
		d.close()
		d.all.Wait()
	})
	return d
}

func (d *door) serve() {
	for {
		in, err := d.ln.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.came++
		shut := d.shut
		d.mu.Unlock()
		if shut {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", d.target)
		if err != nil {
			in.Close()
			continue
		}
		d.mu.Lock()
		shut = d.shut // it may have been closed meanwhile
		if !shut {
			d.open[in] = out
		}
		d.mu.Unlock()
		if shut {
			in.Close()
			out.Close()
			continue
		}
		d.all.Go(func() { d.carry(in, in, out) })
		d.all.Go(func() { d.carry(in, out, in) })
	}
}

// carry copies one direction of the connection that is known as key.
func (d *door) carry(key, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		d.mu.Lock()
		frozen := d.frozen[key]
		d.mu.Unlock()
		if frozen { // what comes is lost, and nobody hears of the end
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// freeze forgets the connections that are open: they stay so, and nothing
// comes through any more. New ones are good.
func (d *door) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in := range d.open {
		d.frozen[in] = true
	}
}

// close refuses everybody from now on and cuts what is open.
func (d *door) close() {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.cut()
}

// reopen takes that back.
func (d *door) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}

func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in, out := range d.open {
		in.Close()
		out.Close()
	}
	clear(d.open)
	clear(d.frozen)
}

// knocks is how many connections were tried since the last call.
func (d *door) knocks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.came
	d.came = 0
	return n
}
