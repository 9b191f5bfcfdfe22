package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRoute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/api/v1/secrets", "list secrets v1 - - -"},
		{"GET", "/api/v1/namespaces/n/secrets/s", "get secrets v1 n s -"},
		{"GET", folderPath, "list folders v1 default - -"},
		{"GET", folderPath + "?watch=true", "watch folders v1 default - -"},
		{"GET", folderPath + "?watch", "watch folders v1 default - -"},
		{"GET", folderPath + "?watch=0", "list folders v1 default - -"},
		{"HEAD", folderPath + "/a", "get folders v1 default a -"},
		{"POST", folderPath, "create folders v1 default - -"},
		{"PUT", folderPath + "/a", "update folders v1 default a -"},
		{"PATCH", folderPath + "/a/status", "patch folders v1 default a status"},
		{"DELETE", folderPath, "delete folders v1 default - -"},
		{"DELETE", folderPath + "/a", "delete folders v1 default a -"},
		{"GET", folderPath + "/a%2Fb", "get folders v1 default a/b -"},
		{"GET", base + "repositories/r/jobs/uid", "get repositories v0alpha1 default r jobs"},
		{"POST", "/apis/folder.grafana.app/v1/folders", ""},
		{"GET", "/apis/folder.grafana.app/v1/folders/a", ""},
		{"GET", "/apis/folder.grafana.app/v9/folders", ""},
		{"GET", "/apis/folder.grafana.app/v1/chairs", ""},
		{"GET", "/apis/other/v1/folders", ""},
		{"GET", "/api/v1/namespaces", ""},
		{"GET", "/api/v1/namespaces/default", ""},
		{"GET", "/api/v1", ""},
		{"GET", "/apis/folder.grafana.app/v1", ""},
		{"GET", "/", ""},
		{"GET", "/secrets/v1/api", ""},
	} {
		at, verb, ok := route(httptest.NewRequest(c.method, c.path, nil))
		got := ""
		if ok {
			dash := func(s string) string {
				if s == "" {
					return "-"
				}
				return s
			}
			got = fmt.Sprintf("%s %s %s %s %s %s", verb, at.kind.Plural, at.version, dash(at.namespace), dash(at.name), dash(at.subresource))
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

// Every way to ask for what is not there, or not that way, has its answer.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	for _, c := range []struct {
		name, method, path, body string
		code                     int
		reason                   string
	}{
		{"unknown method", "BREW", folderPath + "/a", "", 405, "MethodNotAllowed"},
		{"force without apply", "PATCH", folderPath + "/a?force=true", `{}`, 422, "Invalid"},
		{"long manager", "PATCH", folderPath + "/a?fieldManager=" + strings.Repeat("m", 200), `{}`, 422, "Invalid"},
		{"json patch to nothing", "PATCH", folderPath + "/a", `application/json-patch+json [{"op":"replace","path":"","value":{}}]`, 422,
			"Invalid"},
		{"json patch that copies copies", "PATCH", folderPath + "/a", "application/json-patch+json " + copies(40), 422, "Invalid"},
		{"json patch of many operations", "PATCH", folderPath + "/a", "application/json-patch+json [" +
			strings.Repeat(`{"op":"add","path":"/spec/x","value":1},`, maxPatchOperations) + `{"op":"add","path":"/spec/x","value":1}]`, 413,
			"RequestEntityTooLarge"},
	} {
		code, answer := s.call(c.method, c.path, c.body)
		if reason, _ := answer["reason"].(string); code != c.code || reason != c.reason || answer["kind"] != "Status" ||
			answer["code"] != float64(c.code) {
			t.Errorf("%s: %d %v %v, want %d %s", c.name, code, answer["reason"], answer["message"], c.code, c.reason)
		}
	}
}

// copies is a patch that doubles the object again and again.
func copies(n int) string {
	operations := []string{fmt.Sprintf(`{"op":"add","path":"/spec/c","value":%q}`, strings.Repeat("x", 1000))}
	for i := range n {
		operations = append(operations, fmt.Sprintf(`{"op":"copy","from":"/spec","path":"/spec/c%d"}`, i))
	}
	return "[" + strings.Join(operations, ",") + "]"
}

func TestNegotiate(t *testing.T) {
	t.Parallel()
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, c := range []struct {
		name, accept, agent, query string
		want                       media
		refused                    bool
	}{
		{name: "nothing asked"},
		{name: "anything", accept: "*/*"},
		{name: "json", accept: "application/json"},
		{name: "yaml alone", accept: "application/yaml", refused: true},
		{name: "kubectl get", accept: table + ",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
			want: media{as: asTable, version: "v1"}},
		{name: "older table", accept: "application/json;as=Table;v=v1beta1;g=meta.k8s.io", want: media{as: asTable, version: "v1beta1"}},
		{name: "unknown conversion, then plain", accept: "application/json;as=Chair;v=v1;g=meta.k8s.io,application/json"},
		{name: "unknown conversion alone", accept: "application/json;as=Chair;v=v1;g=meta.k8s.io", refused: true},
		{name: "table of a later version", accept: "application/json;as=Table;v=v9;g=meta.k8s.io", refused: true},
		{name: "protobuf first", accept: "application/vnd.kubernetes.protobuf,application/json"},
		{name: "protobuf alone", accept: "application/vnd.kubernetes.protobuf", refused: true},
		{name: "cbor and a fallback", accept: "application/cbor, */*;q=0.1"},
		{name: "yaml first", accept: "application/yaml, application/json"},
		{name: "quality decides", accept: "application/json;q=0.1, " + table + ";q=0.9", want: media{as: asTable, version: "v1"}},
		{name: "refused by quality", accept: "application/json;q=0", refused: true},
		{name: "nonsense", accept: ";;;", refused: true},
		{name: "curl is a person", accept: "*/*", agent: "curl/8.5", want: media{pretty: true}},
		{name: "not if it says so", accept: "*/*", agent: "curl/8.5", query: "?pretty=false"},
		{name: "pretty by parameter", accept: "application/json;pretty=1", want: media{pretty: true}},
		{name: "pretty by query", query: "?pretty=true", want: media{pretty: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequest("GET", "/"+c.query, nil)
			req.Header.Set("User-Agent", c.agent)
			if c.accept != "" {
				req.Header.Set("Accept", c.accept)
			}
			got, err := negotiate(req)
			if (err != nil) != c.refused || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// kubectl apply finds in the document of every kind that the server validates fields, and
// kubectl explain a schema.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	index := s.must("GET", "/openapi/v3", "")["paths"].(map[string]any)
	for _, g := range groupVersions {
		document := s.must("GET", at(index, g.path(), "serverRelativeURL").(string), "")
		for _, k := range g.kinds {
			patch := at(document, "paths", "/"+g.path()+"/namespaces/{namespace}/"+k.Plural+"/{name}", "patch")
			text, err := json.Marshal(patch)
			if err != nil || !strings.Contains(string(text), `"name":"fieldValidation"`) || !strings.Contains(string(text), `"kind":"`+k.Kind+`"`) {
				t.Errorf("%s %s: kubectl could not apply: %s", k.Plural, g.version, text)
			}
			if at(document, "components", "schemas", k.Kind, "type") != "object" {
				t.Errorf("%s %s: kubectl could not explain it", k.Plural, g.version)
			}
		}
	}
}
