package contract

import "strings"

var statusCases = []testCase{
	{"is dropped at create", func(e *env) {
		if o := e.create(repositories, set(repositories.named("a"), "x", "status", "message")); has(o, "status", "message") {
			e.Errorf("status = %v", o["status"])
		}
	}},
	{"is left alone by updates and patches", func(e *env) {
		o := e.create(repositories, repositories.named("a"))
		o = e.put(repositories.in(e.ns, "a", "status"), set(o, "one", "status", "message")).is(200).object
		o = e.put(repositories.in(e.ns, "a"), set(clone(o), "two", "status", "message")).is(200).object
		if str(o, "status", "message") != "one" {
			e.Errorf("status = %v after an update", o["status"])
		}
		o = e.patch(repositories.in(e.ns, "a"), typeMerge, object{"status": object{"message": "three"}}).is(200).object
		if str(o, "status", "message") != "one" {
			e.Errorf("status = %v after a patch", o["status"])
		}
	}},
	{"is all that its subresource changes", func(e *env) {
		was := e.create(repositories, labeled(repositories.named("a"), "x", "1"))
		o := set(clone(was), object{"healthy": true}, "status", "health")
		set(o, "changed", "spec", "title")
		labeled(o, "x", "2")
		got := e.put(repositories.in(e.ns, "a", "status"), o).is(200).object
		if at(got, "status", "health", "healthy") != true || str(got, "spec", "title") != "Title of a" ||
			str(got, "metadata", "labels", "x") != "1" {
			e.Errorf("answered %v", got)
		}
		if generation(got) != 1 || version(got) == version(was) {
			e.Errorf("generation %d, version %s", generation(got), version(got))
		}
	}},
	{"has versions too", func(e *env) {
		was := e.create(repositories, repositories.named("a"))
		path := repositories.in(e.ns, "a", "status")
		got := e.put(path, set(clone(was), "one", "status", "message")).is(200).object
		e.put(path, set(clone(was), "two", "status", "message")).fails(409, "Conflict")
		if again := e.put(path, got).is(200).object; version(again) != version(got) {
			e.Error("an update that changes nothing made a new version")
		}
	}},
	{"is read with the object", func(e *env) {
		e.create(repositories, repositories.named("a"))
		if o := e.get(repositories.in(e.ns, "a", "status")).is(200).object; o["kind"] != "Repository" || str(o, "spec", "title") != "Title of a" {
			e.Errorf("answered %v", o)
		}
		e.get(repositories.in(e.ns, "b", "status")).fails(404, "NotFound")
	}},
	{"takes merge patches", func(e *env) {
		e.create(repositories, repositories.named("a"))
		path := repositories.in(e.ns, "a", "status")
		o := e.patch(path, typeMerge, object{"status": object{"sync": object{"state": "working"}}, "spec": object{"title": "x"}}).is(200).object
		if str(o, "status", "sync", "state") != "working" || str(o, "spec", "title") != "Title of a" || generation(o) != 1 {
			e.Errorf("answered %v", o)
		}
	}},
	{"takes JSON patches with add", func(e *env) {
		e.create(repositories, repositories.named("a"))
		path := repositories.in(e.ns, "a", "status")
		e.patch(path, typeJSONPatch, []any{object{"op": "replace", "path": "/status/sync", "value": object{}}}).fails(422, "Invalid")
		e.patch(path, typeJSONPatch, []any{object{"op": "add", "path": "/status", "value": object{"sync": object{"state": ""}}}}).is(200)
		o := e.patch(path, typeJSONPatch, []any{
			object{"op": "add", "path": "/status/sync/state", "value": "success"},
			object{"op": "add", "path": "/status/sync/lastRef", "value": "0123"},
			object{"op": "replace", "path": "/status/sync/state", "value": "warning"}}).is(200).object
		if str(o, "status", "sync", "state") != "warning" || str(o, "status", "sync", "lastRef") != "0123" {
			e.Errorf("status = %v", o["status"])
		}
	}},
	{"takes apply", func(e *env) {
		e.create(repositories, repositories.named("a"))
		path := repositories.in(e.ns, "a", "status")
		body := object{"apiVersion": repositories.apiVersion(), "kind": "Repository", "metadata": object{"name": "a"},
			"status": object{"message": "ok"}}
		o := e.patch(path, typeApply, body, query("fieldManager", "s")).is(200).object
		if str(o, "status", "message") != "ok" || str(o, "spec", "title") != "Title of a" {
			e.Errorf("answered %v", o)
		}
		for _, m := range list(o, "metadata", "managedFields") {
			if m := m.(object); m["manager"] == "s" && (m["subresource"] != "status" || m["operation"] != "Apply") {
				e.Errorf("managedFields = %v", m)
			}
		}
	}},
	{"keeps managers of status and spec apart", func(e *env) {
		o := e.post(repositories.in(e.ns), repositories.named("a"), query("fieldManager", "m")).is(201).object
		o = e.put(repositories.in(e.ns, "a", "status"), set(o, "x", "status", "message"), query("fieldManager", "m")).is(200).object
		subs := map[string]bool{}
		for _, m := range list(o, "metadata", "managedFields") {
			subs[str(m.(object), "manager")+"/"+str(m.(object), "subresource")] = true
		}
		if len(subs) != 2 || !subs["m/"] || !subs["m/status"] {
			e.Errorf("managers = %v", subs)
		}
	}},
	{"shows no secure value that it was sent with", func(e *env) {
		was := e.create(repositories, repositories.named("a"))
		path := repositories.in(e.ns, "a", "status")
		ops := []any{
			object{"op": "test", "path": "/metadata/resourceVersion", "value": version(was)},
			object{"op": "add", "path": "/status", "value": object{"token": object{"lastUpdated": 1}}},
			object{"op": "add", "path": "/secure", "value": object{}},
			object{"op": "add", "path": "/secure/token", "value": object{"create": "canary-7d21"}}}
		got := e.patch(path, typeJSONPatch, ops).is(200)
		if strings.Contains(string(got.raw), "canary-7d21") || str(got.object, "secure", "token", "create") != "" {
			e.Errorf("answered %s", got.raw)
		}
		if num(got.object, "status", "token", "lastUpdated") != 1 || generation(got.object) != generation(was) {
			e.Errorf("answered %v", got.object)
		}
		if raw := e.get(repositories.in(e.ns, "a")).is(200).raw; strings.Contains(string(raw), "canary-7d21") {
			e.Errorf("reads %s", raw)
		}
	}},
	{"is part of jobs", func(e *env) {
		o := e.create(jobs, set(jobs.named("a"), "pending", "status", "state"))
		if str(o, "status", "state") != "pending" {
			e.Errorf("status = %v", o["status"])
		}
		o = e.put(jobs.in(e.ns, "a"), set(o, "working", "status", "state")).is(200).object
		if str(o, "status", "state") != "working" {
			e.Errorf("status = %v", o["status"])
		}
		e.get(jobs.in(e.ns, "a", "status")).is(404)
		e.put(jobs.in(e.ns, "a", "status"), o).is(404)
	}},
	{"cannot be created or deleted", func(e *env) {
		e.create(repositories, repositories.named("a"))
		e.delete(repositories.in(e.ns, "a", "status"), nil).fails(405, "MethodNotAllowed")
		e.post(repositories.in(e.ns, "a", "status"), repositories.named("a")).fails(405, "MethodNotAllowed")
		e.put(repositories.in(e.ns, "b", "status"), repositories.named("b")).fails(404, "NotFound")
	}},
}
