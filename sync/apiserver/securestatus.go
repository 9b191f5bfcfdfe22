package apiserver

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// A controller that mints a token writes it and says so in the status with one
// write, to the status. Grafana's API server takes that, and so does this one; a
// plain Kubernetes API drops all but the status. No generation is counted: what a
// person wants is as it was.

// inlineValued says that objects of a kind have secure values.
func inlineValued(k api.Kind) bool {
	return k.Group == api.ProvisioningGroup && (k.Kind == "Repository" || k.Kind == "Connection")
}

// broughtValues are the secure values that a write of the status gives or removes.
// Anything else below secure is no part of it.
func broughtValues(k api.Kind, obj *unstructured.Unstructured) map[string]any {
	if !inlineValued(k) {
		return nil
	}
	out := map[string]any{}
	for name, value := range asMap(obj.Object["secure"]) {
		member := asMap(value)
		if _, given := member["create"]; given {
			out[name] = map[string]any{"create": member["create"]}
		} else if remove, _ := member["remove"].(bool); remove {
			out[name] = map[string]any{"remove": true}
		}
	}
	return out
}

// bringValues puts them beside those that are stored.
func bringValues(obj *unstructured.Unstructured, brought map[string]any) {
	if len(brought) == 0 {
		return
	}
	secure := map[string]any{}
	maps.Copy(secure, asMap(obj.Object["secure"]))
	maps.Copy(secure, brought)
	obj.Object["secure"] = secure
}

// admitBrought checks and seals them.
func (s *Server) admitBrought(ctx context.Context, r *admitRequest) error {
	if len(broughtValues(r.Kind, r.Object)) == 0 {
		return nil
	}
	if errs := admission.CheckSecure(r.Object, r.Old); len(errs) > 0 {
		return invalid(r.Kind, r.Name, errs)
	}
	if err := s.sealInline(ctx, r); err != nil {
		return internal(err)
	}
	keepTimes(r.Old, r.Object)
	return nil
}
