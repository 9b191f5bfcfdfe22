package kube

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"limpet/sync/api"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestFollow: what a stream of metadata tells, from servers that the API machinery of the tests is
// not: older ones, and such as send nonsense. The rest is tested on the real ones, in sync/refs.
func TestFollow(t *testing.T) {
	t.Parallel()
	const (
		added   = `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"1","labels":{"x":"y"}}}}`
		whole   = `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","data":{"token":"QUFB"},"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"1"}}}`
		deleted = `{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"2"}}}`
		mark    = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"3"}}}`
		end     = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old"}}`
		refusal = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}`
		denial  = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no"}`
	)
	isBroken := func(err error) bool { return errors.Is(err, errBrokenStream) && !strings.Contains(err.Error(), "QUFB") }
	a1 := ObjectVersion{"ns", "a", "u 1", map[string]string{"x": "y"}}
	for _, c := range []struct {
		what    string
		old     bool // a server that knows no initial events
		code    int
		answer  string
		want    []ObjectVersion
		whole   int
		failure func(error) bool
	}{
		{what: "all, and its end", answer: added + end + mark + deleted, want: []ObjectVersion{a1, {"ns", "a", "", nil}}, whole: 1},
		{what: "an older server", old: true, answer: added, want: []ObjectVersion{a1}},
		{what: "one that knows no metadata alone", answer: whole + end, want: []ObjectVersion{{"ns", "a", "u 1", nil}}, whole: 1},
		{what: "an error in the stream", answer: added + expired, want: []ObjectVersion{a1}, failure: apierrors.IsResourceExpired},
		{what: "a broken stream", answer: added + added[:20], want: []ObjectVersion{a1}},
		{what: "an event without end", answer: `{"type":"ADDED","object":{"data":"` + strings.Repeat("x", mostEvent+1<<20), failure: isBroken},
		{what: "no object", answer: `{"type":"ADDED","object":{"data":{"token":"QUFB"}}}`, failure: isBroken},
		{what: "not allowed", code: 403, answer: denial, failure: apierrors.IsForbidden},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				if r.URL.Path != "/api/v1/namespaces/ns/secrets" || q.Get("fieldSelector") != "metadata.name=a" ||
					!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
					t.Errorf("asked %s, accepts %s", r.URL, r.Header.Get("Accept"))
				}
				w.Header().Set("Content-Type", "application/json")
				if c.old && q.Has("sendInitialEvents") {
					w.WriteHeader(http.StatusUnprocessableEntity)
					io.WriteString(w, refusal)
					return
				}
				if c.code > 0 {
					w.WriteHeader(c.code)
				}
				io.WriteString(w, c.answer)
			}))
			t.Cleanup(server.Close)
			client, err := Connect(t.Context(), Config{Server: server.URL, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			var got []ObjectVersion
			wholes := 0
			err = client.WatchVersions(t.Context(), api.Secrets, "ns", "a", func(m ObjectVersion) { got = append(got, m) }, func() { wholes++ })
			if (err != nil) != (c.failure != nil) || err != nil && !c.failure(err) {
				t.Errorf("error %v", err)
			}
			if !reflect.DeepEqual(got, c.want) || wholes != c.whole {
				t.Errorf("saw %v and %d ends, want %v and %d", got, wholes, c.want, c.whole)
			}
		})
	}
}
