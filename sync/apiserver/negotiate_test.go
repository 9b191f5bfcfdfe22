package apiserver

import (
	"net/http/httptest"
	"testing"
)

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
		{name: "yaml", accept: "application/yaml", want: media{YAML: true}},
		{name: "kubectl get", accept: table + ",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", want: media{As: asTable, Version: "v1"}},
		{name: "older table", accept: "application/json;as=Table;v=v1beta1;g=meta.k8s.io", want: media{As: asTable, Version: "v1beta1"}},
		{name: "unknown conversion, then plain", accept: "application/json;as=Chair;v=v1;g=meta.k8s.io,application/json"},
		{name: "unknown conversion alone", accept: "application/json;as=Chair;v=v1;g=meta.k8s.io", refused: true},
		{name: "table of a later version", accept: "application/json;as=Table;v=v9;g=meta.k8s.io", refused: true},
		{name: "protobuf first", accept: "application/vnd.kubernetes.protobuf,application/json"},
		{name: "protobuf alone", accept: "application/vnd.kubernetes.protobuf", refused: true},
		{name: "cbor and a fallback", accept: "application/cbor, */*;q=0.1"},
		{name: "quality decides", accept: "application/json;q=0.1, application/yaml;q=0.9", want: media{YAML: true}},
		{name: "order decides among equals", accept: "application/yaml, application/json", want: media{YAML: true}},
		{name: "refused by quality", accept: "application/json;q=0", refused: true},
		{name: "nonsense", accept: ";;;", refused: true},
		{name: "curl is a person", accept: "*/*", agent: "curl/8.5", want: media{Pretty: true}},
		{name: "not if it says so", accept: "*/*", agent: "curl/8.5", query: "?pretty=false"},
		{name: "pretty by parameter", accept: "application/json;pretty=1", want: media{Pretty: true}},
		{name: "pretty by query", query: "?pretty=true", want: media{Pretty: true}},
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
