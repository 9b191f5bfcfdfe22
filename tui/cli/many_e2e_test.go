package cli_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
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
