package contract

import (
	"fmt"
	"strings"
	"sync"
)

var patchCases = []testCase{
	{"merges", func(e *env) {
		was := e.create(folders, set(labeled(folders.named("a"), "keep", "1", "drop", "1"), "d", "spec", "description"))
		o := e.patch(folders.in(e.ns, "a"), typeMerge, object{
			"metadata": object{"labels": object{"drop": nil, "new": "2"}}, "spec": object{"title": "New"}}).is(200).object
		if str(o, "spec", "title") != "New" || str(o, "spec", "description") != "d" || str(o, "metadata", "labels", "keep") != "1" ||
			str(o, "metadata", "labels", "new") != "2" || has(o, "metadata", "labels", "drop") {
			e.Errorf("answered %v", o)
		}
		if generation(o) != 2 || version(o) == version(was) {
			e.Errorf("generation %d, version %s", generation(o), version(o))
		}
	}},
	{"replaces lists when merging", func(e *env) {
		e.create(dashboards, set(dashboards.named("a"), []any{1, 2, 3}, "spec", "tags"))
		o := e.patch(dashboards.in(e.ns, "a"), typeMerge, object{"spec": object{"tags": []any{4}}}).is(200).object
		if l := list(o, "spec", "tags"); len(l) != 1 || l[0] != 4.0 {
			e.Errorf("tags = %v", l)
		}
	}},
	{"applies JSON patches", func(e *env) {
		e.create(dashboards, set(dashboards.named("a"), []any{"x", "z"}, "spec", "tags"))
		o := e.patch(dashboards.in(e.ns, "a"), typeJSONPatch, []any{
			object{"op": "test", "path": "/spec/title", "value": "Title of a"},
			object{"op": "add", "path": "/spec/tags/1", "value": "y"},
			object{"op": "add", "path": "/spec/tags/-", "value": "end"},
			object{"op": "replace", "path": "/spec/title", "value": "New"},
			object{"op": "add", "path": "/spec/a~1b", "value": 1},
			object{"op": "copy", "from": "/spec/title", "path": "/spec/copy"},
			object{"op": "move", "from": "/spec/copy", "path": "/spec/moved"},
			object{"op": "remove", "path": "/spec/tags/0"}}).is(200).object
		if l := list(o, "spec", "tags"); len(l) != 3 || l[0] != "y" || l[2] != "end" {
			e.Errorf("tags = %v", l)
		}
		if str(o, "spec", "title") != "New" || num(o, "spec", "a/b") != 1 || str(o, "spec", "moved") != "New" || has(o, "spec", "copy") {
			e.Errorf("spec = %v", o["spec"])
		}
	}},
	{"fails a JSON patch as a whole", func(e *env) {
		was := e.create(folders, folders.named("a"))
		path := folders.in(e.ns, "a")
		for _, p := range [][]any{
			{object{"op": "replace", "path": "/spec/title", "value": "x"}, object{"op": "test", "path": "/spec/title", "value": "y"}},
			{object{"op": "remove", "path": "/spec/absent"}},
			{object{"op": "add", "path": "/spec/absent/below", "value": "x"}},
		} {
			e.patch(path, typeJSONPatch, p).fails(422, "Invalid")
		}
		if !sameBut(e.read(folders, "a"), was) {
			e.Error("a failed patch changed the object")
		}
	}},
	{"adds what is replaced and was not there", func(e *env) {
		e.create(folders, folders.named("a"))
		o := e.patch(folders.in(e.ns, "a"), typeJSONPatch, []any{object{"op": "replace", "path": "/spec/absent", "value": "x"}}).is(200).object
		if str(o, "spec", "absent") != "x" {
			e.Errorf("spec = %v", o["spec"])
		}
	}},
	{"refuses what is no patch", func(e *env) {
		e.create(folders, folders.named("a"))
		path := folders.in(e.ns, "a")
		e.patch(path, typeJSONPatch, `{"op":"add"}`).fails(400, "BadRequest")
		e.patch(path, typeJSONPatch, `[{"op":`).fails(400, "BadRequest")
		e.patch(path, typeMerge, `{"spec":`).fails(400, "BadRequest")
		e.patch(path, typeMerge, `[]`).fails(400, "BadRequest")
	}},
	{"knows no strategic merge of these kinds", func(e *env) {
		e.create(folders, folders.named("a"))
		e.patch(folders.in(e.ns, "a"), typeStrategic, object{"spec": object{"title": "x"}}).fails(415, "UnsupportedMediaType")
		e.patch(folders.in(e.ns, "a"), typeJSON, object{"spec": object{"title": "x"}}).fails(415, "UnsupportedMediaType")
	}},
	{"needs the object", func(e *env) {
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": object{"title": "x"}}).fails(404, "NotFound")
		e.patch(folders.in(e.ns, "a"), typeJSONPatch, []any{}).fails(404, "NotFound")
	}},
	{"keeps the version when nothing changes", func(e *env) {
		was := e.create(folders, folders.named("a"))
		for _, a := range []answer{
			e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": object{"title": "Title of a"}}),
			e.patch(folders.in(e.ns, "a"), typeMerge, object{}),
			e.patch(folders.in(e.ns, "a"), typeJSONPatch, []any{object{"op": "replace", "path": "/spec/title", "value": "Title of a"}}),
			e.patch(folders.in(e.ns, "a"), typeJSONPatch, []any{}),
		} {
			if a.is(200); version(a.object) != version(was) {
				e.Errorf("%s made version %s of %s", a.what, version(a.object), version(was))
			}
		}
	}},
	{"checks a version that it names", func(e *env) {
		was := e.create(folders, folders.named("a"))
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": object{"title": "x"}}).is(200)
		stale := object{"metadata": object{"resourceVersion": version(was)}, "spec": object{"title": "y"}}
		e.patch(folders.in(e.ns, "a"), typeMerge, stale).fails(409, "Conflict")
		e.patch(folders.in(e.ns, "a"), typeJSONPatch, []any{
			object{"op": "test", "path": "/metadata/resourceVersion", "value": version(was)},
			object{"op": "replace", "path": "/spec/title", "value": "y"}}).fails(422, "Invalid")
		meta(stale)["resourceVersion"] = version(e.read(folders, "a"))
		e.patch(folders.in(e.ns, "a"), typeMerge, stale).is(200)
	}},
	{"cannot change the identity", func(e *env) {
		e.create(folders, folders.named("a"))
		path := folders.in(e.ns, "a")
		e.patch(path, typeMerge, object{"metadata": object{"name": "b"}}).fails(400, "BadRequest")
		e.patch(path, typeMerge, object{"metadata": object{"namespace": "b"}}).fails(400, "BadRequest")
		e.patch(path, typeMerge, object{"metadata": object{"uid": "11111111-2222-3333-4444-555555555555"}}).refused()
		e.patch(path, typeMerge, object{"kind": "Dashboard"}).refused()
		e.patch(path, typeMerge, object{"apiVersion": "folder.grafana.app/v1beta1"}).refused()
	}},
	{"leaves valid metadata", func(e *env) {
		e.create(folders, folders.named("a"))
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"metadata": object{"labels": object{"bad key": "v"}}}).fails(422,
			"Invalid").blames("metadata.labels")
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": "text"}).fails(422, "Invalid").blames("spec")
	}},
	{"stores nothing in a dry run", func(e *env) {
		was := e.create(folders, folders.named("a"))
		o := e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": object{"title": "x"}}, query("dryRun", "All")).is(200).object
		if str(o, "spec", "title") != "x" || !sameBut(e.read(folders, "a"), was) {
			e.Error("the dry run was none")
		}
	}},
	{"is strict when asked", func(e *env) {
		e.create(folders, folders.named("a"))
		e.patch(folders.in(e.ns, "a"), typeMerge, `{"spec":{"title":"x","title":"y"}}`, query("fieldValidation", "Strict")).
			fails(422, "Invalid").says(`duplicate field "spec.title"`)
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"bogus": 1}, query("fieldValidation", "Strict")).
			fails(422, "Invalid").says(`unknown field "bogus"`)
	}},
	{"answers with the object after many at once", func(e *env) {
		e.create(folders, folders.named("a"))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				key := fmt.Sprintf("k%d", i)
				if a := e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": object{key: i}}); a.code != 200 ||
					num(a.object, "spec", key) != int64(i) {
					e.Errorf("answered %d: %s", a.code, a.raw)
				}
			})
		}
		wg.Wait()
		if o := e.read(folders, "a"); len(spec(o)) != 9 || generation(o) != 9 {
			e.Errorf("%d members in generation %d", len(spec(o)), generation(o))
		}
	}},
	{"refuses a body beyond 3 MiB", func(e *env) {
		e.create(folders, folders.named("a"))
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"spec": object{"text": strings.Repeat("x", 3<<20)}}).fails(413, "RequestEntityTooLarge")
	}},
	{"needs a name", func(e *env) {
		e.patch(folders.in(e.ns), typeMerge, object{}).absent()
	}},
}
