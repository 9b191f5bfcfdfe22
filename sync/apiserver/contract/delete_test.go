package contract

var deleteCases = []testCase{
	{"removes at once", func(e *env) {
		o := e.create(folders, folders.named("a"))
		a := e.delete(folders.in(e.ns, "a"), nil).is(200)
		if a.str("kind") != "Status" || a.str("status") != "Success" || a.str("details", "name") != "a" ||
			a.str("details", "uid") != uid(o) || a.str("details", "kind") != "folders" || a.str("details", "group") != folders.group {
			e.Errorf("answered %s", a.raw)
		}
		e.get(folders.in(e.ns, "a")).fails(404, "NotFound")
		e.delete(folders.in(e.ns, "a"), nil).fails(404, "NotFound")
	}},
	{"deletes what a selector selects", func(e *env) {
		for _, name := range []string{"a", "b"} {
			e.create(folders, labeled(folders.named(name), "gone", "1"))
		}
		e.create(folders, folders.named("c"))
		a := e.delete(folders.in(e.ns), nil, query("labelSelector", "gone=1")).is(200)
		if a.str("kind") != "FolderList" || len(list(a.object, "items")) != 2 {
			e.Errorf("answered %s", a.raw)
		}
		e.get(folders.in(e.ns, "a")).fails(404, "NotFound")
		e.get(folders.in(e.ns, "c")).is(200)
		e.delete(folders.in(e.ns), nil, query("labelSelector", "=")).fails(400, "BadRequest")
	}},
	{"frees the name", func(e *env) {
		was := e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), nil).is(200)
		if o := e.create(folders, folders.named("a")); uid(o) == uid(was) || generation(o) != 1 {
			e.Errorf("metadata = %v", o["metadata"])
		}
	}},
	{"checks preconditions", func(e *env) {
		o := e.create(folders, folders.named("a"))
		path := folders.in(e.ns, "a")
		pre := func(u, v string) object {
			p := object{}
			if u != "" {
				p["uid"] = u
			}
			if v != "" {
				p["resourceVersion"] = v
			}
			return object{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": p}
		}
		e.delete(path, pre("11111111-2222-3333-4444-555555555555", "")).fails(409, "Conflict").says("the UID in the precondition")
		e.delete(path, pre("", "1")).fails(409, "Conflict").says("the ResourceVersion in the precondition")
		stale := version(o)
		e.put(path, set(o, "New", "spec", "title")).is(200)
		e.delete(path, pre(uid(o), stale)).fails(409, "Conflict")
		e.delete(path, pre(uid(o), version(e.read(folders, "a")))).is(200)
		e.get(path).fails(404, "NotFound")
	}},
	{"spares a namesake", func(e *env) {
		old := e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), nil).is(200)
		e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), object{"preconditions": object{"uid": uid(old)}}).fails(409, "Conflict")
		e.read(folders, "a")
	}},
	{"waits for finalizers", func(e *env) {
		was := e.create(folders, finalized(folders.named("a"), "example.com/one", "example.com/two"))
		path := folders.in(e.ns, "a")
		o := e.delete(path, nil).is(200).object
		if o["kind"] != "Folder" || !has(o, "metadata", "deletionTimestamp") || num(o, "metadata", "deletionGracePeriodSeconds") != 0 ||
			version(o) == version(was) {
			e.Errorf("answered %v", o)
		}
		if generation(o) != 2 {
			e.Errorf("generation = %d", generation(o))
		}
		o = e.read(folders, "a")
		o = e.put(path, finalized(o, "example.com/two")).is(200).object
		if !has(o, "metadata", "deletionTimestamp") {
			e.Error("deletionTimestamp is gone")
		}
		e.put(path, finalized(o)).is(200)
		e.get(path).fails(404, "NotFound")
	}},
	{"ends with the last finalizer", func(e *env) {
		for i, end := range []func(path string){
			func(p string) { e.patch(p, typeMerge, object{"metadata": object{"finalizers": nil}}).is(200) },
			func(p string) {
				e.patch(p, typeJSONPatch, []any{object{"op": "remove", "path": "/metadata/finalizers"}}).is(200)
			},
		} {
			n := string(rune('a' + i))
			e.create(folders, finalized(folders.named(n), "example.com/hold"))
			e.delete(folders.in(e.ns, n), nil).is(200)
			end(folders.in(e.ns, n))
			e.get(folders.in(e.ns, n)).fails(404, "NotFound")
		}
	}},
	{"does nothing more to what is going", func(e *env) {
		e.create(folders, finalized(folders.named("a"), "example.com/hold"))
		path := folders.in(e.ns, "a")
		o := e.delete(path, nil).is(200).object
		again := e.delete(path, nil).is(200).object
		if str(o, "metadata", "deletionTimestamp") != str(again, "metadata", "deletionTimestamp") || version(o) != version(again) {
			e.Errorf("a second delete changed %v to %v", o["metadata"], again["metadata"])
		}
		e.post(folders.in(e.ns), folders.named("a")).fails(409, "AlreadyExists")
	}},
	{"lets what is going change, but not come back", func(e *env) {
		e.create(folders, finalized(folders.named("a"), "example.com/hold"))
		path := folders.in(e.ns, "a")
		o := e.delete(path, nil).is(200).object
		e.put(path, finalized(clone(o), "example.com/hold", "example.com/new")).fails(422, "Invalid").blames("metadata.finalizers")
		back := clone(o)
		delete(meta(back), "deletionTimestamp")
		delete(meta(back), "deletionGracePeriodSeconds")
		if got := e.put(path, set(back, "New", "spec", "title")).is(200).object; !has(got, "metadata", "deletionTimestamp") ||
			str(got, "spec", "title") != "New" {
			e.Errorf("answered %v", got)
		}
	}},
	{"stores nothing in a dry run", func(e *env) {
		e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), nil, query("dryRun", "All")).is(200)
		e.delete(folders.in(e.ns, "a"), object{"dryRun": []any{"All"}}).is(200)
		e.read(folders, "a")
	}},
	{"takes a propagation policy", func(e *env) {
		for i, policy := range []string{"Background", "Orphan"} {
			n := string(rune('a' + i))
			e.create(folders, folders.named(n))
			e.delete(folders.in(e.ns, n), object{"propagationPolicy": policy}).is(200)
			if policy == "Background" { // what becomes of Orphan is its garbage collector's
				e.get(folders.in(e.ns, n)).fails(404, "NotFound")
			}
		}
		e.create(folders, folders.named("z"))
		e.delete(folders.in(e.ns, "z"), object{"propagationPolicy": "Sideways"}).fails(422, "Invalid")
	}},
	{"takes options in the query", func(e *env) {
		e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), nil, query("gracePeriodSeconds", "0", "propagationPolicy", "Background")).is(200)
		e.get(folders.in(e.ns, "a")).fails(404, "NotFound")
	}},
	{"refuses options that are none", func(e *env) {
		e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), `{"preconditions":`).fails(400, "BadRequest")
		e.delete(folders.in(e.ns, "a"), folders.named("a")).fails(400, "BadRequest")
		e.read(folders, "a")
	}},
}
