package dependency

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func ref(kind, name string) Ref { return Ref{kind, "ns", name} }

var (
	a, b, conn = ref(Repository, "a"), ref(Repository, "b"), ref(Connection, "c")
	s1, s2     = ref(Secret, "s1"), ref(Secret, "s2")
)

// TestObserve walks through what is used and observed, one step after another.
func TestObserve(t *testing.T) {
	t.Parallel()
	type step struct {
		use     Ref // with refs
		refs    []Ref
		observe Ref // or version
		version string
		woken   []Ref
	}
	use := func(user Ref, refs ...Ref) step { return step{use: user, refs: refs} }
	see := func(r Ref, version string, woken ...Ref) step {
		return step{observe: r, version: version, woken: woken}
	}
	for name, steps := range map[string][]step{
		"what is not used wakes nothing": {see(s1, "1"), see(s1, "2")},
		"the first version is no change": {use(a, s1), see(s1, "1"), see(s1, "1"), see(s1, "2", a)},
		"created, deleted, created":      {use(a, s1), see(s1, ""), see(s1, "1", a), see(s1, "", a), see(s1, ""), see(s1, "2", a)},
		"all users, in order": {
			use(b, s1), use(a, s1), use(conn, s1), use(ref(Repository, "d"), s2), see(s1, "1"), see(s1, "2", conn, a, b)},
		"another namespace, another kind": {
			use(a, s1), see(s1, "1"), see(Ref{Secret, "other", "s1"}, "1"), see(ref(File, "s1"), "1"),
			see(Ref{Secret, "other", "s1"}, "2"), see(ref(File, "s1"), "2"), see(s1, "2", a)},
		"reader and watch in the wrong order": {use(a, s1), see(s1, "2"), see(s1, "1", a), see(s1, "2", a)},
		"a use replaces the one before":       {use(a, s1), see(s1, "1"), use(a, s2), see(s1, "2"), see(s2, "1"), see(s2, "2", a)},
		"what stays in use stays known":       {use(a, s1), see(s1, "1"), use(a, s2, s1), see(s1, "2", a)},
		"a new user of what is known":         {use(a, s1), see(s1, "1"), use(b, s1), see(s1, "2", a, b)},
		"a user that is gone":                 {use(a, s1), see(s1, "1"), use(a), see(s1, "2"), use(a, s1), see(s1, "3")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry()
			for n, s := range steps {
				if s.use != (Ref{}) {
					r.use(s.use, s.refs)
				} else if got := r.observe(s.observe, s.version); !slices.Equal(got, s.woken) {
					t.Errorf("step %d: woke %v, want %v", n+1, got, s.woken)
				}
			}
		})
	}
}

// TestUse: a registry whose users are gone holds nothing, and one user cannot use more
// than maxUses.
func TestUse(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	if !r.use(a, []Ref{s1}) || r.use(a, []Ref{s1}) || !r.use(b, []Ref{s2, s1}) {
		t.Error("a change is not told from none")
	}
	r.observe(s1, "1")
	r.observe(s2, "1")
	if got := r.used(Secret); !slices.Equal(got, []Ref{s1, s2}) {
		t.Errorf("used %v", got)
	}
	if got := r.usersOf(s1); !slices.Equal(got, []Ref{a, b}) || r.usersOf(ref(File, "s1")) != nil {
		t.Errorf("users %v", got)
	}
	r.use(a, nil)
	r.use(b, nil)
	if len(r.uses)+len(r.users)+len(r.seen) > 0 {
		t.Errorf("left over: %v %v %v", r.uses, r.users, r.seen)
	}
	many := make([]Ref, 10*maxUses)
	for n := range many {
		many[n] = ref(Secret, fmt.Sprint(n))
	}
	if r.use(a, many); len(r.used(Secret)) != maxUses {
		t.Errorf("%d are used by one", len(r.used(Secret)))
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	for _, c := range []struct {
		name string
		obj  map[string]any
		want []Ref
	}{
		{"own secret", map[string]any{"secure": map[string]any{"token": named("s1")}}, []Ref{ref(File, "x"), s1}},
		{"connection", map[string]any{"spec": map[string]any{"connection": named("c")}}, []Ref{ref(File, "x"), ref(File, "c"), conn}},
		{"several fields", map[string]any{"secure": map[string]any{
			"token": named("s1"), "ca": named("s1"), "key": named("s2"), "other": map[string]any{}, "webhookSecret": named("s3"),
		}}, []Ref{ref(File, "x"), s1, s2}},
		{"nonsense", map[string]any{"secure": "x", "spec": map[string]any{"connection": "c"}}, []Ref{ref(File, "x")}},
	} {
		u := &unstructured.Unstructured{Object: c.obj}
		u.SetNamespace("ns")
		u.SetName("x")
		if got := Of(u); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
