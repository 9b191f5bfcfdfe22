package contract

import "slices"

// applyAs sends an apply patch of a folder with the given spec.
func (e *env) applyAs(manager, n string, spec object, options ...option) answer {
	e.Helper()
	body := object{"apiVersion": folders.apiVersion(), "kind": "Folder", "metadata": object{"name": n}, "spec": spec}
	return e.patch(folders.in(e.ns, n), typeApply, body, append([]option{query("fieldManager", manager)}, options...)...)
}

// owners are the managers of a field below spec, sorted.
func owners(o object, field string) []string {
	var out []string
	for _, m := range list(o, "metadata", "managedFields") {
		if has(m.(object), "fieldsV1", "f:spec", "f:"+field) {
			out = append(out, str(m.(object), "manager"))
		}
	}
	slices.Sort(out)
	return out
}

var applyCases = []testCase{
	{"creates", func(e *env) {
		o := e.applyAs("one", "a", object{"title": "A"}).is(201).object
		if generation(o) != 1 || uid(o) == "" || str(o, "spec", "title") != "A" {
			e.Errorf("answered %v", o)
		}
		m := list(o, "metadata", "managedFields")
		if len(m) != 1 || str(m[0].(object), "operation") != "Apply" || str(m[0].(object), "manager") != "one" {
			e.Errorf("managedFields = %v", m)
		}
	}},
	{"changes nothing when nothing changes", func(e *env) {
		was := e.applyAs("one", "a", object{"title": "A"}).is(201).object
		if o := e.applyAs("one", "a", object{"title": "A"}).is(200).object; !sameBut(o, was) {
			e.Errorf("answered %v, want %v", o, was)
		}
	}},
	{"changes what it owns", func(e *env) {
		e.applyAs("one", "a", object{"title": "A"}).is(201)
		if o := e.applyAs("one", "a", object{"title": "B", "n": 1}).is(200).object; str(o, "spec", "title") != "B" || num(o, "spec", "n") != 1 ||
			generation(o) != 2 {
			e.Errorf("answered %v", o)
		}
	}},
	{"takes away what it no longer names", func(e *env) {
		e.applyAs("one", "a", object{"title": "A", "description": "d", "deep": object{"x": 1, "y": 2}}).is(201)
		o := e.applyAs("one", "a", object{"title": "A", "deep": object{"y": 2}}).is(200).object
		if has(o, "spec", "description") || has(o, "spec", "deep", "x") || num(o, "spec", "deep", "y") != 2 {
			e.Errorf("spec = %v", o["spec"])
		}
	}},
	{"leaves what others own", func(e *env) {
		e.applyAs("one", "a", object{"title": "A"}).is(201)
		e.applyAs("two", "a", object{"description": "d"}).is(200)
		o := e.applyAs("one", "a", object{"title": "B"}).is(200).object
		if str(o, "spec", "description") != "d" || str(o, "spec", "title") != "B" {
			e.Errorf("spec = %v", o["spec"])
		}
		o = e.applyAs("two", "a", object{}).is(200).object
		if has(o, "spec", "description") || str(o, "spec", "title") != "B" {
			e.Errorf("spec = %v", o["spec"])
		}
	}},
	{"conflicts with another owner", func(e *env) {
		e.applyAs("one", "a", object{"title": "A"}).is(201)
		a := e.applyAs("two", "a", object{"title": "B"}).fails(409, "Conflict").says(`conflict with "one"`, ".spec.title")
		causes := list(a.object, "details", "causes")
		if len(causes) != 1 || str(causes[0].(object), "reason") != "FieldManagerConflict" || str(causes[0].(object), "field") != ".spec.title" {
			e.Errorf("causes = %v", causes)
		}
		if got := e.read(folders, "a"); str(got, "spec", "title") != "A" {
			e.Error("the conflict changed the object")
		}
	}},
	{"conflicts with a plain writer", func(e *env) {
		e.post(folders.in(e.ns), folders.named("a"), query("fieldManager", "hand")).is(201)
		e.applyAs("two", "a", object{"title": "B"}).fails(409, "Conflict").says(`conflict with "hand" using folder.grafana.app/v1`)
	}},
	{"takes fields over by force", func(e *env) {
		e.applyAs("one", "a", object{"title": "A", "n": 1}).is(201)
		o := e.applyAs("two", "a", object{"title": "B"}, query("force", "true")).is(200).object
		if str(o, "spec", "title") != "B" || !slices.Equal(owners(o, "title"), []string{"two"}) ||
			!slices.Equal(owners(o, "n"), []string{"one"}) {
			e.Errorf("answered %v", o)
		}
	}},
	{"shares fields of the same value", func(e *env) {
		e.applyAs("one", "a", object{"title": "A"}).is(201)
		o := e.applyAs("two", "a", object{"title": "A"}).is(200).object
		if !slices.Equal(owners(o, "title"), []string{"one", "two"}) {
			e.Errorf("the title belongs to %v", owners(o, "title"))
		}
		o = e.applyAs("one", "a", object{}).is(200).object
		if str(o, "spec", "title") != "A" || !slices.Equal(owners(o, "title"), []string{"two"}) {
			e.Errorf("answered %v", o)
		}
	}},
	{"loses fields to a plain writer", func(e *env) {
		o := e.applyAs("one", "a", object{"title": "A"}).is(201).object
		o = e.put(folders.in(e.ns, "a"), set(o, "B", "spec", "title"), query("fieldManager", "hand")).is(200).object
		if !slices.Equal(owners(o, "title"), []string{"hand"}) {
			e.Errorf("the title belongs to %v", owners(o, "title"))
		}
		e.applyAs("one", "a", object{"title": "C"}).fails(409, "Conflict")
	}},
	{"owns labels and annotations one by one", func(e *env) {
		body := folders.named("a")
		set(labeled(body, "x", "1", "y", "1"), "1", "metadata", "annotations", "n")
		e.patch(folders.in(e.ns, "a"), typeApply, body, query("fieldManager", "one")).is(201)
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"metadata": object{"labels": object{"other": "1"}}}).is(200)
		o := e.patch(folders.in(e.ns, "a"), typeApply, labeled(folders.named("a"), "x", "1"), query("fieldManager", "one")).is(200).object
		if len(at(o, "metadata", "labels").(object)) != 2 || has(o, "metadata", "annotations", "n") {
			e.Errorf("metadata = %v", o["metadata"])
		}
	}},
	{"replaces lists whole", func(e *env) {
		e.applyAs("one", "a", object{"title": "A", "tags": []any{"x", "y"}}).is(201)
		o := e.applyAs("one", "a", object{"title": "A", "tags": []any{"z"}}).is(200).object
		if l := list(o, "spec", "tags"); len(l) != 1 || l[0] != "z" {
			e.Errorf("tags = %v", l)
		}
		e.applyAs("two", "a", object{"tags": []any{"w"}}).fails(409, "Conflict").says(".spec.tags")
	}},
	{"needs a manager", func(e *env) {
		e.patch(folders.in(e.ns, "a"), typeApply, folders.named("a")).fails(422, "Invalid").blames("fieldManager")
	}},
	{"refuses managed fields in the body", func(e *env) {
		o := e.applyAs("one", "a", object{"title": "A"}).is(201).object
		e.patch(folders.in(e.ns, "a"), typeApply, o, query("fieldManager", "one")).fails(400, "BadRequest").says("managedFields")
	}},
	{"refuses another name, kind or version", func(e *env) {
		path := folders.in(e.ns, "a")
		e.patch(path, typeApply, folders.named("b"), query("fieldManager", "one")).fails(400, "BadRequest")
		e.patch(path, typeApply, dashboards.named("a"), query("fieldManager", "one")).fails(400, "BadRequest")
		e.patch(path, typeApply, folders.at("v1beta1").named("a"), query("fieldManager", "one")).fails(400, "BadRequest")
		e.patch(path, typeApply, object{"spec": object{}}, query("fieldManager", "one")).fails(400, "BadRequest")
	}},
	{"does not create when a uid is given", func(e *env) {
		body := set(folders.named("a"), "11111111-2222-3333-4444-555555555555", "metadata", "uid")
		e.patch(folders.in(e.ns, "a"), typeApply, body, query("fieldManager", "one")).fails(409, "Conflict")
	}},
	{"checks a version that it names", func(e *env) {
		was := e.applyAs("one", "a", object{"title": "A"}).is(201).object
		e.applyAs("one", "a", object{"title": "B"}).is(200)
		body := set(folders.named("a"), version(was), "metadata", "resourceVersion")
		e.patch(folders.in(e.ns, "a"), typeApply, body, query("fieldManager", "one")).fails(409, "Conflict")
	}},
	{"takes YAML", func(e *env) {
		body := "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata:\n  name: a\nspec:\n  title: From YAML\n"
		if o := e.patch(folders.in(e.ns, "a"), typeApply, body, query("fieldManager", "one")).is(201).object; str(o, "spec",
			"title") != "From YAML" {
			e.Errorf("spec = %v", o["spec"])
		}
	}},
	{"stores nothing in a dry run", func(e *env) {
		e.applyAs("one", "a", object{"title": "A"}, query("dryRun", "All")).is(201)
		e.get(folders.in(e.ns, "a")).fails(404, "NotFound")
	}},
	{"does not write status", func(e *env) {
		body := set(repositories.named("a"), "x", "status", "message")
		o := e.patch(repositories.in(e.ns, "a"), typeApply, body, query("fieldManager", "one")).is(201).object
		if has(o, "status", "message") {
			e.Errorf("status = %v", o["status"])
		}
	}},
	{"is strict when asked", func(e *env) {
		body := set(folders.named("a"), 1, "bogus")
		e.patch(folders.in(e.ns, "a"), typeApply, body, query("fieldManager", "one", "fieldValidation", "Strict")).refused().says("bogus")
	}},
}
