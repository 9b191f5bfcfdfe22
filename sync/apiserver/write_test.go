package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
)

// A write that lost a race reads the object again; an error of that read is returned,
// and not taken for an object that is not there.
func TestContentionWithAFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	k := folderKind(t)
	at := target{kind: k, version: "v1", namespace: "default", name: "a"}
	_, err := s.change(t.Context(), at, writeOptions{}, func(cur found) (*plan, error) {
		if cur.object == nil {
			t.Error("an object that cannot be read is taken for an absent one")
			return nil, at.notFound()
		}
		_, err := s.store.Mutate(t.Context(), at.key(), func(*state.Object, uint64) (state.Mutation, error) {
			return state.Mutation{Data: []byte(`{"metadata":`)}, nil
		})
		cur.object.SetLabels(map[string]string{"x": "y"})
		return &plan{target: at, object: cur.object}, err
	})
	if err == nil || !strings.Contains(err.Error(), "read stored object") {
		t.Errorf("%v, want the fault of the second read", err)
	}
}

// Errors of the store become Status errors.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for err, want := range map[error]int32{
		fmt.Errorf("write: %w", state.ErrFull):     http.StatusInsufficientStorage,
		fmt.Errorf("write: %w", syscall.ENOSPC):    http.StatusInsufficientStorage,
		fmt.Errorf("write: %w", state.ErrReadOnly): http.StatusInsufficientStorage,
		state.ErrClosed:          http.StatusServiceUnavailable,
		context.DeadlineExceeded: http.StatusGatewayTimeout,
		errors.New("other"):      http.StatusInternalServerError,
	} {
		if got := s.statusOf(t.Context(), err); got.Code != want || got.Kind != "Status" || got.Status != metav1.StatusFailure {
			t.Errorf("%v: %+v, want %d", err, got, want)
		}
	}
	ended, end := context.WithCancelCause(t.Context())
	why := errors.New("agent is shutting down")
	end(why)
	if got := s.statusOf(ended, fmt.Errorf("write: %w", why)); got.Code != http.StatusGatewayTimeout {
		t.Errorf("the end of a request: %+v", got)
	}
	s.close()
	if code, _ := s.call("POST", folderPath, folder("a", "one", "")); code != http.StatusServiceUnavailable {
		t.Errorf("after the end: %d", code)
	}
	if rec := s.send("GET", "/readyz", "", nil); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("readyz after the end: %d", rec.Code)
	}
}

func TestStrategicMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, patch, want string }{
		{"members merge", `{"data":{"a":"1","b":"2"}}`, `{"data":{"b":"3","c":"4"}}`, `{"data":{"a":"1","b":"3","c":"4"}}`},
		{"null removes", `{"data":{"a":"1"},"type":"T"}`, `{"data":{"a":null}}`, `{"data":{},"type":"T"}`},
		{"finalizers are added", `{"metadata":{"finalizers":["a"]}}`,
			`{"metadata":{"finalizers":["a","b"],"$setElementOrder/finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["a","b"]}}`},
		{"finalizers are taken", `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`,
			`{"metadata":{"finalizers":["b"]}}`},
		{"owners merge by uid", `{"metadata":{"ownerReferences":[{"uid":"1","name":"x"}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"1","name":"y"},{"uid":"2","name":"z"}]}}`,
			`{"metadata":{"ownerReferences":[{"name":"y","uid":"1"},{"name":"z","uid":"2"}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := strategicPatched([]byte(c.before), []byte(c.patch))
			if err != nil || string(got) != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
	for _, hostile := range []string{`[]`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}`} {
		if _, err := strategicPatched([]byte(`{"metadata":{"finalizers":[{}]}}`), []byte(hostile)); err == nil {
			t.Errorf("%s is accepted", hostile)
		}
	}
}

func (s *site) apply(path, manager, config string) (int, map[string]any) {
	s.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return s.call("PATCH", path+separator+"fieldManager="+manager, "application/apply-patch+yaml "+config)
}

// Server-side apply by kubectl takes over what its client-side apply wrote, as
// long as no other client changed it.
func TestApplyAfterClientSideApply(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, changed := range map[string]bool{"a": false, "b": true} {
		config := folder(name, "one", "")
		quoted, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		s.must("POST", folderPath+"?fieldManager=kubectl-client-side-apply",
			folder(name, "one", `,"annotations":{"`+lastApplied+`":`+string(quoted)+`}`))
		if changed {
			s.must("PATCH", folderPath+"/"+name, `{"spec":{"title":"other"}}`)
		}
		if code, _ := s.apply(folderPath+"/"+name, "site", folder(name, "two", "")); code != http.StatusConflict {
			t.Errorf("%s: another manager is answered with %d", name, code)
		}
		code, answer := s.apply(folderPath+"/"+name, "kubectl", folder(name, "two", ""))
		if want := map[bool]int{false: 200, true: 409}[changed]; code != want {
			t.Errorf("%s: kubectl is answered with %d, want %d", name, code, want)
		}
		if note, _ := at(answer, "metadata", "annotations", lastApplied).(string); !changed && !strings.Contains(note, `"title":"two"`) {
			t.Errorf("the annotation is not renewed: %q", note)
		}
	}
}

