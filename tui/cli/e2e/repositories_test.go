package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestManyRepositories: one agent checks many Repositories that do not change. Goal for
// 1,000 each minute (-figures): 2 % of a core and 80 MiB, and in no second twice the
// mean rate. Nothing is fetched, and connections are kept.
func TestManyRepositories(t *testing.T) {
	suite.Full(t)
	const (
		mostCheck    = 4 * time.Millisecond // of processor time; with room for a busy machine
		mostResident = 80 << 10             // KiB, of a thousand
		mostOverMean = 2                    // checks in a second over the mean
	)
	count, interval, watched := size(60, 1000), time.Duration(size(10, 60))*time.Second, time.Duration(size(20, 300))*time.Second
	var mu sync.Mutex // guards asked
	var asked []time.Time
	host := testenv.Git(t, testenv.GitOptions{TLS: true, Accept: func(user, password, _ string) bool {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		return user == "git" && password == gitToken
	}})
	h := newHome(t)
	h.env = append(h.env, "SSL_CERT_FILE="+host.CAFile)
	d := h.daemon(t, "--log-level", "info")
	repositories := embeddedWorkload(t, h).client.Resource(api.Repositories).Namespace("default")
	for i := range count {
		repo := testenv.EmptyRepo(t)
		repo.Commit(t, "a dashboard", testenv.Change{Path: testenv.Directory + "/board.json",
			Data: fmt.Appendf(nil, `{"uid":"board-%d","title":"Board","schemaVersion":39,"tags":[],"panels":[]}`, i)})
		name := fmt.Sprintf("r%04d", i)
		u := newObject(api.Repositories, name, nil, gitRepository(name, host.Serve("site/"+name+".git", repo.Dir), testenv.Branch, interval))
		u.Object["secure"] = map[string]any{"token": map[string]any{"create": gitToken}}
		if _, err := repositories.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 10*time.Minute, "all are pulled", func() bool {
		list, err := repositories.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range list.Items {
			if repo, err := api.RepositoryView(&list.Items[i]); err == nil && repo.Status.Health.Healthy &&
				repo.Status.Sync.State == api.StateSuccess {
				n++
			}
		}
		return n == count
	})
	<-time.After(interval * 5 / 4) // from the first pulls to the rhythm of the interval
	mu.Lock()
	asked = nil
	mu.Unlock()
	host.Reset()
	first := readUsage(t, d.cmd.Process.Pid)
	<-time.After(watched)
	last, counts := readUsage(t, d.cmd.Process.Pid), host.Reset()
	mu.Lock()
	times := slices.Clone(asked)
	mu.Unlock()
	checks, mean, most := len(times), float64(len(times))/watched.Seconds(), 0
	for i, j := 0, 0; j < checks; j++ {
		for times[j].Sub(times[i]) >= time.Second {
			i++
		}
		most = max(most, j-i+1)
	}
	if want := int(float64(count)*watched.Seconds()/interval.Seconds()) * 9 / 10; checks < want {
		t.Fatalf("%d checks, want %d", checks, want)
	}
	cpu := (last.cpu - first.cpu) / time.Duration(checks)
	t.Logf("%d repositories each %s: %s a check; %s; %.1f checks/s, at most %d in one second; %d connections", count, interval, cpu, last,
		mean, most, counts.Connected)
	if cpu > mostCheck || counts.UploadPack > 0 || counts.Connected > checks/10 {
		t.Errorf("%s a check, %+v", cpu, counts)
	}
	if *figures && (last.rss > mostResident || float64(most) > mostOverMean*mean) {
		t.Errorf("%d KiB resident, %d checks in one second", last.rss, most)
	}
}

// unhealthy is a Repository that something is wrong with.
type unhealthy struct {
	name, url, branch string
	reason, field     string        // as its status tells
	mend              func()        // puts it right
	within            time.Duration // of which it is healthy again
}

