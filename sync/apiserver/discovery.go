package apiserver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
)

// Discovery has two forms: the plain one, a request for each version of each
// group, and the aggregated one, which client-go and kubectl request by their
// Accept header. The versions of a group are in the order of api.Kinds, the
// preferred one first; Grafana's order differs from the sort order of Kubernetes.

const discoveryGroup = "apidiscovery.k8s.io"

func (s *Server) discoveryRoutes(mux *http.ServeMux) {
	for _, slash := range []string{"", "/{$}"} {
		mux.HandleFunc("GET /api"+slash, func(w http.ResponseWriter, req *http.Request) { s.serveGroups(w, req, true) })
		mux.HandleFunc("GET /apis"+slash, func(w http.ResponseWriter, req *http.Request) { s.serveGroups(w, req, false) })
		mux.HandleFunc("GET /api/{version}"+slash, s.serveResources)
		mux.HandleFunc("GET /apis/{group}"+slash, s.serveGroup)
		mux.HandleFunc("GET /apis/{group}/{version}"+slash, s.serveResources)
		mux.HandleFunc("GET /openapi/v3"+slash, s.serveOpenAPIIndex)
	}
	mux.HandleFunc("GET /openapi/v3/{path...}", s.serveOpenAPI)
}

// groups returns the named groups in the order of api.Kinds.
func groups() (out []string) {
	for _, k := range api.Kinds {
		if k.Group != "" && !slices.Contains(out, k.Group) {
			out = append(out, k.Group)
		}
	}
	return out
}

// versionsOf returns the versions of a group, the preferred one first.
func versionsOf(group string) (out []string) {
	for _, k := range api.Kinds {
		for _, version := range k.Versions {
			if k.Group == group && !slices.Contains(out, version) {
				out = append(out, version)
			}
		}
	}
	return out
}

// kindsOf returns the kinds of a version of a group.
func kindsOf(group, version string) (out []api.Kind) {
	for _, k := range api.Kinds {
		if k.Group == group && served(k, version) {
			out = append(out, k)
		}
	}
	return out
}

// serveGroups serves /api (core) and /apis.
func (s *Server) serveGroups(w http.ResponseWriter, req *http.Request, core bool) {
	if version := wantsAggregated(req); version != "" {
		names := groups()
		if core {
			names = []string{""}
		}
		s.answerAggregated(w, req, version, names)
		return
	}
	if core {
		s.answerJSON(w, req, http.StatusOK, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: versionsOf(""),
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		})
		return
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, name := range groups() {
		list.Groups = append(list.Groups, apiGroup(name))
	}
	s.answerJSON(w, req, http.StatusOK, list)
}

func apiGroup(name string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for _, version := range versionsOf(name) {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
	}
	if len(g.Versions) > 0 {
		g.PreferredVersion = g.Versions[0]
	}
	return g
}

// serveGroup serves /apis/GROUP.
func (s *Server) serveGroup(w http.ResponseWriter, req *http.Request) {
	g := apiGroup(req.PathValue("group"))
	if g.Name == "" || len(g.Versions) == 0 {
		s.answerError(w, req, pathNotFound())
		return
	}
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	s.answerJSON(w, req, http.StatusOK, g)
}

// serveResources serves /api/v1 and /apis/GROUP/VERSION.
func (s *Server) serveResources(w http.ResponseWriter, req *http.Request) {
	group, version := req.PathValue("group"), req.PathValue("version")
	kinds := kindsOf(group, version)
	if len(kinds) == 0 || (group == "") != strings.HasPrefix(req.URL.Path, "/api/") {
		s.answerError(w, req, pathNotFound())
		return
	}
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: apiVersionOf(kinds[0], version),
	}
	for _, k := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.Plural, SingularName: k.Singular, Namespaced: true, Kind: k.Kind, Verbs: resourceVerbs, ShortNames: k.Short,
		})
		for _, sub := range subresources(k) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Plural + "/" + sub.Name, Namespaced: true, Kind: sub.Kind, Verbs: sub.Verbs,
			})
		}
	}
	s.answerJSON(w, req, http.StatusOK, list)
}

