package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// sights is a picture that does not change.
type sights []kube.Object

func (s sights) Objects() []kube.Object           { return s }
func (s sights) WaitSynced(context.Context) error { return nil }
func (s sights) HasSynced() bool                  { return true }
func (s sights) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	i := slices.IndexFunc(s, func(x kube.Object) bool { return x.Key() == namespace+"/"+name })
	if i < 0 {
		return nil, false
	}
	return s[i].Unstructured(), true
}

// stopped is a clock of the server.
type stopped int64

func (c stopped) Now() (time.Time, time.Duration, bool) { return time.UnixMilli(int64(c)), 0, true }
func (c stopped) Millis(time.Duration) (int64, error)   { return int64(c), nil }

type jobOption = func(u *unstructured.Unstructured)

func with(annotation, value string) jobOption {
	return func(u *unstructured.Unstructured) { api.SetAnnotation(u, annotation, value) }
}

// waitingJob is a job that was made so many seconds after the epoch.
func waitingJob(name, repository string, created int64, o ...jobOption) kube.Object {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": "uid-" + name,
			"creationTimestamp": time.Unix(created, 0).UTC().Format(time.RFC3339)},
		"spec": map[string]any{"action": "pull", "repository": repository},
	}}
	for _, change := range o {
		change(u)
	}
	return kube.ObjectOf(u)
}

func chooser(o Options, jobs, repos sights) *Controller {
	o.Agent = "agent"
	c := newController(&env{o: o.withDefaults(), clock: clock{server: stopped(1_000_000)}}, jobs, repos)
	c.admission.workers["pull"] = quick()
	return c
}

func (c *Controller) choice(limit int) (names []string, outside map[queue.RepoKey]struct{}) {
	picked, outside := c.scanner.pick(c.jobs.Objects(), limit)
	for _, x := range picked {
		names = append(names, x.key.Name)
	}
	return names, outside
}

func TestFewJobsAllComeInByAge(t *testing.T) {
	t.Parallel()
	c := chooser(Options{}, sights{waitingJob("c", "r", 3), waitingJob("a", "s", 2), waitingJob("b", "r", 1),
		waitingJob("taken", "r", 0, func(u *unstructured.Unstructured) { setClaim(u, 1, "other") })}, nil)
	if got, outside := c.choice(3); !slices.Equal(got, []string{"b", "a", "c"}) || len(outside) != 0 {
		t.Errorf("%v, outside %v", got, outside)
	}
}

// TestCrowdIsChosenFairly: of a crowd come in the oldest of all, the best of
// each repository, and never one that this agent cannot run in place of one that
// it can.
func TestCrowdIsChosenFairly(t *testing.T) {
	t.Parallel()
	var crowd sights
	for i := range 1000 { // of one repository, older than all others
		crowd = append(crowd, waitingJob(fmt.Sprintf("big-%04d", i), "big", int64(i)))
	}
	for i := range 1000 { // none that is for this agent, and older still
		crowd = append(crowd, waitingJob(fmt.Sprintf("no-%04d", i), "other", -1000+int64(i), func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "migrate", "spec", "action")
		}))
		crowd = append(crowd, waitingJob(fmt.Sprintf("rest-%04d", i), "resting", -1000, with(api.AnnoNotBefore, "1000001")))
	}
	crowd = append(crowd, waitingJob("single", "small", 5000), waitingJob("urgent", "big", 6000, with(api.AnnoPriority, "9")),
		waitingJob("rested", "small", 7000, with(api.AnnoNotBefore, "1000000")))
	rand.Shuffle(len(crowd), func(i, j int) { crowd[i], crowd[j] = crowd[j], crowd[i] })
	const limit = 100
	got, outside := chooser(Options{}, crowd, nil).choice(limit)
	if len(got) != limit {
		t.Fatalf("%d names, want %d", len(got), limit)
	}
	for _, name := range []string{"big-0000", "big-0001", "single", "urgent", "rested"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not among %v", name, got)
		}
	}
	for _, name := range got {
		if name[:2] == "no" || name[:5] == "rest-" {
			t.Errorf("%s came in", name)
		}
	}
	if _, ok := outside[repoKey("ns", "big")]; !ok || len(outside) != 1 {
		t.Errorf("outside %v, want big alone", outside)
	}
	if !slices.IsSorted(got[:10]) {
		t.Errorf("not by age: %v", got[:10])
	}
}

