package apiserver

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Discovery is the plain form, one document for each version of each group; kubectl and client-go read it
// where a server has no aggregated one. The versions of a group are in the order of api.Kinds, the preferred
// one first; Grafana's order differs from the sort order of Kubernetes.

// groupVersion is one version of a group with its kinds; the core group is "".
type groupVersion struct {
	group, version string
	kinds          []api.Kind
}

// groupVersions are all of api.Kinds, in its order.
var groupVersions = func() (out []*groupVersion) {
	for _, k := range api.Kinds {
		for _, version := range k.Versions {
			i := slices.IndexFunc(out, func(g *groupVersion) bool { return g.group == k.Group && g.version == version })
			if i < 0 {
				i, out = len(out), append(out, &groupVersion{group: k.Group, version: version})
			}
			out[i].kinds = append(out[i].kinds, k)
		}
	}
	return out
}()

// path is that of a version of a group without its leading slash.
func (g *groupVersion) path() string {
	if g.group == "" {
		return "api/" + g.version
	}
	return "apis/" + g.group + "/" + g.version
}

func (s *Server) discoveryRoutes(mux *http.ServeMux) {
	serve := func(path string, document any) {
		for _, slash := range []string{"", "/{$}"} {
			mux.HandleFunc("GET /"+path+slash, func(w http.ResponseWriter, req *http.Request) {
				s.answerJSON(w, req, http.StatusOK, document)
			})
		}
	}
	core := metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	openAPI := map[string]any{}
	for _, g := range groupVersions {
		serve(g.path(), g.resources())
		mux.HandleFunc("GET /openapi/v3/"+g.path(), func(w http.ResponseWriter, req *http.Request) {
			s.answerJSON(w, req, http.StatusOK, g.openAPI()) // made when it is read: few clients do
		})
		openAPI[g.path()] = map[string]string{"serverRelativeURL": "/openapi/v3/" + g.path()}
		if g.group == "" {
			core.Versions = append(core.Versions, g.version)
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: g.group + "/" + g.version, Version: g.version}
		i := slices.IndexFunc(list.Groups, func(known metav1.APIGroup) bool { return known.Name == g.group })
		if i < 0 {
			i, list.Groups = len(list.Groups), append(list.Groups, metav1.APIGroup{Name: g.group, PreferredVersion: version})
		}
		list.Groups[i].Versions = append(list.Groups[i].Versions, version)
	}
	serve("api", core)
	serve("apis", list)
	for _, g := range list.Groups {
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		serve("apis/"+g.Name, g)
	}
	serve("openapi/v3", map[string]any{"paths": openAPI})
}

// resources lists the resources of /api/v1 or /apis/GROUP/VERSION.
func (g *groupVersion) resources() metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: apiVersionOf(g.kinds[0], g.version),
	}
	for _, k := range g.kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.Plural, SingularName: k.Singular, Namespaced: true, Kind: k.Kind, ShortNames: k.Short, Categories: k.Categories,
			Verbs: []string{verbCreate, verbDelete, "deletecollection", verbGet, verbList, verbPatch, verbUpdate, verbWatch},
		})
		if k.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Plural + "/status", Namespaced: true, Kind: k.Kind, Verbs: statusVerbs,
			})
		}
		if k.Group == api.ProvisioningGroup && k.Plural == "repositories" {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Plural + "/jobs", Namespaced: true, Kind: "Job", Verbs: []string{verbCreate, verbGet},
			})
		}
	}
	return list
}

// openAPI is the part of the OpenAPI v3 document that kubectl create and apply read before they send a
// request: it declares fieldValidation and dryRun of writes. The schemas are for kubectl explain.
func (g *groupVersion) openAPI() any {
	type object = map[string]any
	paths, schemas := object{}, object{}
	for _, k := range g.kinds {
		gvk := object{"group": k.Group, "version": g.version, "kind": k.Kind}
		described := maps.Clone(k.Schema())
		described["x-kubernetes-group-version-kind"] = []any{gvk}
		schemas[k.Kind] = described
		var parameters []any
		for _, name := range []string{"dryRun", "fieldManager", "fieldValidation", "force"} {
			parameters = append(parameters, object{"name": name, "in": "query", "schema": object{"type": "string"}})
		}
		path := strings.Join([]string{"", g.path(), "namespaces", "{namespace}", k.Plural, "{name}"}, "/")
		paths[path] = object{"patch": object{
			"parameters":                      parameters,
			"responses":                       object{"200": object{"description": "OK"}},
			"x-kubernetes-action":             verbPatch,
			"x-kubernetes-group-version-kind": gvk,
		}}
	}
	return object{"openapi": "3.0.0", "info": object{"title": "limpet", "version": "unversioned"}, "paths": paths,
		"components": object{"schemas": schemas}}
}
