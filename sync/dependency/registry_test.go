package dependency

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

func thing(kind, name string) Thing { return Thing{kind, "ns", name} }
func byName(t Thing) Want           { return Want{Thing: t} }
func byLabel(kind, selector string) Want {
	s, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	return Want{Thing: thing(kind, ""), Labels: s}
}

var (
	a, b, conn = thing(Repository, "a"), thing(Repository, "b"), thing(Connection, "c")
	s1, s2     = thing(Secret, "s1"), thing(Secret, "s2")
)

// TestSaw walks through what is used and seen, one step after another.
func TestSaw(t *testing.T) {
	t.Parallel()
	type step struct {
		use   Thing // with wants
		wants []Want
		saw   Thing // or version
		v     string
		set   labels.Set
		again []Thing
	}
	use := func(user Thing, wants ...Want) step { return step{use: user, wants: wants} }
	saw := func(t Thing, v string, set labels.Set, again ...Thing) step {
		return step{saw: t, v: v, set: set, again: again}
	}
	blue, red := labels.Set{"color": "blue"}, labels.Set{"color": "red"}
	for name, steps := range map[string][]step{
		"what nobody uses is nobody's": {saw(s1, "1", nil), saw(s1, "2", nil)},
		"the first version is no change, the same one again is none, another is": {
			use(a, byName(s1)), saw(s1, "1", nil), saw(s1, "1", nil), saw(s1, "2", nil, a)},
		"created, deleted, created": {
			use(a, byName(s1)), saw(s1, "", nil), saw(s1, "1", nil, a), saw(s1, "", nil, a), saw(s1, "", nil), saw(s1, "2", nil, a)},
		"all of its users, in order, and of no other's": {
			use(b, byName(s1)), use(a, byName(s1)), use(conn, byName(s1)), use(thing(Repository, "d"), byName(s2)),
			saw(s1, "1", nil), saw(s1, "2", nil, conn, a, b)},
		"another namespace and another kind are others": {
			use(a, byName(s1)), saw(s1, "1", nil), saw(Thing{Secret, "other", "s1"}, "1", nil), saw(thing(File, "s1"), "1", nil),
			saw(Thing{Secret, "other", "s1"}, "2", nil), saw(thing(File, "s1"), "2", nil), saw(s1, "2", nil, a)},
		"a reader and a watch that come in the wrong order look once more": {
			use(a, byName(s1)), saw(s1, "2", nil), saw(s1, "1", nil, a), saw(s1, "2", nil, a)},
		"what is used replaces what was": {
			use(a, byName(s1)), saw(s1, "1", nil), use(a, byName(s2)), saw(s1, "2", nil), saw(s2, "1", nil), saw(s2, "2", nil, a)},
		"what stays in use is known on": {
			use(a, byName(s1)), saw(s1, "1", nil), use(a, byName(s2), byName(s1)), saw(s1, "2", nil, a)},
		"a new user of what is known": {
			use(a, byName(s1)), saw(s1, "1", nil), use(b, byName(s1)), saw(s1, "2", nil, a, b)},
		"who is gone is left alone, and what it used is forgotten": {
			use(a, byName(s1)), saw(s1, "1", nil), use(a), saw(s1, "2", nil), use(a, byName(s1)), saw(s1, "3", nil)},
		"chosen by label: whoever comes, changes, loses the label or goes": {
			use(a, byLabel(Secret, "color=blue")), saw(s1, "1", red), saw(s2, "1", blue, a), saw(s2, "2", blue, a),
			saw(s2, "3", red, a), saw(s2, "4", red), saw(s1, "2", blue, a), saw(s1, "", blue, a), saw(s1, "", blue, a)},
		"chosen by label in a namespace": {
			use(a, byLabel(Secret, "color=blue")), saw(Thing{Secret, "other", "s1"}, "1", blue), saw(thing(Connection, "s1"), "1", blue)},
		"by label and by name": {
			use(a, byLabel(Secret, "color=blue")), use(b, byName(s1)), saw(s1, "1", blue, a), saw(s1, "2", red, a, b), saw(s1, "3", red, b)},
		"another label": {
			use(a, byLabel(Secret, "color=blue")), saw(s1, "1", blue, a), use(a, byLabel(Secret, "color=red")), saw(s1, "2", blue), saw(s1, "3", red, a)},
	} {
		t.Run(name, func(t *testing.T) {
			var r Registry
			for n, s := range steps {
				if s.use != (Thing{}) {
					r.Use(s.use, s.wants...)
					continue
				}
				if got := r.Saw(s.saw, s.v, s.set); len(got)+len(s.again) > 0 && !reflect.DeepEqual(got, s.again) {
					t.Errorf("step %d: %v look again, want %v", n+1, got, s.again)
				}
			}
		})
	}
}

