package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// hosts are Git hosts in the process of the test, so that what they cost is not
// counted among the cost of the agent. They note when each listing was asked for.
type hosts struct {
	t       *testing.T
	servers []*testenv.GitServer

	mu    sync.Mutex // guards asked
	asked []time.Time
}

// newHosts starts n of them.
func newHosts(t *testing.T, n int, secure bool) *hosts {
	t.Helper()
	h := &hosts{t: t}
	for range n {
		o := testenv.GitOptions{TLS: secure}
		o.Accept = func(user, password, _ string) bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked = append(h.asked, time.Now())
			return !secure || user == "git" && password == gitToken
		}
		h.servers = append(h.servers, testenv.Git(t, o))
	}
	return h
}

// place makes the i-th repository, of one dashboard, and returns its URL.
func (h *hosts) place(i int) string {
	h.t.Helper()
	repo := testenv.EmptyRepo(h.t)
	board := fmt.Appendf(nil, `{"uid":"board-%d","title":"Board %d","schemaVersion":39,"tags":[],"panels":[]}`, i, i)
	repo.Commit(h.t, "a dashboard", testenv.Change{Path: testenv.Directory + "/board.json", Data: board})
	return h.servers[i%len(h.servers)].Serve(fmt.Sprintf("site/r%04d.git", i), repo.Dir)
}

// since returns the times of requests from a time on.
func (h *hosts) since(at time.Time) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.asked, at, time.Time.Compare)
	return slices.Clone(h.asked[i:])
}

// reset forgets what was counted, and returns it.
func (h *hosts) reset() (sum testenv.GitCounts) {
	for _, s := range h.servers {
		c := s.Reset()
		sum.InfoRefs += c.InfoRefs
		sum.UploadPack += c.UploadPack
		sum.Connected += c.Connected
	}
	return sum
}

// TestManyRepositories has one agent look after many Repositories that nobody
// changes, and asks what that costs. Goal: 1,000 Repositories each minute for 2 %
// of a core and 80 MiB, and never at twice the mean rate.
func TestManyRepositories(t *testing.T) {
	suite.Full(t)
	if !*figures {
		t.Parallel()
	}
	many := quietCrowd{count: 60, interval: 10 * time.Second, watched: 20 * time.Second}
	if *figures {
		many = quietCrowd{count: 1000, interval: time.Minute, watched: 5 * time.Minute}
	}
	t.Run("https", func(t *testing.T) { many.weigh(t, 1, true) })
	if *figures {
		t.Run("http", func(t *testing.T) { many.weigh(t, 1, false) })
		t.Run("https of 20 hosts", func(t *testing.T) { many.weigh(t, 20, true) })
	}
}

// quietCrowd is how many Repositories there are, how often each is looked at, and
// for how long they are watched when all have been pulled.
type quietCrowd struct {
	count             int
	interval, watched time.Duration
}

// Bounds of what a crowd may cost. Processor time is judged with room for a machine
// that others keep busy too.
const (
	mostALook    = 4 * time.Millisecond // of processor time
	mostResident = 80 << 10             // KiB, of a thousand
	mostOverMean = 2                    // looks in a second over the mean
)

