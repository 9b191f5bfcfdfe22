package resources

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
)

// parseClassic reads a dashboard as Grafana's "JSON model" has it.
func parseClassic(f File, all []field) (*Object, error) {
	for _, want := range []string{"panels", "schemaVersion", "tags"} {
		if v := value(all, want); v != nil && !isNull(v) {
			continue
		}
		if inner := value(all, "dashboard"); len(inner) > 0 && inner[0] == '{' {
			return nil, errors.New(`the file holds an answer of Grafana's HTTP API; keep only the value of "dashboard"`)
		}
		return nil, fmt.Errorf("the file is neither a resource (no apiVersion and kind) nor a dashboard (no %s)", want)
	}
	o := &Object{Classic: true, GVK: schema.GroupVersionKind{Group: api.DashboardGroup, Version: ClassicVersion, Kind: dashboardKind}}
	if uid := value(all, "uid"); uid != nil && json.Unmarshal(uid, &o.Name) != nil {
		return nil, errors.New("uid is not text")
	}
	if o.Name == "" {
		o.Name = FileID(f.Repository, f.Path)
	}
	o.spec = cleaned(all)
	return o, checkName("uid", o.Name)
}

func isNull(v json.RawMessage) bool { return string(v) == "null" }