// subresource is a route below one object, as discovery lists it.
type subresource struct {
	Name, Kind string
	Verbs      []string
}

func subresources(k api.Kind) (out []subresource) {
	if verbs := verbsOf(k, "status"); verbs != nil {
		out = append(out, subresource{"status", k.Kind, verbs})
	}
	if k.Group == api.ProvisioningGroup && k.Plural == "repositories" {
		out = append(out, subresource{"jobs", "Job", []string{verbCreate, verbGet}})
	}
	return out
}

// wantsAggregated returns the version of the aggregated form that the client
// prefers over the plain one, or "".
func wantsAggregated(req *http.Request) string {
	for _, c := range clauses(strings.Join(req.Header.Values("Accept"), ",")) {
		if c.kind != "application" || c.sub != "json" {
			continue
		}
		switch version := c.params["v"]; {
		case c.params["as"] == "":
			return ""
		case c.params["g"] == discoveryGroup && strings.EqualFold(c.params["as"], "APIGroupDiscoveryList") &&
			(version == "v2" || version == "v2beta1"):
			return version
		}
	}
	return ""
}

// The aggregated form. Source: k8s.io/api/apidiscovery/v2.
type (
	aggregatedList struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   struct{}          `json:"metadata"`
		Items      []aggregatedGroup `json:"items"`
	}
	aggregatedGroup struct {
		Metadata struct {
			Name string `json:"name,omitempty"`
		} `json:"metadata"`
		Versions []aggregatedVersion `json:"versions"`
	}
	aggregatedVersion struct {
		Version   string               `json:"version"`
		Resources []aggregatedResource `json:"resources"`
		Freshness string               `json:"freshness"`
	}
	aggregatedResource struct {
		Resource     string                  `json:"resource"`
		ResponseKind metav1.GroupVersionKind `json:"responseKind"`
		Scope        string                  `json:"scope"`
		Singular     string                  `json:"singularResource"`
		Verbs        []string                `json:"verbs"`
		Short        []string                `json:"shortNames,omitempty"`
		Subresources []aggregatedSubresource `json:"subresources,omitempty"`
	}
	aggregatedSubresource struct {
		Subresource  string                  `json:"subresource"`
		ResponseKind metav1.GroupVersionKind `json:"responseKind"`
		Verbs        []string                `json:"verbs"`
	}
)

func (s *Server) answerAggregated(w http.ResponseWriter, req *http.Request, version string, names []string) {
	list := aggregatedList{Kind: "APIGroupDiscoveryList", APIVersion: discoveryGroup + "/" + version}
	for _, name := range names {
		g := aggregatedGroup{}
		g.Metadata.Name = name
		for _, v := range versionsOf(name) {
			g.Versions = append(g.Versions, aggregated(name, v))
		}
		list.Items = append(list.Items, g)
	}
	data, err := json.Marshal(list)
	if err != nil {
		s.answerError(w, req, err)
		return
	}
	sum := sha256.Sum256(data)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Cache-Control", "public")
	if req.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", fmt.Sprintf("application/json;g=%s;v=%s;as=APIGroupDiscoveryList", discoveryGroup, version))
	_, _ = w.Write(data)
}

func aggregated(group, version string) aggregatedVersion {
	out := aggregatedVersion{Version: version, Freshness: "Current"}
	for _, k := range kindsOf(group, version) {
		r := aggregatedResource{Resource: k.Plural, ResponseKind: metav1.GroupVersionKind{Group: group, Version: version, Kind: k.Kind},
			Scope: "Namespaced", Singular: k.Singular, Verbs: resourceVerbs, Short: k.Short}
		for _, sub := range subresources(k) {
			r.Subresources = append(r.Subresources, aggregatedSubresource{Subresource: sub.Name,
				ResponseKind: metav1.GroupVersionKind{Group: group, Version: version, Kind: sub.Kind}, Verbs: sub.Verbs})
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}
