package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
)

// Verbs of the API, as discovery lists them.
const (
	verbGet    = "get"
	verbList   = "list"
	verbWatch  = "watch"
	verbCreate = "create"
	verbUpdate = "update"
	verbPatch  = "patch"
	verbDelete = "delete"
)

// target is what a request is about: an object, a subresource of it, or a collection.
type target struct {
	kind        api.Kind
	version     string
	namespace   string // "" = all namespaces
	name        string // "" = the collection
	subresource string
	rest        []string // segments of the path below the subresource
}

// kindOf returns the kind of a group and a plural name ("" is the core group).
func kindOf(group, plural string) (api.Kind, bool) {
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Group == group && k.Plural == plural })
	if i < 0 {
		return api.Kind{}, false
	}
	return api.Kinds[i], true
}

// apiVersionOf returns the apiVersion of a kind in a version.
func apiVersionOf(k api.Kind, version string) string {
	return schema.GroupVersion{Group: k.Group, Version: version}.String()
}

// resourceName returns the name of a kind in the store and the feed.
func resourceName(k api.Kind) string { return k.Group + "/" + k.Plural }

func (t target) apiVersion() string { return apiVersionOf(t.kind, t.version) }

func (t target) key() state.ObjectKey {
	return state.ObjectKey{Resource: resourceName(t.kind), Namespace: t.namespace, Name: t.name}
}

func (t target) resource() schema.GroupResource {
	return schema.GroupResource{Group: t.kind.Group, Resource: t.kind.Plural}
}

func (t target) notFound() error { return apierrors.NewNotFound(t.resource(), t.name) }

// of returns the same place for another kind of the provisioning group.
func (t target) of(plural string) target {
	k, _ := kindOf(api.ProvisioningGroup, plural)
	return target{kind: k, version: t.version, namespace: t.namespace}
}

// route reads the path and method of a request for objects:
//
//	/api/v1/[namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE/...]]
//	/apis/GROUP/VERSION/[namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE/...]]
//
// ok is false for a path that is not served.
func route(req *http.Request) (t target, verb string, ok bool) {
	parts, ok := segments(req.URL)
	switch {
	case !ok || len(parts) < 3:
		return t, "", false
	case parts[0] == "api":
		parts = slices.Insert(parts, 1, "")
	case parts[0] != "apis" || parts[1] == "":
		return t, "", false
	}
	group, version, parts := parts[1], parts[2], parts[3:]
	if len(parts) >= 3 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) == 0 {
		return t, "", false
	}
	t.kind, ok = kindOf(group, parts[0])
	if !ok || !slices.Contains(t.kind.Versions, version) {
		return t, "", false
	}
	t.version = version
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource, t.rest = parts[2], parts[3:]
	}
	verb = verbOf(req, t)
	// Only lists and watches go across namespaces.
	return t, verb, t.namespace != "" || verb == verbList || verb == verbWatch
}

func verbOf(req *http.Request, t target) string {
	switch {
	case req.Method == http.MethodPost:
		return verbCreate
	case req.Method == http.MethodPut:
		return verbUpdate
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return strings.ToLower(req.Method)
	case t.name != "":
		return verbGet
	case flagOf(req.URL.Query(), "watch"):
		return verbWatch
	}
	return verbList
}

// segments splits the path at its slashes and resolves escapes in each part, so
// that an escaped slash stays inside its part.
func segments(u *url.URL) ([]string, bool) {
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return nil, false
		}
		parts[i] = plain
	}
	return parts, true
}

// flagOf reads a boolean parameter: present and not "false" or "0".
func flagOf(q url.Values, name string) bool {
	values, ok := q[name]
	return ok && !(values[0] == "0" || strings.EqualFold(values[0], "false"))
}
