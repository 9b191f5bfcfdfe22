package job

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/tui/cli/command"
)

// TestWishIsMet: by a job that does what is asked and nothing that is not.
func TestWishIsMet(t *testing.T) {
	t.Parallel()
	pull := func(incremental bool, more ...any) map[string]any {
		options := map[string]any{"incremental": incremental}
		for i := 0; i < len(more); i += 2 {
			options[more[i].(string)] = more[i+1]
		}
		return map[string]any{"action": "pull", "pull": options}
	}
	notes := func(words ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(words); i += 2 {
			out[words[i]] = words[i+1]
		}
		return out
	}
	massive := notes(api.AnnoAllowMassDelete, "true")
	deletion := func(paths ...any) map[string]any {
		return map[string]any{"action": "delete", "delete": map[string]any{"paths": paths}}
	}
	for name, tt := range map[string]struct {
		asked      map[string]any
		askedNotes map[string]string
		there      map[string]any
		thereNotes map[string]string
		met        bool
	}{
		"a full one for less":           {pull(true), nil, pull(false), nil, true},
		"full for full":                 {pull(false), nil, pull(false), nil, true},
		"full and the server said less": {pull(false), nil, map[string]any{"action": "pull"}, nil, true},
		"less than full":                {pull(false), nil, pull(true), nil, false},
		"another action":                {pull(false), nil, map[string]any{"action": "migrate", "migrate": map[string]any{}}, nil, false},
		"may not delete much":           {pull(true), massive, pull(true), nil, false},
		"may delete more than asked":    {pull(true), nil, pull(true), massive, false},
		"not as urgent":                 {pull(true), notes(api.AnnoPriority, "9"), pull(true), nil, false},
		"urgent without need":           {pull(true), nil, pull(true), notes(api.AnnoPriority, "9"), true},
		"another ref":                   {pull(true, "ref", "a"), nil, pull(true, "ref", "b"), nil, false},
		"other paths":                   {deletion("a", "b"), nil, deletion("a"), nil, false},
		"numbers":                       {map[string]any{"action": "pr", "pr": map[string]any{"pr": 3.0}}, nil, map[string]any{"action": "pr", "pr": map[string]any{"pr": int64(3)}}, nil, true},
	} {
		there := &unstructured.Unstructured{Object: map[string]any{"spec": tt.there}}
		tt.there["repository"] = "r"
		there.SetAnnotations(tt.thereNotes)
		if got := (request{repository: "r", spec: tt.asked, notes: tt.askedNotes}).satisfiedBy(there); got != tt.met {
			t.Errorf("%s: %v, want %v", name, got, tt.met)
		}
	}
}

// meddling does something before a request goes its way.
type meddling struct {
	next   http.RoundTripper
	before func(*http.Request)
}

func (m meddling) RoundTrip(req *http.Request) (*http.Response, error) {
	m.before(req)
	return m.next.RoundTrip(req)
}

// TestSubmitBehindARunningJob: the progress of that job is shown, and a new one is created after
// its end.
func TestSubmitBehindARunningJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("halfway")
	ended, made := make(chan error, 1), (*unstructured.Unstructured)(nil)
	pull := request{"default", "r", map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}},
		map[string]string{"note": "created without the route of a repository, which is not there"}}
	go func() {
		var err error
		made, err = submit(t.Context(), b.r, b.s, pull, WaitFlags{Wait: true, Progress: "plain"})
		ended <- err
	}()
	b.says("r-sync working 40% halfway")
	b.end(nil)
	if b.ends(ended, command.ExitOK, ""); made.GetUID() == b.job.GetUID() {
		t.Error("no job was created")
	}
}

// TestSubmitBesideAJobThatEnds: a job that is gone when it is read again hinders no
// other; where another one has come meanwhile, the refusal stays.
func TestSubmitBesideAJobThatEnds(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{false, true} {
		b := newBench(t)
		step := 0
		b.wire.next = meddling{b.wire.next, func(req *http.Request) {
			switch {
			case step == 0 && req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/jobs/r-sync"):
				step++
				b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
			case step == 1 && req.Method == http.MethodPost && another:
				step++
				b.replace()
			}
		}}
		u, err := submit(t.Context(), b.r, b.s, request{"default", "r", map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}}, MassDeleteNote(true)}, WaitFlags{Wait: true})
		switch {
		case !another && (err != nil || u.GetUID() == b.job.GetUID()):
			t.Errorf("%v", err)
		case another && (err == nil || !strings.Contains(err.Error(), "has a job of this kind already, with other options: ")):
			t.Errorf("%v %v", u, err)
		}
	}
}
