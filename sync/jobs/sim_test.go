package jobs

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/testenv/suite"
)

var (
	simSeed  = flag.Uint64("seed", 1, "first seed of TestSimulation")
	simKeep  = flag.Bool("keep-going", false, "go on after a seed that broke the law")
	simSeeds = flag.Int("seeds", suite.Count(1000, 40_000), "how many seeds TestSimulation runs")
)

// TestSimulation lets many agents live in many worlds, each made by one seed, and holds every
// write, every run and the end against the laws of simOracle.
func TestSimulation(t *testing.T) {
	for seed := *simSeed; seed < *simSeed+uint64(*simSeeds) && (*simKeep || !t.Failed()); seed++ {
		again := fmt.Sprintf("repeat it with\n\tgo test ./sync/jobs -run TestSimulation -seed=%d -seeds=1", seed)
		stuck := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("seed %d gets stuck; %s", seed, again)) })
		w := simulate(t, seed, nil)
		stuck.Stop()
		if len(w.oracle.broken) > 0 {
			t.Errorf("seed %d breaks the law; %s\n%s", seed, again, w.story())
		}
	}
}

// TestSimulationRepeats: a seed tells the same story each time.
func TestSimulationRepeats(t *testing.T) {
	for seed := range uint64(20) {
		var told [2]string
		for i := range told {
			for _, e := range simulate(t, seed, nil).audit {
				told[i] += fmt.Sprintln(e.at, e.Agent, e)
			}
		}
		if told[0] != told[1] {
			t.Errorf("seed %d tells two stories", seed)
		}
	}
}

// simulate runs the world of one seed, and changes every process before it begins.
func simulate(t *testing.T, seed uint64, change func(*simProcess)) (w *simWorld) {
	synctest.Test(t, func(t *testing.T) {
		var deeds []deed
		w, deeds = newSimWorld(seed)
		w.change = change
		w.run(deeds)
	})
	return w
}

// patience is how long after the calm a job may take to end: the claim of a dead owner has to
// expire and to be watched, then come the rest before its next attempt, one interval, and all the
// work there is.
const simPatience = 20 * time.Minute

func (w *simWorld) run(deeds []deed) {
	ctx, cancel := context.WithCancel(context.Background())
	for _, g := range w.grafanas {
		go g.run(ctx)
	}
	for _, d := range deeds {
		<-time.After(time.Until(w.start.Add(d.at)))
		synctest.Wait()
		d.do()
	}
	<-time.After(time.Until(w.calm) + 101*time.Second) // every host is up again
	for end := w.calm.Add(simPatience); time.Now().Before(end) && !w.idle(); {
		<-time.After(7 * time.Second)
	}
	w.mu.Lock()
	lives := slices.Clone(w.processes)
	w.mu.Unlock()
	cancel()
	w.over.Store(true)
	for _, p := range lives {
		p.stop()
	}
	for _, p := range lives {
		if err := <-p.done; err != nil && !p.dead.Load() {
			w.oracle.breach("", "%s: %v", p.name, err)
		}
		if live := p.agent.Snapshot().Running; len(live) > 0 {
			w.oracle.breach(live[0].UID, "%s still works on it", p.name)
		}
	}
	<-time.After(time.Minute) // what is still under way arrives
	w.oracle.last(w)
}

// idle says that nothing is left to do.
func (w *simWorld) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.objects["jobs"]) > 0 {
		return false
	}
	for _, h := range w.hosts {
		h.disk.mu.Lock()
		n := len(h.disk.claims)
		h.disk.mu.Unlock()
		if h.gone.Load() {
			continue
		}
		if p := h.life.Load(); n > 0 || p.dead.Load() || p.agent.waiting() > 0 {
			return false
		}
	}
	return true
}

// deed is something that happens at a time.
type deed struct {
	at time.Duration
	do func()
}

const year = 365 * 24 * time.Hour

