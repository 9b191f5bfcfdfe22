package contract

import (
	"fmt"
	"net/http"
	"sync"
)

var updateCases = []testCase{
	{"changes the object and its version", func(e *env) {
		was := e.create(folders, folders.named("a"))
		o := set(clone(was), "New", "spec", "title")
		got := e.put(folders.in(e.ns, "a"), o).is(200).object
		if version(got) == version(was) || uid(got) != uid(was) || str(got, "spec", "title") != "New" ||
			str(got, "metadata", "creationTimestamp") != str(was, "metadata", "creationTimestamp") {
			e.Errorf("answered %v", got)
		}
		if !sameBut(got, e.read(folders, "a")) {
			e.Error("a read gives another object than the update did")
		}
	}},
	{"replaces the whole object", func(e *env) {
		o := labeled(folders.named("a"), "x", "1")
		set(o, "d", "spec", "description")
		got := e.create(folders, o)
		delete(spec(got), "description")
		delete(meta(got), "labels")
		got = e.put(folders.in(e.ns, "a"), got).is(200).object
		if has(got, "spec", "description") || has(got, "metadata", "labels") {
			e.Errorf("answered %v", got)
		}
	}},
	{"refuses a stale version", func(e *env) {
		was := e.create(folders, folders.named("a"))
		e.put(folders.in(e.ns, "a"), set(clone(was), "First", "spec", "title")).is(200)
		a := e.put(folders.in(e.ns, "a"), set(clone(was), "Second", "spec", "title")).fails(409, "Conflict").
			says(`Operation cannot be fulfilled on folders.folder.grafana.app "a"`, "the object has been modified")
		if a.str("details", "name") != "a" || a.str("details", "kind") != "folders" {
			e.Errorf("details = %v", a.object["details"])
		}
		if got := e.read(folders, "a"); str(got, "spec", "title") != "First" {
			e.Errorf("title = %q", str(got, "spec", "title"))
		}
	}},
	{"wants a version", func(e *env) {
		e.create(folders, folders.named("a"))
		e.put(folders.in(e.ns, "a"), folders.named("a")).fails(422, "Invalid").blames("metadata.resourceVersion")
	}},
	{"refuses a version that is no number", func(e *env) {
		o := e.create(folders, folders.named("a"))
		meta(o)["resourceVersion"] = "abc"
		e.put(folders.in(e.ns, "a"), o).refused()
	}},
	{"refuses another uid", func(e *env) {
		o := e.create(folders, folders.named("a"))
		meta(o)["uid"] = "11111111-2222-3333-4444-555555555555"
		e.put(folders.in(e.ns, "a"), o).fails(409, "Conflict").says("UID in precondition")
		delete(meta(o), "uid")
		e.put(folders.in(e.ns, "a"), o).is(200)
	}},
	{"does not create", func(e *env) {
		e.put(folders.in(e.ns, "a"), folders.named("a")).fails(404, "NotFound")
		o := e.create(folders, folders.named("b"))
		e.delete(folders.in(e.ns, "b"), nil).is(200)
		e.put(folders.in(e.ns, "b"), o).fails(404, "NotFound")
	}},
	{"does not touch a namesake", func(e *env) {
		old := e.create(folders, folders.named("a"))
		e.delete(folders.in(e.ns, "a"), nil).is(200)
		e.create(folders, folders.named("a"))
		e.put(folders.in(e.ns, "a"), old).fails(409, "Conflict")
	}},
	{"refuses another name", func(e *env) {
		o := e.create(folders, folders.named("a"))
		meta(o)["name"] = "b"
		e.put(folders.in(e.ns, "a"), o).fails(400, "BadRequest").says("does not match the name on the URL")
	}},
	{"refuses another namespace", func(e *env) {
		o := e.create(folders, folders.named("a"))
		meta(o)["namespace"] = "elsewhere"
		e.put(folders.in(e.ns, "a"), o).fails(400, "BadRequest").says("namespace")
	}},
	{"refuses another kind", func(e *env) {
		o := e.create(folders, folders.named("a"))
		o["kind"] = "Job"
		e.put(folders.in(e.ns, "a"), o).fails(422, "Invalid").blames("kind")
	}},
	{"keeps the version when nothing changes", func(e *env) {
		was := e.create(folders, folders.named("a"))
		got := e.put(folders.in(e.ns, "a"), was).is(200).object
		if !sameBut(got, was) {
			e.Errorf("answered %v, want %v", got, was)
		}
		if version(e.read(folders, "a")) != version(was) {
			e.Error("the version changed")
		}
	}},
	{"counts changes of the spec, not of metadata", func(e *env) {
		for _, k := range []kind{folders, dashboards, repositories, sources} {
			o := e.create(k, k.named("a"))
			o = e.put(k.in(e.ns, "a"), labeled(o, "x", "1")).is(200).object
			if generation(o) != 1 {
				e.Errorf("%s: generation %d after a change of labels", k.plural, generation(o))
			}
			if o = set(o, "New", "spec", "title"); k.plural == sources.plural { // whose definition has no titles
				o = set(o, "7m", "spec", "interval")
			}
			o = e.put(k.in(e.ns, "a"), o).is(200).object
			if generation(o) != 2 {
				e.Errorf("%s: generation %d after a change of the spec", k.plural, generation(o))
			}
			o = e.put(k.in(e.ns, "a"), set(o, 77, "metadata", "generation")).is(200).object
			if generation(o) != 2 {
				e.Errorf("%s: generation %d, as the client wanted", k.plural, generation(o))
			}
		}
	}},
	{"does not count metadata of jobs", func(e *env) {
		o := e.create(jobs, jobs.named("a"))
		if o = e.put(jobs.in(e.ns, "a"), labeled(o, "x", "1")).is(200).object; generation(o) != 1 {
			e.Errorf("generation = %d", generation(o))
		}
	}},
	{"keeps what only the server sets", func(e *env) {
		was := e.create(folders, folders.named("a"))
		o := set(clone(was), "2001-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		e.put(folders.in(e.ns, "a"), o).fails(422, "Invalid").blames("metadata.deletionTimestamp")
		o = set(clone(was), "2001-01-01T00:00:00Z", "metadata", "creationTimestamp")
		if got := e.put(folders.in(e.ns, "a"), o).is(200).object; !sameBut(got, was) {
			e.Errorf("answered %v, want %v", got, was)
		}
		o = set(clone(was), "New", "spec", "title")
		for _, m := range []string{"creationTimestamp", "uid", "generation", "managedFields"} {
			delete(meta(o), m)
		}
		got := e.put(folders.in(e.ns, "a"), o).is(200).object
		if uid(got) != uid(was) || generation(got) != 2 || str(got, "metadata", "creationTimestamp") != str(was, "metadata",
			"creationTimestamp") {
			e.Errorf("metadata = %v", got["metadata"])
		}
	}},
	{"stores nothing in a dry run", func(e *env) {
		was := e.create(folders, folders.named("a"))
		got := e.put(folders.in(e.ns, "a"), set(clone(was), "New", "spec", "title"), query("dryRun", "All")).is(200).object
		if str(got, "spec", "title") != "New" || generation(got) != 2 {
			e.Errorf("answered %v", got)
		}
		if !sameBut(e.read(folders, "a"), was) {
			e.Error("the dry run changed the object")
		}
	}},
	{"moves the fields that it changes to its manager", func(e *env) {
		o := e.post(folders.in(e.ns), folders.named("a"), query("fieldManager", "one")).is(201).object
		o = e.put(folders.in(e.ns, "a"), set(o, "New", "spec", "title"), query("fieldManager", "two")).is(200).object
		owner := map[string]bool{}
		for _, m := range list(o, "metadata", "managedFields") {
			if has(m.(object), "fieldsV1", "f:spec", "f:title") {
				owner[str(m.(object), "manager")] = true
			}
		}
		if len(owner) != 1 || !owner["two"] {
			e.Errorf("the title belongs to %v", owner)
		}
	}},
	{"resets managers when asked", func(e *env) {
		o := e.create(folders, folders.named("a"))
		meta(o)["managedFields"] = []any{object{}}
		if o = e.put(folders.in(e.ns, "a"), o).is(200).object; has(o, "metadata", "managedFields") {
			e.Errorf("managedFields = %v", at(o, "metadata", "managedFields"))
		}
	}},
	{"lets one of two writers win", func(e *env) {
		o := e.create(folders, folders.named("a"))
		const writers = 8
		codes := make([]int, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				r := e.request(http.MethodPut, folders.in(e.ns, "a"), set(clone(o), fmt.Sprint(i), "spec", "title"))
				if resp, err := e.target.HTTP.Do(r); err == nil {
					codes[i] = resp.StatusCode
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		count := map[int]int{}
		for _, c := range codes {
			count[c]++
		}
		if count[200] != 1 || count[409] != writers-1 {
			e.Errorf("answers: %v", count)
		}
		if got := e.read(folders, "a"); generation(got) != 2 {
			e.Errorf("generation = %d after one change", generation(got))
		}
	}},
	{"loses nothing between many writers", func(e *env) {
		e.create(folders, set(folders.named("a"), "0", "spec", "n"))
		const writers, each = 4, 5
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for done := 0; done < each; {
					o := e.get(folders.in(e.ns, "a"))
					var n int
					fmt.Sscan(o.str("spec", "n"), &n)
					switch a := e.put(folders.in(e.ns, "a"), set(o.object, fmt.Sprint(n+1), "spec", "n")); a.code {
					case 200:
						done++
					case 409:
					default:
						e.Errorf("answered %d: %s", a.code, a.raw)
						return
					}
				}
			})
		}
		wg.Wait()
		if got := str(e.read(folders, "a"), "spec", "n"); got != fmt.Sprint(writers*each) {
			e.Errorf("counted to %s, want %d", got, writers*each)
		}
	}},
	{"needs a name", func(e *env) {
		e.put(folders.in(e.ns), folders.named("a")).absent()
	}},
}
