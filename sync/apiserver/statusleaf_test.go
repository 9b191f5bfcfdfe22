package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
)

var leafSeed = flag.Uint64("leafseed", 0, "seed of TestLeafPatches; 0 = another each time")

// leafTrial has patches that may be of the short kind or not, for an object that
// several managers write.
type leafTrial struct {
	*site
	rng    *rand.Rand
	target target
}

// random makes a value; one in fifteen is of another kind than what a controller writes.
func (l *leafTrial) random(member string) any {
	odd := []any{nil, 1.0, 1.5, true, "<&>", int64(7), []any{}, []any{1.0, "x"}, map[string]any{}, map[string]any{"x": int64(1)}}
	if l.rng.IntN(15) == 0 {
		return odd[l.rng.IntN(len(odd))]
	}
	words := []any{"a", "b", "a \"quoted\" \u2028 text", ""}
	switch member {
	case "message":
		return words[:l.rng.IntN(len(words))]
	case "healthy":
		return l.rng.IntN(2) == 0
	case "checked", "observedGeneration":
		return l.rng.Int64N(4)
	case "state":
		return words[l.rng.IntN(len(words))]
	case "health":
		out := map[string]any{}
		for _, name := range []string{"healthy", "checked", "message"} {
			out[name] = l.random(name)
		}
		if l.rng.IntN(4) == 0 {
			out["error"] = "health"
		}
		return out
	}
	return map[string]any{"state": l.random("state"), "message": l.random("message")}
}

var leafPaths = []string{"health", "health", "health/healthy", "health/checked", "health/message", "health/message/0", "health/x~1y", "health/checked", "sync/state", "health", "health/message",
	"sync", "sync/state", "observedGeneration", "observedGeneration/x"}

// patch makes a JSON patch.
func (l *leafTrial) patch() []byte {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var ops []op
	for range 1 + l.rng.IntN(3) {
		path := leafPaths[l.rng.IntN(len(leafPaths))]
		ops = append(ops, op{[]string{"add", "add", "add", "replace", "replace", "test"}[l.rng.IntN(6)], "/status/" + path, l.random(path[strings.LastIndex(path, "/")+1:])})
	}
	if l.rng.IntN(20) == 0 {
		ops = append(ops, op{"add", "/status", l.random("sync")})
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		l.t.Fatal(err)
	}
	return patch
}