// TestUse: what is new is told, the rest is not, and a registry whose users are gone
// holds nothing.
func TestUse(t *testing.T) {
	t.Parallel()
	var r Registry
	if !r.Use(a, byName(s1), byLabel(Secret, "x")) {
		t.Error("nothing is new")
	}
	if r.Use(a, byName(s1), byLabel(Secret, "x")) {
		t.Error("the same is new")
	}
	if !r.Use(b, byName(s2), byName(s1)) {
		t.Error("nothing is new")
	}
	r.Saw(s1, "1", labels.Set{"x": "y"})
	r.Saw(s2, "1", nil)
	things, namespaces := r.Used(Secret)
	if !reflect.DeepEqual(things, []Thing{s1, s2}) || !reflect.DeepEqual(namespaces, []string{"ns"}) {
		t.Errorf("used %v, namespaces %v", things, namespaces)
	}
	if users := r.Users(s1); !reflect.DeepEqual(users, []Thing{a, b}) || r.Users(thing(File, "s1")) != nil {
		t.Errorf("users %v", users)
	}
	if gone := r.Absent(Secret, "ns", map[string]bool{"s2": true}); !reflect.DeepEqual(gone, []Thing{s1}) {
		t.Errorf("absent %v", gone)
	}
	r.Use(a)
	if len(r.seen) != 2 {
		t.Errorf("seen %v", r.seen)
	}
	r.Use(b)
	if len(r.wants)+len(r.users)+len(r.choosy)+len(r.seen) > 0 {
		t.Errorf("left over: %+v", &r)
	}
	many := make([]Want, 10*mostWants)
	for n := range many {
		many[n] = byName(thing(Secret, fmt.Sprint(n)))
	}
	r.Use(a, many...)
	if things, _ := r.Used(Secret); len(things) != mostWants {
		t.Errorf("%d things are used by one", len(things))
	}
}

// TestTogether: users come and go while things change.
func TestTogether(t *testing.T) {
	t.Parallel()
	var r Registry
	var g sync.WaitGroup
	for n := range 8 {
		g.Go(func() {
			user := thing(Repository, fmt.Sprint(n))
			for m := range 200 {
				r.Use(user, byName(s1), byName(thing(Secret, fmt.Sprint(m%3))))
				r.Saw(s1, fmt.Sprint(m), nil)
				r.Used(Secret)
			}
			r.Use(user)
		})
	}
	g.Wait()
	if len(r.wants)+len(r.users)+len(r.seen) > 0 {
		t.Errorf("left over: %+v", &r)
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		obj  map[string]any
		want []Want
	}{
		{"a repository of its own", map[string]any{"secure": map[string]any{"token": map[string]any{"name": "s1"}}}, []Want{byName(thing(File, "x")), byName(s1)}},
		{"one that uses a connection", map[string]any{"spec": map[string]any{"connection": map[string]any{"name": "c"}}}, []Want{byName(thing(File, "x")), byName(thing(File, "c")), byName(conn)}},
		{"two fields of one secret, none, and that of its webhook", map[string]any{"secure": map[string]any{"token": map[string]any{"name": "s1"}, "ca": map[string]any{"name": "s1"},
			"key": map[string]any{"name": "s2"}, "other": map[string]any{}, "webhookSecret": map[string]any{"name": "s3"}}}, []Want{byName(thing(File, "x")), byName(s1), byName(s2)}},
		{"nonsense", map[string]any{"secure": "x", "spec": map[string]any{"connection": "c"}}, []Want{byName(thing(File, "x"))}},
	} {
		u := &unstructured.Unstructured{Object: c.obj}
		u.SetNamespace("ns")
		u.SetName("x")
		if got := Of(u); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
