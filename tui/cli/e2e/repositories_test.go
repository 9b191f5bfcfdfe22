package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestManyRepositories: one agent checks many Repositories that do not change. Goal for 1,000 each minute (-figures):
// 2 % of a core and 80 MiB, and in no second twice the mean rate. Nothing is fetched, and connections are kept.
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