// newSimWorld makes the world of a seed and what will happen in it.
func newSimWorld(seed uint64) (*simWorld, []deed) {
	f := fate(0).of(seed)
	length := f.of(1).between(time.Minute, 4*time.Minute)
	w := &simWorld{seed: seed, fate: f, start: time.Now(), calm: time.Now().Add(length),
		repos: newCache(), oracle: newSimOracle()}
	w.repos.complete()
	w.memory = newMemory(w.judged)
	w.skew = []time.Duration{0, time.Hour, -30 * time.Minute}[f.of(2).n(3)]
	w.ordered = f.of(17).likely(500)
	if w.loki = f.of(3).likely(80); w.loki {
		w.absent["historicjobs"] = http.StatusNotFound
	}
	w.rough = []int{0, 15, 50, 120}[f.of(4).n(4)]
	w.deadly = []int{0, 0, 10, 40}[f.of(5).n(4)]
	w.options = Options{Logger: simLog, Drivers: 1 + f.of(6).n(3), Cleanup: CleanupRequeue}
	switch f.of(7).n(10) {
	case 0:
		w.options.Cleanup = CleanupFail
	case 1:
		w.options.Cleanup = CleanupOff
	}
	if f.of(8).likely(150) {
		w.down = w.windows(f.of(9), 1, 5*time.Second, 90*time.Second)
	}
	var deeds []deed
	for i := range w.size(f.of(10)) {
		deeds = append(deeds, w.addHost(f.of(11, uint64(i)), i)...)
	}
	for i := range 1 + f.of(12).n(3) {
		name := fmt.Sprint("r", i)
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
			"spec": map[string]any{"title": name, "type": "git", "sync": map[string]any{"enabled": true, "target": "folder"}}}}
		u.SetNamespace("default")
		u.SetName(name)
		w.repos.objects[keyOf(u)], w.objects["repositories"][keyOf(u)] = u, u
	}
	deeds = append(deeds, w.people(f.of(13))...)
	if f.of(14).likely(250) {
		for i := range 1 + f.of(15).n(2) {
			w.grafanas = append(w.grafanas, w.addGrafana(f.of(16, uint64(i)), i))
		}
	}
	slices.SortFunc(deeds, func(a, b deed) int { return int(a.at - b.at) })
	return w, deeds
}

// size is the number of agents: mostly few, up to 50.
func (w *simWorld) size(f fate) int {
	switch kind := f.n(100); {
	case kind < 60:
		return 2 + f.of(1).n(2)
	case kind < 85:
		return 4 + f.of(1).n(3)
	case kind < 97:
		return 7 + f.of(1).n(6)
	}
	return 13 + f.of(1).n(38)
}

// windows are up to most times of trouble, all before the calm.
func (w *simWorld) windows(f fate, most int, short, long time.Duration) (out []window) {
	length := w.calm.Sub(w.start)
	for i := range 1 + f.n(most) {
		from := w.start.Add(f.of(1, uint64(i)).between(0, length))
		to := from.Add(f.of(2, uint64(i)).between(short, long))
		if to.After(w.calm) {
			to = w.calm
		}
		out = append(out, window{from, to})
	}
	return out
}

func (w *simWorld) addHost(f fate, i int) (deeds []deed) {
	h := &simHost{world: w, id: uint64(i), name: fmt.Sprint("h", i), fate: f}
	h.disk = newSimDisk(h)
	w.hosts = append(w.hosts, h)
	length := w.calm.Sub(w.start)
	switch f.of(1).n(6) {
	case 0:
		h.wrong = f.of(2).between(-10*year, 10*year)
	case 1:
		h.wrong = time.Unix(0, 0).Sub(w.start)
	case 2:
		h.wrong = f.of(2).between(-2*time.Minute, 2*time.Minute)
	}
	if f.of(3).likely(250) {
		for j := range 1 + f.of(4).n(3) {
			by := []time.Duration{time.Hour, -time.Hour, 10 * year, -10 * year, 45 * time.Second, -45 * time.Second}[f.of(5, uint64(j)).n(6)]
			h.jumps = append(h.jumps, jump{w.start.Add(f.of(6, uint64(j)).between(0, length)), by})
		}
	}
	if f.of(7).likely(200) {
		for _, s := range w.windows(f.of(8), 1, 5*time.Second, 200*time.Second) {
			h.sleeps = append(h.sleeps, sleep{s, f.of(9).likely(500)})
		}
	}
	if f.of(10).likely(200) {
		h.cut = w.windows(f.of(11), 2, 5*time.Second, 100*time.Second)
	}
	if f.of(12).likely(150) {
		h.mute = w.windows(f.of(13), 1, 20*time.Second, 120*time.Second)
	}
	if f.of(14).likely(120) {
		h.disk.full = w.windows(f.of(15), 2, 3*time.Second, 60*time.Second)
	}
	if f.of(16).likely(60) {
		h.disk.readOnly = w.windows(f.of(17), 1, 3*time.Second, 40*time.Second)
	}
	deeds = append(deeds, deed{f.of(18).between(0, 5*time.Second), h.boot})
	for j := range f.of(19).n(3) {
		g := f.of(20, uint64(j))
		at := g.between(6*time.Second, length)
		if g.of(1).likely(600) {
			if i > 0 && g.of(3).likely(250) && w.options.Cleanup != CleanupOff {
				return append(deeds, deed{at, h.die})
			}
			deeds = append(deeds, deed{at, func() { h.life.Load().crash(g.of(2).between(100*time.Millisecond, 100*time.Second)) }})
		} else {
			deeds = append(deeds, deed{at, func() { h.restart(g.of(2).between(100*time.Millisecond, 30*time.Second)) }})
		}
	}
	return deeds
}

