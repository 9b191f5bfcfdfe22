package admission

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJobSpec(t *testing.T) {
	t.Parallel()
	type given = map[string][]string
	for _, c := range []struct {
		action string
		given  given
		want   string // the spec, or a part of the error
	}{
		{"push", given{}, `{"action":"push","push":{}}`},
		{"push", given{"branch": {"b"}, "path": {"p"}, "message": {"m"}, "resource": {"dashboards/a", "Dashboard/b"}},
			`{"action":"push","message":"m","push":{"branch":"b","path":"p","resources":[` +
				`{"kind":"Dashboard","name":"a"},{"kind":"Dashboard","name":"b"}]}}`},
		{"migrate", given{"skip-resource-deletion": {"true"}, "generate-new-folder-ids": {"true"}},
			`{"action":"migrate","migrate":{"generateNewFolderIDs":true,"skipResourceDeletion":true}}`},
		{"delete", given{"path": {"a.json", "b/"}, "ref": {"x"}}, `{"action":"delete","delete":{"paths":["a.json","b/"],"ref":"x"}}`},
		{"delete", given{"resource": {"folder/f"}}, `{"action":"delete","delete":{"resources":[{"kind":"Folder","name":"f"}]}}`},
		{"move", given{"path": {"a.json"}, "target-path": {"b/"}}, `{"action":"move","move":{"paths":["a.json"],"targetPath":"b/"}}`},
		{"fixFolderMetadata", given{}, `{"action":"fixFolderMetadata","fixFolderMetadata":{}}`},
		{"releaseResources", given{}, `{"action":"releaseResources"}`},
		{"test", given{"duration": {"15m"}, "progress-updates": {"1000"}}, `{"action":"test","test":{"duration":"15m","progressUpdates":1000}}`},
		{"test", given{}, "--action test needs --duration"},
		{"test", given{"duration": {"15m1ns"}}, "spec.test.duration"},
		{"test", given{"duration": {"-1s"}}, "spec.test.duration"},
		{"test", given{"duration": {"15m"}, "progress-updates": {"1001"}}, "spec.test.progressUpdates"},
		{"test", given{"duration": {"999ms"}, "progress-updates": {"2"}}, "spec.test.progressUpdates"},
		{"test", given{"duration": {"1s"}, "progress-updates": {"x"}}, "--progress-updates"},
		{"fixFolderMetadata", given{"ref": {"a..b"}}, "spec.fixFolderMetadata.ref"},
		{"deleteResources", given{"path": {"a"}}, "--path is no option"},
		{"push", given{"full": {"true"}}, "--full is no option of --action push"},
		{"pull", given{"branch": {"x"}}, "--allow-mass-delete"},
		{"delete", given{}, "--path"},
		{"delete", given{"path": {"../a"}}, "spec.delete.paths[0]"},
		{"move", given{"path": {"a"}, "target-path": {"b"}}, "spec.move.targetPath"},
		{"push", given{"resource": {"cpu"}}, "KIND/NAME"},
		{"push", given{"branch": {"HEAD"}}, "spec.push.branch"},
		{"pr", given{}, "webhooks"},
		{"fetch", given{}, "unknown action"},
	} {
		spec, err := JobSpec(c.action, c.given)
		data, _ := json.Marshal(spec)
		if refused := !strings.HasPrefix(c.want, "{"); refused != (err != nil) || refused && !strings.Contains(err.Error(), c.want) ||
			!refused && string(data) != c.want {
			t.Errorf("%s %v: %s, %v; want %s", c.action, c.given, data, err, c.want)
		}
	}
	for action, form := range JobForms { // what a user may give, the server knows
		for _, o := range form.Options {
			if o.member != "" && (o.parse == nil || o.Help == "") {
				t.Errorf("%s: %+v", action, o)
			}
		}
	}
}