// weigh has the crowd at so many hosts, with tokens where they are secure.
func (q quietCrowd) weigh(t *testing.T, n int, secure bool) {
	git, h := newHosts(t, n, secure), newHome(t)
	if secure {
		h.env = append(h.env, "SSL_CERT_FILE="+git.servers[0].CAFile) // all have the same certificate
	}
	began := time.Now()
	d := h.daemon(t, "--log-level", "info")
	y := embeddedYard(t, h)
	for i := range q.count {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
			"spec": map[string]any{"title": fmt.Sprint("Site ", i), "type": "git", "workflows": []any{},
				"git":  map[string]any{"url": git.place(i), "branch": testenv.Branch, "path": testenv.Directory},
				"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(q.interval / time.Second)}}}}
		if secure {
			u.Object["secure"] = map[string]any{"token": map[string]any{"create": gitToken}}
		}
		u.SetName(fmt.Sprintf("r%04d", i))
		if _, err := y.client.Resource(api.Repositories).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for y.pulled() < q.count {
		pass(t, time.Second)
	}
	pid := d.cmd.Process.Pid
	t.Logf("%d repositories pulled %s after the start: %s", q.count, time.Since(began).Round(time.Second), readWeight(t, pid))
	pass(t, q.interval*5/4) // from the first pulls to the rhythm of the interval
	git.reset()
	start, first := time.Now(), readWeight(t, pid)
	pass(t, q.watched)
	last, took := readWeight(t, pid), time.Since(start)
	asked, counts := git.since(start), git.reset()
	looks, cpu := len(asked), last.cpu-first.cpu
	if want := int(float64(q.count)*took.Seconds()/q.interval.Seconds()) * 9 / 10; looks < want {
		t.Fatalf("%d looks, want %d", looks, want)
	}
	mean, most := rates(asked, took)
	t.Logf("%d repositories each %s at %d host(s) for %s: %.2f %% of a core, %s a look; %s; %.1f looks/s, at most %d in one second; %d connections; load %s",
		q.count, q.interval, n, took.Round(time.Second), 100*cpu.Seconds()/took.Seconds(), (cpu / time.Duration(looks)).Round(time.Microsecond), last, mean, most, counts.Connected, load())
	if each := cpu / time.Duration(looks); each > mostALook {
		t.Errorf("%s of processor time a look, want %s", each, mostALook)
	}
	if counts.UploadPack > 0 {
		t.Errorf("%d fetches although there is nothing new", counts.UploadPack)
	}
	if counts.Connected > looks/10 {
		t.Errorf("%d connections for %d looks", counts.Connected, looks)
	}
	if *figures {
		if last.rss > mostResident {
			t.Errorf("%d KiB are resident, want %d", last.rss, mostResident)
		}
		if float64(most) > mostOverMean*mean {
			t.Errorf("%d looks in one second, the mean is %.1f", most, mean)
		}
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// pulled is how many Repositories are healthy and have been pulled.
func (y *yard) pulled() (n int) {
	y.t.Helper()
	list, err := y.client.Resource(api.Repositories).Namespace("default").List(y.t.Context(), metav1.ListOptions{})
	if err != nil {
		y.t.Fatal(err)
	}
	for i := range list.Items {
		repo, err := api.RepositoryView(&list.Items[i])
		if err == nil && repo.Status.Health.Healthy && repo.Status.Sync.State == api.StateSuccess {
			n++
		}
	}
	return n
}

// rates are the mean number of times a second and the most in any second.
func rates(at []time.Time, took time.Duration) (mean float64, most int) {
	for i, j := 0, 0; j < len(at); j++ {
		for at[j].Sub(at[i]) >= time.Second {
			i++
		}
		most = max(most, j-i+1)
	}
	return float64(len(at)) / took.Seconds(), most
}

// load is how busy the machine is.
func load() string {
	data, _ := os.ReadFile("/proc/loadavg") // "" where there is none
	return strings.Join(strings.Fields(string(data))[:1], "")
}

// pass lets time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// ill is a Repository that something is wrong with.
type ill struct {
	name, url, branch         string
	reason, text, kind, field string        // as it is told
	cure                      func()        // puts it right
	within                    time.Duration // of the cure it is well again
}

// TestIllRepositories: what is wrong with a Repository is told in one patch, and
// when it is put right the agent finds out by itself: within the minute of the next
// check, and at once where credentials have changed.
func TestIllRepositories(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	people, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, TLS: kube.TLS{CAFile: server.CAFile}, Token: server.Token, UserAgent: "people"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(people.Close)
	h := newHome(t)
	repo := testenv.Repo(t, 1, 1)
	open := testenv.Git(t, testenv.GitOptions{})
	closed := testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken})
	old, fresh := certificate(t, time.Now().Add(-time.Hour)), certificate(t, time.Now().Add(time.Hour))
	shown := new(atomic.Pointer[tls.Certificate])
	shown.Store(&old)
	secure := httptest.NewUnstartedServer(open)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	secure.StartTLS()
	unsigned := testenv.Git(t, testenv.GitOptions{TLS: true})
	ca, err := os.ReadFile(unsigned.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	ln.Close()
	t.Cleanup(func() { secure.CloseClientConnections(); secure.Close() })
	h.file(t, "credentials/default.token/token", "wrong")
	h.file(t, "credentials/default.expired/ca.crt", pemOf(old)+pemOf(fresh))
	const soon, check = 15 * time.Second, 75 * time.Second
	all := []ill{
		{"token", closed.Serve("token.git", repo.Dir), testenv.Branch, "AuthenticationFailed", "it refuses these credentials", "FieldValueInvalid", "secure.token",
			func() { h.file(t, "credentials/default.token/token", gitToken) }, soon},
		{"branch", open.Serve("branch.git", repo.Dir), "mian", "InvalidSpec", `there is no branch "mian" (did you mean main?)`, "FieldValueNotFound", "spec.git.branch",
			func() { repo.Git(t, "branch", "mian", testenv.Branch) }, check},
		{"dead", "http://" + dead + "/dead.git", testenv.Branch, "ServiceUnavailable", "nothing listens there", "InternalError", "spec.git.url",
			func() {
				ln, err := net.Listen("tcp", dead)
				if err != nil {
					t.Fatal(err)
				}
				open.Serve("dead.git", repo.Dir)
				again := &httptest.Server{Listener: ln, Config: &http.Server{Handler: open}}
				again.Start()
				t.Cleanup(func() { again.CloseClientConnections(); again.Close() })
			}, check},
		{"unsigned", unsigned.Serve("unsigned.git", repo.Dir), testenv.Branch, "ServiceUnavailable", "signed by an unknown authority", "InternalError", "spec.git.url",
			func() { h.file(t, "credentials/default.unsigned/ca.crt", string(ca)) }, soon},
		{"expired", strings.Replace(open.Serve("expired.git", repo.Dir), open.URL, secure.URL, 1), testenv.Branch, "ServiceUnavailable", "has expired", "InternalError", "spec.git.url",
			func() { shown.Store(&fresh) }, check},
	}
	h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file", h.file(t, "token", server.TokenOf("agent-0")+"\n")}
	h.daemon(t, "--controllers", "on", "--credentials-dir", filepath.Join(h.dir, "credentials"), "--max-repositories", fmt.Sprint(len(all)), "--allow-insecure-git")
	mark := server.Mark(t)
	create := func(name, url, branch string) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": name, "type": "git", "workflows": []any{},
			"git":  map[string]any{"url": url, "branch": branch, "path": testenv.Directory},
			"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}}}
		u.SetAPIVersion(api.Repositories.GroupVersion().String())
		u.SetKind("Repository")
		u.SetName(name)
		if _, err := people.Resource(api.Repositories).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) api.Repository {
		u, err := people.Resource(api.Repositories).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		repo, err := api.RepositoryView(u)
		if err != nil {
			t.Fatal(err)
		}
		return repo
	}
	// told are the patches of the health of a Repository that the agent has made.
	told := func(name string) (bodies []string) {
		for _, r := range server.Writes(t, mark) {
			if r.User == "agent-0" && r.Method == http.MethodPatch && strings.HasSuffix(r.Path, "/repositories/"+name+"/status") && bytes.Contains(r.Body, []byte(`"/status/health"`)) {
				bodies = append(bodies, string(r.Body))
			}
		}
		return bodies
	}
	ready := func(repo api.Repository) (ready api.Condition) {
		for _, c := range repo.Status.Conditions {
			if c.Type == "Ready" {
				ready = c
			}
		}
		return ready
	}
	for _, i := range all {
		create(i.name, i.url, i.branch)
	}
	for _, i := range all {
		until(t, i.name+": it is told", func() bool { return get(i.name).Status.Health.Checked > 0 })
		s := get(i.name).Status
		c := ready(get(i.name))
		if c.Status != "False" || c.Reason != i.reason || !strings.Contains(c.Message, i.text) {
			t.Errorf("%s: condition %+v", i.name, c)
		}
		if s.Health.Healthy || s.Health.Error != "health" || !slices.Equal(s.Health.Message, []string{c.Message}) || s.Sync.State != api.StateError || !slices.Equal(s.Sync.Message, []string{"Repository is unhealthy"}) {
			t.Errorf("%s: health %+v, sync %+v", i.name, s.Health, s.Sync)
		}
		if e := s.FieldErrors; len(e) != 1 || e[0].Type != i.kind || e[0].Field != i.field || e[0].Detail != c.Message {
			t.Errorf("%s: fieldErrors %+v", i.name, e)
		}
		if n := told(i.name); len(n) != 1 {
			t.Errorf("%s: %d patches: %q", i.name, len(n), n)
		}
	}
	cured := map[string]time.Time{}
	for _, i := range all {
		i.cure()
		cured[i.name] = time.Now()
	}
	for left := slices.Clone(all); len(left) > 0; {
		<-time.After(100 * time.Millisecond)
		left = slices.DeleteFunc(left, func(i ill) bool {
			took, s := time.Since(cured[i.name]), get(i.name).Status
			well := s.Health.Healthy && ready(get(i.name)).Reason == "Available" && len(s.FieldErrors) == 0
			if well || took > i.within {
				t.Logf("%s: well %t after %s", i.name, well, took.Round(100*time.Millisecond))
			}
			if took > i.within {
				t.Errorf("%s: still ill after %s: %+v", i.name, took, s)
			}
			return well || took > i.within
		})
	}
	for _, i := range all {
		until(t, i.name+": it is pulled", func() bool {
			return get(i.name).Status.Sync.State == api.StateSuccess || get(i.name).Status.Sync.State == api.StateWarning
		})
	}

	// One Repository too many.
	mark = server.Mark(t)
	create("many", open.Serve("many.git", repo.Dir), testenv.Branch)
	blocked := func(name string) bool {
		c := ready(get(name))
		return c.Status == "False" && c.Reason == "QuotaExceeded" && c.Message == fmt.Sprintf("namespace quota exceeded: %d/%d repositories", len(all)+1, len(all))
	}
	for _, i := range append(slices.Clone(all), ill{name: "many"}) {
		until(t, i.name+": it is blocked", func() bool { return blocked(i.name) })
		if n := told(i.name); len(n) != 1 {
			t.Errorf("%s: %d patches: %q", i.name, len(n), n)
		}
	}
	if err := people.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "many", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, i := range all {
		until(t, i.name+": it is free", func() bool { return get(i.name).Status.Health.Healthy && ready(get(i.name)).Reason == "Available" })
	}
	t.Logf("all are free %s after one has gone", time.Since(began).Round(time.Millisecond))
}

// certificate is one that has signed itself, for this host.
func certificate(t *testing.T, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(until.UnixNano()), NotBefore: until.Add(-24 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func pemOf(c tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}
