package contract

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

var createCases = []testCase{
	{"fills in metadata", func(e *env) {
		before := time.Now().Add(-2 * time.Second)
		o := e.create(folders, folders.named("a"))
		created, err := time.Parse(time.RFC3339, str(o, "metadata", "creationTimestamp"))
		if err != nil || created.Before(before) || created.After(time.Now().Add(2*time.Second)) {
			e.Errorf("creationTimestamp = %q", str(o, "metadata", "creationTimestamp"))
		}
		if uid(o) == "" || version(o) == "" || generation(o) != 1 || str(o, "metadata", "namespace") != e.ns {
			e.Errorf("metadata = %v", o["metadata"])
		}
		if o["apiVersion"] != folders.apiVersion() || o["kind"] != "Folder" {
			e.Errorf("answered as %v %v", o["apiVersion"], o["kind"])
		}
		if !sameBut(o, e.read(folders, "a")) {
			e.Error("a read gives another object than the create did")
		}
	}},
	{"records the manager of fields", func(e *env) {
		o := e.post(folders.in(e.ns), folders.named("a"), query("fieldManager", "tester")).is(201).object
		entries := list(o, "metadata", "managedFields")
		if len(entries) != 1 {
			e.Fatalf("managedFields = %v", entries)
		}
		m := entries[0].(object)
		if m["manager"] != "tester" || m["operation"] != "Update" || m["apiVersion"] != folders.apiVersion() ||
			m["fieldsType"] != "FieldsV1" || m["time"] == nil || !has(m, "fieldsV1", "f:spec", "f:title") {
			e.Errorf("managedFields = %v", m)
		}
	}},
	{"names the manager after the user agent", func(e *env) {
		o := e.post(folders.in(e.ns), folders.named("a"), header("User-Agent", "harbour/1.2 (linux)")).is(201).object
		if m := list(o, "metadata", "managedFields"); len(m) != 1 || m[0].(object)["manager"] != "harbour" {
			e.Errorf("managedFields = %v", m)
		}
	}},
	{"ignores what only the server sets", func(e *env) {
		o := folders.named("a")
		set(o, "11111111-2222-3333-4444-555555555555", "metadata", "uid")
		set(o, "2001-01-01T00:00:00Z", "metadata", "creationTimestamp")
		set(o, 77, "metadata", "generation")
		set(o, "2001-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		set(o, "/x", "metadata", "selfLink")
		got := e.create(folders, o)
		if uid(got) == uid(o) || generation(got) != 1 || strings.HasPrefix(str(got, "metadata", "creationTimestamp"), "2001") ||
			has(got, "metadata", "deletionTimestamp") || has(got, "metadata", "selfLink") {
			e.Errorf("metadata = %v", got["metadata"])
		}
	}},
	{"keeps labels, annotations, finalizers and owners", func(e *env) {
		o := finalized(labeled(folders.named("a"), "tier", "edge"), "example.com/hold")
		set(o, object{"note": "ü"}, "metadata", "annotations")
		set(o, []any{object{"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "u-1"}}, "metadata", "ownerReferences")
		got := e.create(folders, o)
		for _, m := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
			if !sameBut(object{"metadata": object{}, "v": meta(o)[m]}, object{"metadata": object{}, "v": meta(got)[m]}) {
				e.Errorf("%s = %v, want %v", m, meta(got)[m], meta(o)[m])
			}
		}
	}},
	{"refuses a second object of the name", func(e *env) {
		e.create(folders, folders.named("a"))
		a := e.post(folders.in(e.ns), folders.named("a")).fails(409, "AlreadyExists").
			says(`folders.folder.grafana.app "a" already exists`)
		if a.str("details", "name") != "a" || a.str("details", "group") != folders.group || a.str("details", "kind") != "folders" {
			e.Errorf("details = %v", a.object["details"])
		}
	}},
	{"takes the same name in another namespace", func(e *env) {
		a := e.create(folders, folders.named("a"))
		b := e.post(folders.in(e.ns+"b"), folders.named("a")).is(201).object
		if uid(a) == uid(b) {
			e.Error("two objects have one uid")
		}
	}},
	{"makes a name from generateName", func(e *env) {
		o := folders.named("")
		meta(o)["generateName"] = "site-"
		seen := map[string]bool{}
		for range 5 {
			got := e.create(folders, o)
			if !regexp.MustCompile(`^site-[bcdfghjklmnpqrstvwxz2456789]{5}$`).MatchString(name(got)) || seen[name(got)] {
				e.Errorf("name = %q", name(got))
			}
			if str(got, "metadata", "generateName") != "site-" {
				e.Error("generateName is gone")
			}
			seen[name(got)] = true
		}
	}},
	{"prefers name to generateName", func(e *env) {
		o := folders.named("a")
		meta(o)["generateName"] = "site-"
		if got := e.create(folders, o); name(got) != "a" {
			e.Errorf("name = %q", name(got))
		}
	}},
	{"wants a name", func(e *env) {
		e.post(folders.in(e.ns), folders.named("")).fails(422, "Invalid").blames("metadata.name")
	}},
	{"refuses invalid names", func(e *env) {
		// Folders and dashboards are named by Grafana's UIDs, which the embedded
		// API lets be what they are; the other kinds have names as everywhere.
		for _, n := range []string{"Upper", "under_score", "-dash", "dot.", strings.Repeat("n", 254), "slash/in", "sp ace", "ü"} {
			e.post(sources.in(e.ns), sources.named(n)).fails(422, "Invalid").blames("metadata.name")
		}
		for _, n := range []string{strings.Repeat("n", 254), "slash/in", "sp ace", "ü", ".."} {
			e.post(folders.in(e.ns), folders.named(n)).fails(422, "Invalid").blames("metadata.name")
		}
		for _, k := range []kind{folders, sources} {
			e.create(k, k.named(strings.Repeat("n", 253)))
			e.create(k, k.named("dots.and-dashes.0"))
		}
	}},
	{"refuses invalid labels and annotations", func(e *env) {
		e.post(folders.in(e.ns), labeled(folders.named("a"), "bad key", "v")).fails(422, "Invalid").blames("metadata.labels")
		e.post(folders.in(e.ns), labeled(folders.named("a"), "key", "bad value")).fails(422, "Invalid").blames("metadata.labels")
		o := set(folders.named("a"), "v", "metadata", "annotations", "bad key")
		e.post(folders.in(e.ns), o).fails(422, "Invalid").blames("metadata.annotations")
		o = set(folders.named("a"), strings.Repeat("x", 300<<10), "metadata", "annotations", "big")
		e.post(folders.in(e.ns), o).fails(422, "Invalid").blames("metadata.annotations")
		e.post(folders.in(e.ns), finalized(folders.named("a"), "bad finalizer")).fails(422, "Invalid").blames("metadata.finalizers")
	}},
	{"refuses what does not fit", func(e *env) {
		for _, c := range []struct {
			value  any // nil = the member is missing
			code   int
			reason string
			path   []string
		}{
			{"Dashboard", 422, "Invalid", []string{"kind"}},
			{nil, 400, "BadRequest", []string{"kind"}},
			{nil, 400, "BadRequest", []string{"apiVersion"}},
			{"folder.grafana.app/v1beta1", 400, "BadRequest", []string{"apiVersion"}},
			{"dashboard.grafana.app/v1", 400, "BadRequest", []string{"apiVersion"}},
			{"text", 422, "Invalid", []string{"spec"}},
			{"elsewhere", 400, "BadRequest", []string{"metadata", "namespace"}},
			{1, 400, "BadRequest", []string{"metadata", "labels", "n"}},
		} {
			o := set(folders.named("a"), c.value, c.path...)
			if c.value == nil {
				delete(o, c.path[0])
			}
			if a := e.post(folders.in(e.ns), o).fails(c.code, c.reason); c.code == 422 {
				a.blames(c.path...)
			}
		}
	}},
	{"refuses a resourceVersion", func(e *env) {
		o := folders.named("a")
		meta(o)["resourceVersion"] = "12"
		e.post(folders.in(e.ns), o).refused().says("resourceVersion should not be set")
	}},
	{"refuses what is not JSON", func(e *env) {
		e.post(folders.in(e.ns), `{"apiVersion":`).fails(400, "BadRequest")
		e.post(folders.in(e.ns), `[]`).fails(400, "BadRequest")
		e.post(folders.in(e.ns), `"text"`).fails(400, "BadRequest")
		e.post(folders.in(e.ns), ``).fails(400, "BadRequest")
	}},
	{"refuses unknown content types", func(e *env) {
		e.post(folders.in(e.ns), folders.named("a"), content("text/plain")).fails(415, "UnsupportedMediaType")
	}},
	{"refuses a body beyond 3 MiB", func(e *env) {
		o := set(folders.named("a"), strings.Repeat("x", 3<<20), "spec", "text")
		e.post(folders.in(e.ns), o).fails(413, "RequestEntityTooLarge")
	}},
	{"takes a large object", func(e *env) {
		big := strings.Repeat("0123456789", 90<<10)
		e.create(dashboards, set(dashboards.named("big"), big, "spec", "text"))
		if str(e.read(dashboards, "big"), "spec", "text") != big {
			e.Error("the text came back changed")
		}
	}},
	{"keeps numbers, unicode and nesting", func(e *env) {
		body := `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"a"},"spec":{"title":"ü ☃ \u0001 <&>",
			"big":9007199254740993,"float":1.5,"exp":1e3,"neg":-0.25,"no":null,"empty":{},"none":[],"deep":[[{"x":[1,[2]]}]],"t":true}}`
		e.post(dashboards.in(e.ns), body).is(201)
		raw := string(e.get(dashboards.in(e.ns, "a")).is(200).raw)
		for _, want := range []string{`"big":9007199254740993`, `"float":1.5`, `"neg":-0.25`, `"none":[]`, `"empty":{}`,
			`"deep":[[{"x":[1,[2]]}]]`} {
			if !strings.Contains(strings.NewReplacer(" ", "", "\n", "").Replace(raw), want) {
				e.Errorf("answer lacks %s: %s", want, raw)
			}
		}
		if got := str(e.read(dashboards, "a"), "spec", "title"); got != "ü ☃ \u0001 <&>" {
			e.Errorf("title = %q", got)
		}
	}},
	{"drops members beside spec and status", func(e *env) {
		o := folders.named("a")
		o["bogus"] = object{"x": 1}
		if got := e.create(folders, o); has(got, "bogus") || has(e.read(folders, "a"), "bogus") {
			e.Error("an unknown member was stored")
		}
	}},
	{"warns of unknown members", func(e *env) {
		o := folders.named("a")
		o["bogus"] = 1
		if w := e.post(folders.in(e.ns), o, query("fieldValidation", "Warn")).is(201).header.Values("Warning"); len(w) != 1 ||
			!strings.Contains(w[0], `unknown field \"bogus\"`) {
			e.Errorf("Warning = %q", w)
		}
		meta(o)["name"] = "b"
		if w := e.post(folders.in(e.ns), o, query("fieldValidation", "Ignore")).is(201).header.Values("Warning"); len(w) != 0 {
			e.Errorf("Warning = %q", w)
		}
	}},
	{"refuses unknown and doubled members when strict", func(e *env) {
		o := folders.named("a")
		o["bogus"] = 1
		e.post(folders.in(e.ns), o, query("fieldValidation", "Strict")).fails(400, "BadRequest").says(`unknown field "bogus"`)
		o = set(folders.named("a"), 1, "metadata", "bogus")
		e.post(folders.in(e.ns), o, query("fieldValidation", "Strict")).fails(400, "BadRequest").says(`unknown field "metadata.bogus"`)
		double := `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"a"},"spec":{"title":"A","title":"B"}}`
		e.post(folders.in(e.ns), double, query("fieldValidation", "Strict")).fails(400, "BadRequest").says(`duplicate field "spec.title"`)
		e.get(folders.in(e.ns, "a")).fails(404, "NotFound")
		if got := e.post(folders.in(e.ns), double, query("fieldValidation", "Ignore")).is(201); got.str("spec", "title") != "B" {
			e.Errorf("title = %q, want the last one", got.str("spec", "title"))
		}
	}},
	{"refuses an unknown fieldValidation", func(e *env) {
		e.post(folders.in(e.ns), folders.named("a"), query("fieldValidation", "Maybe")).fails(422, "Invalid").says("Maybe")
	}},
	{"stores nothing in a dry run", func(e *env) {
		o := e.post(folders.in(e.ns), folders.named("a"), query("dryRun", "All")).is(201).object
		if uid(o) == "" || generation(o) != 1 {
			e.Errorf("metadata = %v", o["metadata"])
		}
		e.get(folders.in(e.ns, "a")).fails(404, "NotFound")
		e.create(folders, folders.named("a"))
		e.post(folders.in(e.ns), folders.named("a"), query("dryRun", "All")).fails(409, "AlreadyExists")
		e.post(folders.in(e.ns), folders.named("b"), query("dryRun", "Some")).fails(422, "Invalid")
	}},
	{"needs a namespace", func(e *env) {
		e.post(folders.everywhere(), folders.named("a")).absent()
	}},
	{"is seen in every served version", func(e *env) {
		e.create(folders, folders.named("a"))
		old := folders.at("v1beta1")
		o := e.read(old, "a")
		if o["apiVersion"] != old.apiVersion() || str(o, "spec", "title") != "Title of a" {
			e.Errorf("read as %v", o)
		}
		spec(o)["title"] = "Changed"
		e.put(old.in(e.ns, "a"), o).is(200)
		if got := e.read(folders, "a"); got["apiVersion"] != folders.apiVersion() || str(got, "spec", "title") != "Changed" {
			e.Errorf("read as %v", got)
		}
	}},
	{"answers 404 for what is not there", func(e *env) {
		a := e.get(folders.in(e.ns, "a")).fails(404, "NotFound").says(`folders.folder.grafana.app "a" not found`)
		if a.str("details", "name") != "a" || a.str("details", "kind") != "folders" || a.str("details", "group") != folders.group {
			e.Errorf("details = %v", a.object["details"])
		}
		for _, path := range []string{folders.root() + "/namespaces/" + e.ns + "/boats", "/apis/folder.grafana.app/v7/folders",
			"/apis/absent.example.com/v1/x", "/apis/folder.grafana.app/v1/namespaces/x/folders/a/b/c", "/nothing"} {
			e.get(path).is(http.StatusNotFound)
		}
	}},
}
