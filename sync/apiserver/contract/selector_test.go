package contract

var selectCases = []testCase{
	{"by labels", func(e *env) {
		for _, o := range []object{
			labeled(folders.named("a"), "tier", "edge", "rank", "1"),
			labeled(folders.named("b"), "tier", "core", "rank", "5"),
			labeled(folders.named("c"), "tier", "edge", "rank", "x", "site", ""),
			folders.named("d"),
		} {
			e.create(folders, o)
		}
		for selector, want := range map[string][]string{
			"tier=edge":              {"a", "c"},
			"tier==edge":             {"a", "c"},
			"tier!=edge":             {"b", "d"},
			"tier in (edge,core)":    {"a", "b", "c"},
			"tier in (core)":         {"b"},
			"tier notin (edge)":      {"b", "d"},
			"tier":                   {"a", "b", "c"},
			"!tier":                  {"d"},
			"rank>1":                 {"b"},
			"rank>0":                 {"a", "b"},
			"rank<5":                 {"a"},
			"rank<1":                 {},
			"site=":                  {"c"},
			"tier=edge,rank=1":       {"a"},
			"tier=edge,!site":        {"a"},
			"tier=edge,tier=core":    {},
			"tier in (edge), rank<9": {"a"},
			"":                       {"a", "b", "c", "d"},
		} {
			e.get(folders.in(e.ns), query("labelSelector", selector)).has(want...)
		}
	}},
	{"refuses what is no selector", func(e *env) {
		for _, selector := range []string{"tier=edge,", "tier in edge", "tier===x", "rank>x", "a b", "=x", "tier in (", "bad key=1",
			"tier=bad value"} {
			e.get(folders.in(e.ns), query("labelSelector", selector)).fails(400, "BadRequest")
		}
	}},
	{"by name and namespace", func(e *env) {
		for _, n := range []string{"a", "b", "c"} {
			e.create(folders, folders.named(n))
		}
		for selector, want := range map[string][]string{
			"metadata.name=b":                              {"b"},
			"metadata.name==b":                             {"b"},
			"metadata.name!=b":                             {"a", "c"},
			"metadata.name=absent":                         {},
			"metadata.namespace=" + e.ns:                   {"a", "b", "c"},
			"metadata.namespace=elsewhere":                 {},
			"metadata.name!=a,metadata.namespace!=another": {"b", "c"},
		} {
			e.get(folders.in(e.ns), query("fieldSelector", selector)).has(want...)
		}
		e.get(folders.everywhere(), query("fieldSelector", "metadata.namespace="+e.ns)).has("a", "b", "c")
		e.get(folders.everywhere(), query("fieldSelector", "metadata.name=b,metadata.namespace="+e.ns)).has("b")
	}},
	{"refuses other fields", func(e *env) {
		e.get(folders.in(e.ns), query("fieldSelector", "spec.title=x")).fails(400, "BadRequest").says("field label not supported: spec.title")
		e.get(folders.in(e.ns), query("fieldSelector", "metadata.name")).fails(400, "BadRequest")
	}},
	{"by both", func(e *env) {
		e.create(folders, labeled(folders.named("a"), "x", "1"))
		e.create(folders, labeled(folders.named("b"), "x", "1"))
		e.get(folders.in(e.ns), query("labelSelector", "x=1", "fieldSelector", "metadata.name!=a")).has("b")
	}},
}
