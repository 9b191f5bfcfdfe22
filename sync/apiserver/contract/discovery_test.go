package contract

import (
	"slices"
	"strings"

	"limpet/sync/api"
)

// sorted are the strings of a JSON list, sorted.
func sorted(l []any) []string {
	out := []string{}
	for _, v := range l {
		s, _ := v.(string)
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

var discoveryCases = []testCase{
	{"lists the groups", func(e *env) {
		a := e.get("/apis").is(200)
		if a.str("kind") != "APIGroupList" {
			e.Fatalf("answered %s", a.raw)
		}
		groups := map[string]object{}
		for _, g := range list(a.object, "groups") {
			groups[str(g.(object), "name")] = g.(object)
		}
		for _, k := range api.Kinds {
			if !k.CRD {
				continue
			}
			g := groups[k.Group]
			var have []string
			for _, v := range list(g, "versions") {
				have = append(have, str(v.(object), "version"))
				if str(v.(object), "groupVersion") != k.Group+"/"+str(v.(object), "version") {
					e.Errorf("%s has version %v", k.Group, v)
				}
			}
			for _, v := range k.Versions {
				if !slices.Contains(have, v) {
					e.Errorf("%s lacks %s: %q", k.Group, v, have)
				}
			}
			if !slices.Contains(have, str(g, "preferredVersion", "version")) {
				e.Errorf("%s prefers %v of %q", k.Group, g["preferredVersion"], have)
			}
		}
	}},
	{"describes one group", func(e *env) {
		a := e.get("/apis/folder.grafana.app").is(200)
		if a.str("kind") != "APIGroup" || a.str("name") != folders.group || len(list(a.object, "versions")) != 2 {
			e.Errorf("answered %s", a.raw)
		}
	}},
	{"lists resources and verbs", func(e *env) {
		for _, k := range api.Kinds {
			if !k.CRD {
				continue
			}
			for _, v := range k.Versions {
				a := e.get("/apis/" + k.Group + "/" + v).is(200)
				if a.str("kind") != "APIResourceList" || a.str("groupVersion") != k.Group+"/"+v {
					e.Errorf("answered %s", a.raw)
				}
				found, status := false, false
				for _, r := range list(a.object, "resources") {
					switch r := r.(object); str(r, "name") {
					case k.Plural:
						found = true
						if str(r, "kind") != k.Kind || str(r, "singularName") != k.Singular || r["namespaced"] != true ||
							!slices.Equal(sorted(list(r, "verbs")), verbs) || !slices.Equal(sorted(list(r, "shortNames")), sortedCopy(k.Short)) {
							e.Errorf("%s/%s: %v", v, k.Plural, r)
						}
					case k.Plural + "/status":
						status = true
						if str(r, "kind") != k.Kind || !slices.Equal(sorted(list(r, "verbs")), []string{"get", "patch", "update"}) {
							e.Errorf("%s/%s: %v", v, k.Plural, r)
						}
					}
				}
				if !found || status != k.Status {
					e.Errorf("%s/%s: found %t, status %t", v, k.Plural, found, status)
				}
			}
		}
	}},
	{"has a core", func(e *env) {
		if a := e.get("/api").is(200); a.str("kind") != "APIVersions" {
			e.Errorf("answered %s", a.raw)
		}
	}},
	{"describes itself to kubectl", func(e *env) {
		a := e.get("/openapi/v3").is(200)
		url := a.str("paths", "apis/folder.grafana.app/v1", "serverRelativeURL")
		if !strings.HasPrefix(url, "/openapi/v3/apis/folder.grafana.app/v1") {
			e.Fatalf("answered %s", clip(a.raw))
		}
		doc := e.get(url).is(200)
		patch, _ := at(doc.object, "paths", folders.in("{namespace}", "{name}"), "patch").(object)
		var parameters []string
		for _, p := range list(patch, "parameters") {
			parameters = append(parameters, str(p.(object), "name"))
		}
		for _, want := range []string{"dryRun", "fieldManager", "fieldValidation", "force"} {
			if !slices.Contains(parameters, want) {
				e.Errorf("patch lacks the parameter %s: %q", want, parameters)
			}
		}
		gvk, _ := patch["x-kubernetes-group-version-kind"].(object)
		if gvk["kind"] != "Folder" || gvk["group"] != folders.group || gvk["version"] != "v1" {
			e.Errorf("patch is of %v", gvk)
		}
	}},
	{"shows its version and health", func(e *env) {
		a := e.get("/version").is(200)
		for _, m := range []string{"major", "minor", "gitVersion", "platform", "goVersion"} {
			if a.str(m) == "" {
				e.Errorf("/version lacks %s: %s", m, a.raw)
			}
		}
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			if got := string(e.get(path).is(200).raw); got != "ok" {
				e.Errorf("%s answered %q", path, got)
			}
		}
	}},
	{"answers 404 for groups that are not there", func(e *env) {
		e.get("/apis/absent.example.com").is(404)
		e.get("/apis/folder.grafana.app/v9").is(404)
	}},
}

func sortedCopy(s []string) []string {
	out := append([]string{}, s...)
	slices.Sort(out)
	return out
}