// stored is the object as it is.
func (l *leafTrial) stored() state.Object {
	o, err := l.store.Object(l.t.Context(), objectKey(l.target.kind, l.target.namespace, l.target.name))
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

var timeOfEntry = regexp.MustCompile(`"time":"[^"]*"`)

// age gives the entries of managedFields other times, one of them to come, and may
// leave a field without an owner.
func (l *leafTrial) age() {
	times := []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2100-01-01T00:00:00Z"}
	_, err := l.store.Mutate(l.t.Context(), objectKey(l.target.kind, l.target.namespace, l.target.name), func(now *state.Object, rev uint64) (state.Mutation, error) {
		data := timeOfEntry.ReplaceAllFunc(now.Data, func([]byte) []byte { return []byte(`"time":"` + times[l.rng.IntN(len(times))] + `"`) })
		if l.rng.IntN(3) == 0 {
			data = bytes.ReplaceAll(data, []byte(`"f:checked":{},`), nil)
		}
		return state.Mutation{Data: atRevision(data, rev)}, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// long makes the plan of the long way and answers the stored form with the version as
// it was.
func (l *leafTrial) long(patch []byte, manager string) ([]byte, error) {
	o := writeOptions{Manager: manager, DryRun: true, Version: l.target.version, Validation: metav1.FieldValidationIgnore}
	out, _, err := l.Server.patch(context.Background(), l.target, types.JSONPatchType, patch, o)
	return out, err
}

// TestLeafPatches: whatever goes the short way gives the bytes of the long one, and
// moves the time of its manager alone.
func TestLeafPatches(t *testing.T) {
	seed := *leafSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-leafseed %d", seed)
	s := newSite(t)
	k, _ := kindOf(api.ProvisioningGroup, "repositories")
	l := &leafTrial{site: s, rng: rand.New(rand.NewPCG(seed, 1)), target: target{kind: k, version: k.Versions[0], namespace: "default", name: "r0000", subresource: "status"}}
	s.noted("r0000")
	managers := []string{"limpet", "limpet", "limpet", "other", "kubectl"}
	short, same := 0, 0
	for i := range 1500 {
		patch, manager := l.patch(), managers[l.rng.IntN(len(managers))]
		before := l.stored().Data
		p, ok := readLeafPatch(patch)
		for {
			now := time.Now()
			var out []byte
			if ok {
				out, ok = p.apply(before, metav1.ManagedFieldsEntry{Manager: manager, APIVersion: l.target.apiVersion(), Subresource: "status"}, now)
			}
			if !ok {
				break
			}
			want, err := l.long(patch, manager)
			if time.Now().Unix() != now.Unix() {
				continue // the times may differ
			}
			short++
			if err != nil || string(out) != string(want) {
				t.Fatalf("step %d, %s by %s on\n%s\nshort: %s\nlong:  %s, %v", i, patch, manager, before, out, want, err)
			}
			break
		}
		switch l.rng.IntN(12) {
		case 0: // others take what they did not have
			_ = s.send(http.MethodPatch, base+"repositories/r0000/status?force=true&fieldManager=applier", `application/apply-patch+yaml {"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository",
				"status":{"health":{"healthy":true,"checked":`+string("0123"[l.rng.IntN(4)])+`}}}`, nil)
		case 1:
			if s.send(http.MethodPatch, base+"repositories/r0000/status?fieldManager="+manager, "application/json-patch+json "+string(patch), nil).Code == http.StatusOK {
				same++
			}
		}
		if i%10 == 0 { // from what a controller keeps
			s.must(http.MethodDelete, base+"repositories/r0000", "")
			s.noted("r0000")
			l.age()
		}
	}
	t.Logf("%d of 1500 the short way, %d stored", short, same)
	if short < 100 {
		t.Errorf("%d of 1500 went the short way", short)
	}
}

// TestNoteOfHealthTakesTheShortWay: else it would cost ten times as much, and nobody
// would see.
func TestNoteOfHealthTakesTheShortWay(t *testing.T) {
	s := newSite(t)
	path := s.noted("r0000")
	get := s.must(http.MethodGet, path, "")
	revision, _ := at(get, "metadata", "resourceVersion").(string)
	_, patch, _ := strings.Cut(noteOfHealth(revision, 1800000000000), " ")
	k, _ := kindOf(api.ProvisioningGroup, "repositories")
	where := target{kind: k, version: k.Versions[0], namespace: "default", name: "r0000", subresource: "status"}
	if out, done, err := s.patchLeaves(t.Context(), where, []byte(patch), writeOptions{Manager: "limpet"}); !done || err != nil {
		t.Fatalf("%s: %v, %v", out, done, err)
	}
	now := s.must(http.MethodGet, path, "")
	if checked := at(now, "status", "health", "checked"); checked != 1800000000000. {
		t.Errorf("checked %v", checked)
	}
	if v := at(now, "metadata", "resourceVersion"); v == revision {
		t.Error("the version is as it was")
	}
	if out, done, _ := s.patchLeaves(t.Context(), where, []byte(patch), writeOptions{Manager: "limpet"}); done {
		t.Errorf("a patch of an old version was carried out: %s", out)
	}
	if rec := s.send(http.MethodPatch, path+"/status", "application/json-patch+json "+patch, nil); rec.Code != http.StatusUnprocessableEntity {
		t.Errorf("it was answered with %d", rec.Code)
	}
}
