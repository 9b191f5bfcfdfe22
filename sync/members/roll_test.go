package members

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

func agent(name, version string) record {
	return record{name: name, agent: name, holder: name, version: version, expiry: time.Minute}
}

func TestKeeper(t *testing.T) {
	t.Parallel()
	r, now := newRoll(), time.Now()
	if got := r.keeper(now, "ns", "a", anyScope); got != "" {
		t.Errorf("nobody is there, and %q looks after it", got)
	}
	const objects = 3000
	assign := func(at time.Time) map[string]string {
		of := map[string]string{}
		for i := range objects {
			name := fmt.Sprint("repo-", i)
			of[name] = r.keeper(at, "ns", name, anyScope)
		}
		return of
	}
	for _, name := range []string{"x", "y", "z"} {
		r.note(agent(name, "1"), now)
	}
	before := assign(now)
	share := map[string]int{}
	for _, who := range before {
		share[who]++
	}
	for who, n := range share {
		if n < objects/3*9/10 || n > objects/3*11/10 {
			t.Errorf("%s looks after %d of %d", who, n, objects)
		}
	}
	// One that goes leaves its own share and nothing else; one that comes takes
	// from each.
	r.drop("z")
	for name, who := range assign(now) {
		if who != before[name] && before[name] != "z" {
			t.Fatalf("%s went from %s to %s though z has gone", name, before[name], who)
		}
	}
	r.note(agent("z", "2"), now)
	for name, who := range assign(now) {
		if who != before[name] {
			t.Fatalf("%s is with %s after z is back, was with %s", name, who, before[name])
		}
	}
	// One that is not heard of any more is gone when its time is over.
	r.note(agent("x", "2"), now.Add(30*time.Second))
	r.note(agent("y", "2"), now.Add(30*time.Second))
	for name, who := range assign(now.Add(61 * time.Second)) {
		if who == "z" {
			t.Fatalf("%s is with an agent that is gone", name)
		}
	}
	if got := r.expires(now.Add(61 * time.Second)); !got.Equal(now.Add(90 * time.Second)) {
		t.Errorf("the next expires after %v", got.Sub(now))
	}
}

func TestKeeperByScope(t *testing.T) {
	t.Parallel()
	r, now := newRoll(), time.Now()
	site := agent("site", "1")
	site.scope = Scope{Namespace: "a", Selector: labels.SelectorFromSet(labels.Set{"site": "7"})}
	r.note(site, now)
	for _, c := range []struct {
		namespace string
		set       map[string]string
		want      string
	}{
		{"a", map[string]string{"site": "7"}, "site"},
		{"a", map[string]string{"site": "8"}, ""},
		{"a", nil, ""},
		{"b", map[string]string{"site": "7"}, ""},
	} {
		if got := r.keeper(now, c.namespace, "repo", func(s Scope) bool { return s.holds(c.namespace, c.set) }); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.namespace, c.set, got, c.want)
		}
	}
}

func TestNote(t *testing.T) {
	t.Parallel()
	r, now := newRoll(), time.Now()
	for i, step := range []struct {
		rec   record
		after time.Duration
		want  bool
	}{
		{agent("x", "1"), 0, true},                 // came
		{agent("x", "1"), time.Second, false},      // the same, listed again
		{agent("x", "2"), 20 * time.Second, false}, // renewed
		{agent("x", "2"), 90 * time.Second, false}, // listed again, and dead
		{agent("x", "3"), 95 * time.Second, true},  // came back
		{record{name: "x", version: "4", expiry: time.Minute, scope: Scope{Namespace: "n"}}, 96 * time.Second, true}, // another scope
	} {
		if got := r.note(step.rec, now.Add(step.after)); got != step.want {
			t.Errorf("step %d: changed %t, want %t", i, got, step.want)
		}
	}
	if r.seen["x"].at != now.Add(96*time.Second) {
		t.Error("the sighting is not that of the last change")
	}
}

func anyScope(Scope) bool { return true }
