package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
)

// Discovery is the plain form, one document for each version of each group; kubectl and client-go
// read it where a server has no aggregated one. The versions of a group are in the order of
// api.Kinds, the preferred one first; Grafana's order differs from the sort order of Kubernetes.

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

// openAPI is the part of the OpenAPI v3 document that kubectl create and apply read before they
// send a request: it declares fieldValidation and dryRun of writes. The schemas are for kubectl
// explain.
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