// TestUnhealthyRepositories: what is wrong with a Repository is written in one patch. It
// is found healthy again by itself: with the next check within a minute, and at once
// where credentials have changed.
func TestUnhealthyRepositories(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	user := connectUser(t, server, "user", "default")
	repositories := user.Resource(api.Repositories).Namespace("default")
	h, repo := newHome(t), testenv.Repo(t, 1, 1)
	open, closed, unsigned := testenv.Git(t, testenv.GitOptions{}), testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken}),
		testenv.Git(t, testenv.GitOptions{TLS: true})
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
	h.file(t, "credentials/default.token/token", "wrong")
	const soon, check = 15 * time.Second, 75 * time.Second
	all := []unhealthy{
		{"token", closed.Serve("token.git", repo.Dir), testenv.Branch, "AuthenticationFailed", "secure.token",
			func() { h.file(t, "credentials/default.token/token", gitToken) }, soon},
		{"branch", open.Serve("branch.git", repo.Dir), "mian", "InvalidSpec", "spec.git.branch",
			func() { repo.Git(t, "branch", "mian", testenv.Branch) }, check},
		{"unsigned", unsigned.Serve("unsigned.git", repo.Dir), testenv.Branch, "ServiceUnavailable", "spec.git.url",
			func() { h.file(t, "credentials/default.unsigned/ca.crt", string(ca)) }, soon},
		{"dead", "http://" + dead + "/dead.git", testenv.Branch, "ServiceUnavailable", "spec.git.url", func() {
			ln, err := net.Listen("tcp", dead)
			if err != nil {
				t.Fatal(err)
			}
			open.Serve("dead.git", repo.Dir)
			again := &httptest.Server{Listener: ln, Config: &http.Server{Handler: open}}
			again.Start()
			t.Cleanup(func() { again.CloseClientConnections(); again.Close() })
		}, check},
	}
	h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file",
		h.file(t, "token", server.TokenOf("agent-0")+"\n")}
	h.daemon(t, "--controllers", "on", "--credentials-dir", filepath.Join(h.dir, "credentials"), "--allow-insecure-git")
	mark := server.Mark(t)
	status := func(name string) (api.RepositoryStatus, api.Condition) {
		u, err := repositories.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		view, err := api.RepositoryView(u)
		if err != nil {
			t.Fatal(err)
		}
		var ready api.Condition
		for _, c := range view.Status.Conditions {
			if c.Type == "Ready" {
				ready = c
			}
		}
		return view.Status, ready
	}
	for _, r := range all {
		user.create(api.Repositories, r.name, nil, gitRepository(r.name, r.url, r.branch, time.Minute))
	}
	for _, r := range all {
		until(t, r.name+" is checked", func() bool { s, _ := status(r.name); return s.Health.Checked > 0 })
		s, ready := status(r.name)
		if ready.Status != "False" || ready.Reason != r.reason || s.Health.Healthy || s.Sync.State != api.StateError ||
			len(s.FieldErrors) != 1 || s.FieldErrors[0].Field != r.field {
			t.Errorf("%s: %+v", r.name, s)
		}
		patches := 0
		for _, w := range server.Writes(t, mark) {
			if w.User == "agent-0" && strings.HasSuffix(w.Path, "/repositories/"+r.name+"/status") &&
				bytes.Contains(w.Body, []byte(`"/status/health"`)) {
				patches++
			}
		}
		if patches != 1 {
			t.Errorf("%s: %d patches", r.name, patches)
		}
	}
	for _, r := range all {
		r.mend()
	}
	mended := time.Now()
	for _, r := range all {
		within(t, r.within, r.name+" is healthy", func() bool {
			s, ready := status(r.name)
			return s.Health.Healthy && ready.Reason == "Available" && len(s.FieldErrors) == 0
		})
		t.Logf("%s: healthy after %s", r.name, time.Since(mended).Round(time.Second))
	}
}
