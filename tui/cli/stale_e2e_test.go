package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// An agent that was away for longer than its leases, and jobs that are not any
// more what an agent holds them for.

// crew is an agent that holds many jobs at once, one per repository, which all
// wait at the same gate.
type crew struct {
	*field
	*agent
	gate *gate
	jobs []string
}

func newCrew(t *testing.T, jobs int) *crew {
	t.Helper()
	f := newField(t, testenv.Options{}, 1, append(fieldLease(), "--drivers", fmt.Sprint(jobs), "--job-interval", "1s", "--cleanup", "off")...)
	c := &crew{field: f, agent: f.agents[0], gate: newGate(t, 1)}
	for i := range jobs {
		f.repository(fmt.Sprintf("repo-%02d", i), c.gate.URL)
		c.jobs = append(c.jobs, fmt.Sprintf("job-%02d", i))
	}
	f.start()
	return c
}

// fill makes all jobs of the crew and waits until they are held. It returns
// their UIDs by name.
func (c *crew) fill() map[string]string {
	c.t.Helper()
	uids := map[string]string{}
	for i, name := range c.jobs {
		uids[name] = string(c.job(name, fmt.Sprintf("repo-%02d", i)))
	}
	within(c.t, time.Minute, "all jobs are held", func() bool { return c.held() == len(c.jobs) })
	return uids
}

// wrote returns what the agent began to write about jobs since then, taken or
// not, and what was taken of what it had begun before.
func (c *crew) wrote(since testenv.Mark, begin time.Time) []testenv.Request {
	c.t.Helper()
	var out []testenv.Request
	for _, r := range c.requestsOf(c.agent, since) {
		if r.Method != http.MethodGet && (r.Code < 300 || r.Began >= begin.UnixMilli()) && (strings.Contains(r.Path, "/jobs/") || strings.Contains(r.Path, "/historicjobs")) {
			out = append(out, r)
		}
	}
	return out
}

// TestNetSuspendedAgent: a host sleeps for longer than its leases last, while the
// work that it holds could go on, and others take its jobs. When it wakes it
// writes nothing about them: it looks first.
func TestNetSuspendedAgent(t *testing.T) {
	t.Parallel()
	c := newCrew(t, times(6, 30))
	thief, err := api.Connect(t.Context(), api.Config{Server: c.field.api.URL, TLS: api.TLS{CAFile: c.field.api.CAFile}, Token: c.field.api.TokenOf("agent-thief"), UserAgent: "thief"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(thief.Close)
	jobs := thief.Resource(api.Jobs).Namespace("default")
	stolen := 0
	for round := range times(1, 10) {
		uids := c.fill()
		c.suspend(t)
		<-time.After(fieldExpiry + time.Second)
		if round%2 == 0 {
			c.gate.open() // the work is done at the moment of waking
		}
		for _, name := range c.jobs {
			u, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			labels := u.GetLabels()
			labels[api.LabelClaim], labels[api.LabelClaimOwner] = fmt.Sprint(time.Now().UnixMilli()), fmt.Sprintf("thief-%d", round)
			u.SetLabels(labels)
			if _, err := jobs.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			stolen++
		}
		mark, before, begin := c.field.api.Mark(t), len(c.lines(`"step":"lost"`)), time.Now()
		c.resume(t)
		within(t, time.Minute, "all jobs are known to be lost", func() bool { return len(c.lines(`"step":"lost"`))-before >= len(c.jobs) })
		if wrote := c.wrote(mark, begin); len(wrote) > 0 {
			t.Errorf("round %d: on waking it wrote %s %s, answered with %d, and %d more", round, wrote[0].Method, wrote[0].Path, wrote[0].Code, len(wrote)-1)
		}
		for _, name := range c.jobs {
			if u := c.look(name); u == nil || u.GetLabels()[api.LabelClaimOwner] != fmt.Sprintf("thief-%d", round) {
				t.Errorf("round %d: %s is not any more in the hands of who took it", round, name)
			}
			c.remove(types.UID(uids[name]))
		}
		if round%2 == 0 {
			c.gate.shut()
		}
	}
	for _, w := range auditOf(t, c.field.api.Requests(t, c.began), fieldExpiry).wrong {
		t.Error(w)
	}
	t.Logf("fault: suspended for longer than the expiry: %d jobs taken meanwhile, 0 writes about them after waking", stolen)
}

// TestNetReusedName: a job is deleted, and another one made under its name at
// once, while an agent works on the first. The second is a job of its own.
func TestNetReusedName(t *testing.T) {
	t.Parallel()
	c := newCrew(t, times(6, 25))
	reused := 0
	uids := c.fill()
	for range times(2, 20) {
		old := uids
		uids = map[string]string{}
		for i, name := range c.jobs {
			c.remove(types.UID(old[name]))
			uids[name] = string(c.job(name, fmt.Sprintf("repo-%02d", i)))
			reused++
		}
		within(t, time.Minute, "all jobs are held again", func() bool { return c.held() == len(c.jobs) })
	}
	c.gate.open()
	list := make([]string, 0, len(uids))
	for _, uid := range uids {
		list = append(list, uid)
	}
	a := c.done(time.Minute, list...)
	if n := len(c.historicJobs()); n != len(list) {
		t.Errorf("%d HistoricJobs, want those of the last %d jobs", n, len(list))
	}
	t.Logf("fault: jobs deleted and made again under the agent: %d, %d claims, every namesake done once", reused, a.claims)
}
