package contract

import "reflect"

var schemaCases = []testCase{
	{"describes members to kubectl explain", func(e *env) {
		doc := e.get("/openapi/v3/apis/provisioning.grafana.app/v0alpha1").is(200).object
		schemas, _ := at(doc, "components", "schemas").(object)
		for kind, member := range map[string][]string{"Repository": {"spec", "type"}, "Connection": {"spec", "type"}, "Job": {"spec", "action"}} {
			var found object
			for _, s := range schemas {
				for _, gvk := range list(s.(object), "x-kubernetes-group-version-kind") {
					if gvk.(object)["kind"] == kind {
						found, _ = s.(object)
					}
				}
			}
			field, _ := at(found, "properties", member[0], "properties", member[1]).(object)
			if str(field, "description") == "" || len(list(field, "enum")) < 6 {
				e.Errorf("%s: %v is %v", kind, member, field)
			}
		}
	}},
	{"keeps all that Grafana and limpet write", func(e *env) {
		unknown := object{"later": object{"deep": []any{1.0, "x", nil}}}
		with := func(o object) object { o["later"] = unknown["later"]; return o }
		repository := repositories.named("a")
		spec(repository)["git"] = with(object{"url": "https://git.example.com/a.git", "branch": "", "requestLimits": with(object{"burst": 0.0})})
		spec(repository)["workflows"], spec(repository)["later"], spec(repository)["commit"] = nil, unknown, object{"signingMethod": ""}
		set(repository, "", "spec", "sync", "target")
		set(repository, false, "spec", "sync", "enabled")
		status := with(object{
			"observedGeneration": 1.0, "webhook": nil, "deleteError": "", "stats": nil, "quota": with(object{"maxRepositories": 10.0}),
			"fieldErrors": []any{with(object{"type": "FieldValueInvalid", "badValue": 3.0}), object{"badValue": object{"a": "b"}}},
			"conditions":  []any{with(object{"type": "Ready", "status": "False", "reason": "", "lastTransitionTime": nil})},
			"health":      with(object{"healthy": false, "error": "hook", "checked": 1756973835824.0, "message": nil}),
			"sync":        with(object{"state": "", "message": nil, "started": 0.0, "source": with(object{"hash": "x"})}),
			"token":       with(object{"expiration": 0.0}),
			"deletion": with(object{"state": "blocked", "finalizer": "cleanup", "message": "m",
				"errors": []any{with(object{"code": "c", "detail": "d", "finalizer": "f", "target": with(object{"name": "n"})})}}),
		})
		job := with(object{"state": "warning", "progress": 12.5, "errors": nil, "warnings": []any{"w"}, "url": with(object{"sourceURL": "u"}),
			"summary": []any{with(object{"group": "g", "resource": "Dashboard", "kind": "", "totalChanges": 1.0, "errors": nil,
				"resourceErrors": []any{with(object{"reason": "", "message": "m", "path": "p"})}, "resourceWarnings": nil})}})
		for _, v := range []string{"v0alpha1", "v1beta1"} {
			k := repositories.at(v)
			o := clone(repository)
			o["apiVersion"], meta(o)["name"] = k.apiVersion(), "r"+v
			o = e.create(k, o)
			if !reflect.DeepEqual(o["spec"], clone(repository)["spec"]) {
				e.Errorf("spec is %v, want %v", o["spec"], repository["spec"])
			}
			o = e.put(k.in(e.ns, "r"+v, "status"), set(o, status, "status"), query("fieldValidation", "Strict")).is(200).object
			if !reflect.DeepEqual(o["status"], status) {
				e.Errorf("status is %v, want %v", o["status"], status)
			}
			k = jobs.at(v)
			o = k.named("j" + v)
			o["apiVersion"] = k.apiVersion()
			o = set(e.create(k, o), job, "status")
			o = e.put(k.in(e.ns, "j"+v), o, query("fieldValidation", "Strict")).is(200).object
			if !reflect.DeepEqual(o["status"], job) {
				e.Errorf("status of a job is %v, want %v", o["status"], job)
			}
		}
	}},
	{"refuses values that Grafana refuses", func(e *env) {
		e.post(repositories.in(e.ns), set(repositories.named("a"), "svn", "spec", "type")).fails(422, "Invalid")
		e.post(repositories.in(e.ns), set(repositories.named("a"), []any{"push"}, "spec", "workflows")).fails(422, "Invalid")
		e.post(repositories.in(e.ns), set(repositories.named("a"), "root", "spec", "sync", "target")).fails(422, "Invalid")
		e.post(jobs.in(e.ns), set(jobs.named("a"), "dance", "spec", "action")).fails(422, "Invalid")
	}},
}
