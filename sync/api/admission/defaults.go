package admission

import (
	"encoding/base64"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// The interval of pulls in seconds: what an absent one means, and the least
// that admission leaves as it is. Source: Grafana's defaults.
const (
	defaultInterval = 60
	minInterval     = 10
)

// DefaultFinalizers sets the finalizers that Grafana gives a Repository without any. It is only for servers
// with a controller that removes them: without one the object could not be deleted.
func DefaultFinalizers(obj *unstructured.Unstructured) {
	if isRepository(obj) && len(obj.GetFinalizers()) == 0 {
		obj.SetFinalizers([]string{api.FinalizerRemove, api.FinalizerRemoveJobs, api.FinalizerCleanup})
	}
}

// Default sets the defaults of Grafana's admission and of the Kubernetes API in obj, except finalizers.
func Default(obj *unstructured.Unstructured) {
	switch gvk := obj.GroupVersionKind(); {
	case gvk.Group == "" && gvk.Kind == "Secret":
		foldStringData(obj.Object)
		if kind, _ := obj.Object["type"].(string); kind == "" {
			obj.Object["type"] = "Opaque"
		}
	case gvk.Group == api.ProvisioningGroup && gvk.Kind == "Repository":
		defaultRepository(obj)
	case gvk.Group == api.GitRepositories.Group:
		defaultGitRepository(obj)
	}
}

// defaultGitRepository sets the defaults of Flux's definition.
func defaultGitRepository(obj *unstructured.Unstructured) {
	spec, ok := obj.Object["spec"].(map[string]any)
	if ok && spec["timeout"] == nil {
		spec["timeout"] = "60s"
	}
	if verify, ok := spec["verify"].(map[string]any); ok && verify["mode"] == nil {
		verify["mode"] = "HEAD"
	}
}

func defaultRepository(obj *unstructured.Unstructured) {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return
	}
	if title, set := spec["title"]; !set || title == "" || title == nil {
		spec["title"] = obj.GetName()
	}
	sync, ok := spec["sync"].(map[string]any)
	if !ok || sync["enabled"] != true {
		return
	}
	var errs field.ErrorList
	seconds := node{data: sync, errs: &errs}.integer("intervalSeconds")
	switch {
	case len(errs) > 0 || seconds < 0: // validation reports it
	case seconds == 0:
		sync["intervalSeconds"] = int64(defaultInterval)
	case seconds < minInterval:
		sync["intervalSeconds"] = int64(minInterval)
	}
}

// foldStringData moves the write-only stringData of a Secret into data.
func foldStringData(object map[string]any) {
	given, ok := object["stringData"].(map[string]any)
	if !ok {
		return
	}
	for _, value := range given {
		if _, ok := value.(string); !ok {
			return // validation reports it
		}
	}
	data, ok := object["data"].(map[string]any)
	if !ok {
		if object["data"] != nil {
			return
		}
		data = map[string]any{}
	}
	for key, value := range given {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value.(string)))
	}
	object["data"] = data
	delete(object, "stringData")
}
