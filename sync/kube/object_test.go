package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func decoded(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return u
}

// samples are objects at which compact could go wrong.
var samples = []string{
	`{}`,
	`{"kind":"Job","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}`,
	`{"kind":null,"apiVersion":1,"metadata":{"name":"a","namespace":""}}`,
	`{"kind":"with \u0000 inside","metadata":{"name":"a/b","namespace":"c"}}`,
	`{"metadata":{"name":"a/b"}}`,
	`{"metadata":{"name":7,"namespace":["x"]}}`,
	`{"metadata":"none"}`,
	`{"metadata":{"name":"a","labels":{"}":"{","[":"]","=":"v",",":"n","":"empty","a\u0000b":"break"}}}`,
	`{"a":[],"b":{},"c":null,"d":[null,true,false,{},[],[[]],{"x":[1,2]}],"e":[{"y":1},{"y":2}]}`,
	`{"n":[0,-1,9223372036854775807,-9223372036854775808,1.5,-0.0,1e300,12345678901234567890]}`,
	`{"s":["0","00","1","18446744073709551615","999999999999999999","1000000000000000000","+1","-1","1.0",""," "]}`,
	`{"t":["2026-11-20T12:00:00Z","2026-11-20T12:00:00+00:00","2026-11-20T12:00:00.5Z","0001-01-01T00:00:00Z","9999-12-31T23:59:59Z","2026-02-30T00:00:00Z","1969-07-20T20:17:40Z"]}`,
	`{"u":["9f1f4d4c-98d7-b745-3ce8-7d0908a8bfc8","9F1f4d4c-98d7-b745-3ce8-7d0908a8bfc8","9f1f4d4c398d7-b745-3ce8-7d0908a8bfc8","00000000-0000-0000-0000-000000000000","--------------------------------1234"]}`,
	`{"again":["long enough","long enough","no","no",{"x":"long enough"}]}`,
	`{"metadata":{"name":"seven","namespace":"seven"},"spec":{"name":"seven"}}`,
}

// compacted returns the compact form of an object.
func compacted(t testing.TB, text string) Object { return Object{compact(decoded(t, text))} }

func TestCompactLosesNothing(t *testing.T) {
	t.Parallel()
	for _, text := range append(samples, job(7)) {
		o, whole := compacted(t, text), ObjectOf(decoded(t, text))
		if !reflect.DeepEqual(o.Unstructured(), whole.Unstructured()) {
			t.Errorf("%s became %v", text, o.Unstructured())
		}
		if o.Key() != whole.Key() || o.UID() != whole.UID() || o.ResourceVersion() != whole.ResourceVersion() ||
			!o.Created().Equal(whole.Created()) {
			t.Errorf("%s: read as %q %q %q %v", text, o.Key(), o.UID(), o.ResourceVersion(), o.Created())
		}
	}
}

// FuzzCompact makes whatever a decoder may return compact.
func FuzzCompact(f *testing.F) {
	for _, text := range append(samples, job(7)) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]any
		if utiljson.Unmarshal([]byte(text), &object) != nil || object == nil {
			return
		}
		whole, o := ObjectOf(&unstructured.Unstructured{Object: object}), compacted(t, text)
		got, errGot := json.Marshal(o.Unstructured().Object)
		want, errWant := json.Marshal(object)
		if string(got) != string(want) || errGot != nil || errWant != nil {
			t.Errorf("%s became %s", want, got)
		}
		if o.Key() != whole.Key() || o.UID() != whole.UID() || o.ResourceVersion() != whole.ResourceVersion() ||
			!o.Created().Equal(whole.Created()) {
			t.Errorf("%s: read as %q %q %q %v", text, o.Key(), o.UID(), o.ResourceVersion(), o.Created())
		}
	})
}

// Both forms of an object have the same values at every path.
func TestValuesAtPaths(t *testing.T) {
	t.Parallel()
	const text = `{"metadata":{"name":"a","labels":{"x":"text","empty":""}},
		"spec":{"int":7,"big":9223372036854775807,"float":2.75,"yes":true,"no":false,"null":null,"list":[1],"object":{"a":"b"}}}`
	all := []Path{PathTo("metadata", "labels", "x"), PathTo("metadata", "labels", "none"), PathTo("metadata", "labels", "empty"),
		PathTo("spec", "object")}
	for _, name := range []string{"int", "big", "float", "yes", "no", "null", "list", "none"} {
		all = append(all, PathTo("spec", name), PathTo("spec", name, "below"))
	}
	o, whole := compacted(t, text), ObjectOf(decoded(t, text))
	for _, p := range all {
		if o.Text(p) != whole.Text(p) || o.Number(p) != whole.Number(p) || o.Bool(p) != whole.Bool(p) {
			t.Errorf("%v: %q %d %v, want %q %d %v", p.names, o.Text(p), o.Number(p), o.Bool(p), whole.Text(p), whole.Number(p), whole.Bool(p))
		}
	}
	if text, n, yes := whole.Text(all[0]), whole.Number(PathTo("spec", "float")), whole.Bool(PathTo("spec", "yes")); text != "text" ||
		n != 2 || !yes {
		t.Errorf("read %q %d %v", text, n, yes)
	}
	if none := (Object{}); none.Key() != "" || none.UID() != "" || none.Unstructured() != nil {
		t.Error("no object has content")
	}
}

// job is a pending Job as Grafana's server makes it, without managedFields.
func job(i int) string {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	return fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"repository-%04d-pull-%06d","namespace":"default",
		"uid":"%08x-%04x-%04x-%04x-%012x","resourceVersion":"%d","generation":1,"creationTimestamp":"2026-11-20T%02d:%02d:%02dZ",
		"labels":{"provisioning.grafana.app/repository":"repository-%04d"}},
		"spec":{"action":"pull","repository":"repository-%04d","pull":{"incremental":true}},"status":{"state":"pending"}}`,
		i%1000, i, r.Uint32(), r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16), r.Int64N(1<<48), 1000+i, i/3600%24, i/60%60, i%60, i%1000, i%1000)
}

// TestWeightOfAJob measures what one more job in the cache costs.
func TestWeightOfAJob(t *testing.T) {
	const n, most = 20_000, 280 // bytes
	weigh := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	store := newStore(true)
	before := weigh()
	for i := range n {
		if err := store.Add(decoded(t, job(i))); err != nil {
			t.Fatal(err)
		}
	}
	each := int(weigh()-before) / n
	t.Logf("%d bytes per job", each)
	if each > most {
		t.Errorf("%d bytes per job, want %d at most", each, most)
	}
	runtime.KeepAlive(store)
}