// die is a crash of a machine that no agent repairs.
func (h *simHost) die() {
	h.gone.Store(true)
	if p := h.life.Load(); !p.dead.Swap(true) {
		p.stop()
	}
}

// restart is an orderly stop, as an upgrade makes it.
func (h *simHost) restart(rest time.Duration) {
	p := h.life.Load()
	if p.dead.Load() {
		return
	}
	p.stop()
	go func() {
		p.done <- <-p.done
		if !p.dead.Swap(true) {
			time.AfterFunc(rest, h.boot)
		}
	}()
}

// people make jobs, cancel and delete them, use names again, and write without regard for others.
func (w *simWorld) people(f fate) (deeds []deed) {
	length := w.calm.Sub(w.start)
	n := 2 + f.n(8)
	for i := range n {
		g := f.of(1, uint64(i))
		repo := fmt.Sprint("r", g.of(1).n(len(w.repos.objects)))
		name := repo + []string{"-sync", "-push", fmt.Sprint("-test-", i)}[g.of(2).n(3)]
		deeds = append(deeds, deed{g.of(3).between(0, length*2/3), func() { w.create(repo, name) }})
	}
	for i := range f.of(4).n(4) {
		g := f.of(5, uint64(i))
		deeds = append(deeds, deed{g.between(0, length), func() { w.meddle(g) }})
	}
	return deeds
}

func (w *simWorld) create(repo, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.newJob(repo, name)
	if p := w.fate.about(name).n(20); p < 10 {
		api.SetAnnotation(u, api.AnnoPriority, fmt.Sprint(p))
	}
	_, _ = w.memory.create(person("create", "jobs", name), u)
}

// ask tells an agent something, as its commands do.
func (w *simWorld) ask(p *simProcess, k queue.Key, g fate) {
	if g.of(5).likely(500) {
		_ = p.agent.Cancel(context.Background(), k.Namespace, k.Name)
		return
	}
	p.agent.Drain(true)
	<-time.After(g.of(6).between(time.Second, 2*time.Minute))
	p.agent.Drain(false)
}

// meddle does something to one of the jobs that are there.
func (w *simWorld) meddle(g fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.sorted("jobs")
	if len(all) == 0 {
		return
	}
	cur := all[g.of(1).n(len(all))]
	k, repo, next := keyOf(cur), api.Spec(cur, "repository"), cur.DeepCopy()
	if p := w.hosts[g.of(3).n(len(w.hosts))].life.Load(); p != nil && g.of(4).likely(300) {
		go w.ask(p, k, g) // not under the lock
		return
	}
	switch g.of(2).n(5) {
	case 0:
		_ = w.delete(person("delete", "jobs", k.Name), k, "", "")
	case 1: // the name is used again at once
		_ = w.delete(person("delete", "jobs", k.Name), k, "", "")
		_, _ = w.memory.create(person("create", "jobs", k.Name), w.newJob(repo, k.Name))
	case 2:
		api.SetAnnotation(next, api.AnnoCancel, "enough")
		_, _ = w.update(person("update", "jobs", k.Name), next)
	case 3: // a label, as a person with kubectl does it
		api.SetLabel(next, "team", "ops")
		_, _ = w.update(person("update", "jobs", k.Name), next)
	case 4: // replaced by an old copy from a file, whatever is there now
		_, _ = w.update(person("update", "jobs", k.Name), w.newJob(repo, k.Name))
	}
}

// story tells the broken laws and every write to the job or the two that the first of them is
// about.
func (w *simWorld) story() string {
	var b strings.Builder
	for _, x := range w.oracle.broken {
		fmt.Fprintf(&b, "%s: %s\n", x.uid, x.law)
	}
	fmt.Fprintf(&b, "%d hosts, calm after %s, options %+v\n", len(w.hosts), w.calm.Sub(w.start), w.options)
	for _, e := range w.audit {
		if uid := uidIn(e); uid == w.oracle.broken[0].uid || strings.HasSuffix(w.oracle.broken[0].law, " "+uid) {
			fmt.Fprintf(&b, "%10.3f %-6s %s\n", e.at.Sub(w.start).Seconds(), e.Agent, e)
		}
	}
	return b.String()
}