// The stored bytes of an object do not hold what only answers have.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	older := strings.Replace(folderPath, "/v1/", "/v1beta1/", 1)
	answer := s.send("POST", older, strings.Replace(folder("a", "one", ""), "/v1", "/v1beta1", 1), nil).Body.Bytes()
	k := folderKind(t)
	o, err := s.store.Object(t.Context(), target{kind: k, namespace: "default", name: "a"}.key())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(answer, []byte(`"apiVersion":"folder.grafana.app/v1beta1"`)) ||
		!bytes.HasPrefix(o.Data, []byte(`{"apiVersion":"folder.grafana.app/v1",`)) {
		t.Errorf("answered %s\nstored %s", answer, o.Data)
	}
	if text(o.Data, find(o.Data, "metadata", "resourceVersion")) != formatRevision(o.Revision) {
		t.Errorf("revision %d is stored as %s", o.Revision, o.Data)
	}
}

// TestOwnDashboard: a dashboard that this process creates is stored with the text of its spec, and
// behaves as any other one.
func TestOwnDashboard(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const (
		path = "/apis/dashboard.grafana.app/v1/namespaces/default/dashboards"
		spec = `{"title":"<one>","b":[1.50,{"z":1,"a":2}],"a":null}`
		body = `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"a"},"spec":` + spec + `}`
	)
	if code, answer := s.call("POST", path+"?fieldManager="+processManager+"&dryRun=All", body); code != http.StatusCreated ||
		at(answer, "spec", "title") != "<one>" {
		t.Fatalf("a trial is answered with %d: %v", code, answer)
	}
	created := s.send("POST", path+"?fieldManager="+processManager, body, nil)
	if created.Code != http.StatusCreated || !bytes.Contains(created.Body.Bytes(), []byte(spec)) {
		t.Fatalf("answered %d: %s", created.Code, created.Body)
	}
	_, live := s.call("GET", path+"/a", "")
	if at(live, "metadata", "managedFields") != nil {
		t.Error("its fields have an owner")
	}
	whole, err := json.Marshal(live)
	if err != nil {
		t.Fatal(err)
	}
	if code, same := s.call("PUT", path+"/a", string(whole)); code != http.StatusOK ||
		at(same, "metadata", "resourceVersion") != at(live, "metadata", "resourceVersion") {
		t.Errorf("the same object is answered with %d and stored again", code)
	}
	label, changed := s.call("PATCH", path+"/a", `{"metadata":{"labels":{"x":"y"}}}`)
	if label != http.StatusOK || at(changed, "metadata", "generation") != at(live, "metadata", "generation") {
		t.Errorf("a label is answered with %d, generation %v", label, at(changed, "metadata", "generation"))
	}
	config := strings.Replace(body, "<one>", "two", 1)
	if code, answer := s.apply(path+"/a", "site", config); code != http.StatusConflict ||
		!strings.Contains(fmt.Sprint(answer["message"]), "before-first-apply") {
		t.Errorf("another manager is answered with %d: %v", code, answer["message"])
	}
	if code, answer := s.apply(path+"/a?force=true", "site", config); code != http.StatusOK || at(answer, "spec", "title") != "two" {
		t.Errorf("force is answered with %d: %v", code, answer)
	}
}

// TestPreparedEnd: the end of a dashboard that its maker has compressed is what is stored. It is
// compressed anew where it is not the whole end.
func TestPreparedEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	spec := `{"title":"one","panels":[` + strings.Repeat(`{"type":"text"},`, 300) + `{}]}`
	for name, c := range map[string]struct{ end, want string }{
		"prepared":       {`,"spec":` + strings.Replace(spec, "one", "two", 1) + `}`, "two"},
		"of another":     {`,"spec":` + strings.Replace(spec, "one", "three", 1) + `}`, "one"},
		"without a tail": {"", "one"},
	} {
		end, err := s.store.Tail([]byte(c.end), 0)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"` + strings.ReplaceAll(name, " ", "-") +
			`"},"spec":` + spec + `}`
		ctx := api.WithStrictBody(t.Context(), api.StrictBody{Text: []byte(body), Spec: len(spec), End: end})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost,
			"http://embedded/apis/dashboard.grafana.app/v1/namespaces/default/dashboards?fieldManager="+processManager, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", mediaJSON)
		answer, err := s.Transport().RoundTrip(req)
		if err != nil || answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %v, %v", name, answer, err)
		}
		answer.Body.Close()
		key := state.ObjectKey{Resource: "dashboard.grafana.app/dashboards", Namespace: "default", Name: strings.ReplaceAll(name, " ", "-")}
		if o, err := s.store.Object(t.Context(), key); err != nil || text(o.Data, find(o.Data, "spec", "title")) != c.want {
			t.Errorf("%s: stored is %.200s, %v", name, o.Data, err)
		}
	}
}
