package target

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// dryRunAPI refuses objects with a text, or a kind, and quotes it.
type dryRunAPI struct{ text, resource string }

func (a dryRunAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	code, answer := 201, `{"metadata":{}}`
	if bytes.Contains(body, []byte(a.text)) && strings.Contains(r.URL.Path, a.resource) {
		code, answer = 400, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400,"message":"field spec.dryRun"}`
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(answer))}, err
}

// TestDryRunProbe: an error that quotes a file does not switch validation off, one for any object
// does.
func TestDryRunProbe(t *testing.T) {
	for _, c := range []struct {
		api dryRunAPI
		off bool
	}{{dryRunAPI{"dryRun", "dashboards"}, false}, {dryRunAPI{"", "dashboards"}, true}, {dryRunAPI{"", "folders"}, true}} {
		client, err := kube.Connect(t.Context(), kube.Config{Server: "http://x", Transport: c.api})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		s := &API{namespace: "d", servers: Servers{Dashboards: client, Folders: client}, Kinds: resources.Kinds{
			{Group: api.FolderGroup, Kind: "Folder", Resource: "folders", Version: "v1"},
			{Group: api.DashboardGroup, Kind: "Dashboard", Resource: "dashboards", Version: "v2"}}}
		s.DryRun(t.Context())
		err = s.Create(t.Context(), resources.Ref{Group: api.DashboardGroup, Resource: "dashboards", Name: "bad"}, true,
			func(string) []byte { return []byte(`{"spec":{"dryRun":1}}`) })
		if s.Off() != c.off || c.off != (err == nil) {
			t.Errorf("%+v: off %v, %v", c.api, s.Off(), err)
		}
	}
}
