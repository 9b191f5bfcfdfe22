package resources

import "testing"

func TestClaims(t *testing.T) {
	t.Parallel()
	is := func(name string) Identity { return Identity{Kind: "Dashboard", Name: name} }
	item := func(name, path string) *Item {
		i := board(name, path, "1", "")
		return &i
	}
	fresh := func() *claims {
		p := &Plan{held: map[Identity]string{item("held", "").Identity(): "held.json"}}
		p.WriteFiles = []Change{
			{Action: Updated, Path: "a.json", Existing: item("x", "a.json")},
			{Action: Updated, Path: "b.json", Existing: item("y", "b.json")},
			{Action: Renamed, Path: "c.json", Existing: item("z", "old.json")},
		}
		c := &claims{}
		c.init(p)
		return c
	}
	own := func(name string) Identity { return item(name, "").Identity() }
	take := func(c *claims, path string, id Identity, other string, wait bool) {
		t.Helper()
		if o, w := c.take(path, id); o != other || w != wait {
			t.Errorf("take(%s, %s) = %q, %v, want %q, %v", path, id, o, w, other, wait)
		}
	}

	c := fresh()
	take(c, "n.json", own("held"), "held.json", false)
	take(c, "n.json", is("free"), "", false)
	take(c, "m.json", is("free"), "n.json", false)
	take(c, "n.json", is("free"), "", false)

	// A file that has not been read may still need what it had.
	c = fresh()
	take(c, "n.json", own("x"), "a.json", true)
	c.read("a.json", own("x"))
	take(c, "a.json", own("x"), "", false)
	take(c, "n.json", own("x"), "a.json", false)

	// Two files swap.
	c = fresh()
	c.read("a.json", own("y"))
	take(c, "a.json", own("y"), "b.json", true)
	c.read("b.json", own("x"))
	take(c, "b.json", own("x"), "", false)
	take(c, "a.json", own("y"), "", false)
	if id, known := c.about("b.json"); !known || id != own("x") || !c.taken(own("x")) || c.taken(own("z")) {
		t.Error("what was taken is not known")
	}

	// A file that cannot be read keeps what it had.
	c = fresh()
	c.unreadable("a.json")
	take(c, "n.json", own("x"), "a.json", false)
	// What moves is not kept by the path that it comes from.
	take(c, "n.json", own("z"), "", false)
}