// TestAgeIsNotCrowdedOut: however many better jobs a repository has, its oldest
// one comes in.
func TestAgeIsNotCrowdedOut(t *testing.T) {
	t.Parallel()
	crowd := sights{waitingJob("old", "r", 0, with(api.AnnoPriority, "0"))}
	for i := range 1000 {
		crowd = append(crowd, waitingJob(fmt.Sprint("new-", i), "r", 1, with(api.AnnoPriority, "9")))
	}
	if got, _ := chooser(Options{}, crowd, nil).choice(20); !slices.Contains(got, "old") {
		t.Errorf("only %v", got)
	}
}

// TestEveryoneComesInByTurn: what looks as if this agent could run it, and is left
// each time for a reason that the picture does not tell, keeps nobody out for ever.
func TestEveryoneComesInByTurn(t *testing.T) {
	t.Parallel()
	var crowd sights
	for i := range 1000 {
		crowd = append(crowd, waitingJob(fmt.Sprintf("old-%04d", i), fmt.Sprint("unready-", i), int64(i)))
	}
	crowd = append(crowd, waitingJob("young", "ready", 2000))
	c := chooser(Options{}, crowd, nil)
	const limit = 100
	for fill := 1; ; fill++ {
		got, _ := c.choice(limit)
		if len(got) != limit {
			t.Fatalf("%d names in fill %d", len(got), fill)
		}
		if slices.Contains(got, "young") {
			break
		}
		if fill > len(crowd)/(limit/turnShare)+1 {
			t.Fatalf("not among those that came in within %d fills", fill)
		}
	}
	if !slices.Equal(func() []string { got, _ := c.choice(limit); return got[:limit/2] }(), func() []string { got, _ := c.choice(limit); return got[:limit/2] }()) {
		t.Error("the oldest do not come in any more")
	}
}

// TestFillsThatBringNothing: a queue whose names are all left is filled ever more
// rarely, up to the interval, and at once again when one of them was claimed.
func TestFillsThatBringNothing(t *testing.T) {
	t.Parallel()
	c := chooser(Options{}, nil, nil)
	var rest []time.Duration
	for n := range 7 {
		if n == 6 {
			c.env.claims.total.Add(1)
		}
		rest = append(rest, c.scanner.scanPause())
	}
	if want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, DefaultInterval, DefaultInterval, 2 * time.Second}; !slices.Equal(rest, want) {
		t.Errorf("rests %v, want %v", rest, want)
	}
}

// TestSelectorDecidesWhoComesIn: jobs of repositories that are not selected come
// last, and priorities of repositories count.
func TestSelectorDecidesWhoComesIn(t *testing.T) {
	t.Parallel()
	repo := func(name, label, priority string) kube.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "ns", "name": name}}}
		u.SetLabels(map[string]string{"site": label})
		api.SetAnnotation(u, api.AnnoPriority, priority)
		return kube.ObjectOf(u)
	}
	repos := sights{repo("mine", "here", ""), repo("better", "here", "8"), repo("theirs", "there", "9")}
	var crowd sights
	for i := range 100 {
		for _, r := range []string{"mine", "better", "theirs", "unknown"} {
			crowd = append(crowd, waitingJob(fmt.Sprintf("%s-%03d", r, i), r, int64(i)))
		}
	}
	selector, err := labels.Parse("site=here")
	if err != nil {
		t.Fatal(err)
	}
	got, outside := chooser(Options{Selector: selector}, crowd, repos).choice(150)
	count := map[string]int{}
	for _, name := range got {
		count[name[:len(name)-4]]++
	}
	if count["better"] != 100 || count["mine"] != 50 || len(outside) != 1 {
		t.Errorf("%v, outside %v", count, outside)
	}
}

func BenchmarkChoose(b *testing.B) {
	var crowd sights
	for i := range 100_000 {
		crowd = append(crowd, waitingJob(fmt.Sprintf("job-%06d", i), fmt.Sprintf("repository-%03d", i%1000), int64(i%5000)))
	}
	c := chooser(Options{}, crowd, nil)
	b.ReportAllocs()
	for b.Loop() {
		c.scanner.pick(crowd, queue.Limit)
	}
}
