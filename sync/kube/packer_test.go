package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"limpet/sync/api"

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

// samples are objects at which packing could go wrong.
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

func TestPackingLosesNothing(t *testing.T) {
	t.Parallel()
	p := newPacker()
	for range 2 { // the second time the shapes are known
		for _, text := range samples {
			u := decoded(t, text)
			packed := p.pack(u)
			if got := p.unpack(packed); !reflect.DeepEqual(got.Object, decoded(t, text).Object) {
				t.Errorf("%s became %v", text, got.Object)
			}
			if key := keyIn(packed); key != objectKey(u.GetNamespace(), u.GetName()) {
				t.Errorf("%s: key %q", text, key)
			}
		}
	}
}

// FuzzPacking packs whatever a decoder may make.
func FuzzPacking(f *testing.F) {
	for _, text := range samples {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]any
		if utiljson.Unmarshal([]byte(text), &object) != nil || object == nil {
			return
		}
		p, u := newPacker(), &unstructured.Unstructured{Object: object}
		packed := p.pack(u)
		again := p.unpack(packed)
		if !reflect.DeepEqual(again.Object, u.Object) {
			t.Errorf("%s became %v", text, again.Object)
		}
		s := Object{packed: packed, from: &origin{packer: p}}
		if whole := ObjectOf(u); s.UID() != whole.UID() || s.ResourceVersion() != whole.ResourceVersion() || !s.Created().Equal(whole.Created()) {
			t.Errorf("%s: seen as %s, %s, %s", text, s.UID(), s.ResourceVersion(), s.Created())
		}
	})
}

// TestSightOfBothForms: what is read from a packed object is what stands in the
// whole one, at every path.
func TestSightOfBothForms(t *testing.T) {
	t.Parallel()
	p := newPacker()
	var walk func(path []string, v any, visit func([]string))
	walk = func(path []string, v any, visit func([]string)) {
		visit(path)
		if fields, ok := v.(map[string]any); ok {
			for name, below := range fields {
				walk(append(path[:len(path):len(path)], name), below, visit)
			}
		}
	}
	for _, text := range append(samples, job(7)) {
		u := decoded(t, text)
		packed := p.pack(u)
		s, whole := Object{packed: packed, from: &origin{packer: p}}, ObjectOf(u)
		if s.Namespace() != whole.Namespace() || s.Name() != whole.Name() {
			t.Errorf("%s: %s, %s", text, s.Namespace(), s.Name())
		}
		walk(nil, u.Object, func(names []string) {
			for _, path := range []Path{PathTo(names...), PathTo(append(names[:len(names):len(names)], "none")...)} {
				if s.Text(path) != whole.Text(path) || s.Number(path) != whole.Number(path) || s.Bool(path) != whole.Bool(path) {
					t.Errorf("%s at %q: %q %d, want %q %d", text, names, s.Text(path), s.Number(path), whole.Text(path), whole.Number(path))
				}
			}
		})
	}
}

// TestShapesAreBounded: names of members that never occur twice do not grow the
// packer without end.
func TestShapesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPacker()
	for i := range 3 * mostShapes {
		text := fmt.Sprintf(`{"metadata":{"name":"a","uid":"u%d","labels":{"label-%d":"x"}}}`, i, i)
		packed := p.pack(decoded(t, text))
		s := Object{packed: packed, from: &origin{packer: p}}
		if !reflect.DeepEqual(s.Unstructured(), decoded(t, text)) || s.UID() != "u"+strconv.Itoa(i) {
			t.Fatalf("%s became %v", text, s.Unstructured())
		}
	}
	packed := p.pack(decoded(t, `{"x":"`+strings.Repeat("x", mostShape)+`","`+strings.Repeat("n", mostShape)+`":1}`))
	if _, _, r := p.open(packed); len(*p.shapes.Load()) != mostShapes+1 || packed[r.at] != '{' {
		t.Errorf("%d shapes", len(*p.shapes.Load()))
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

// TestWeightOfAJob measures what one more job in the picture costs.
func TestWeightOfAJob(t *testing.T) {
	const n = 20_000
	most := 260 // bytes
	weigh := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p := newPicture(true)
	before := weigh()
	for i := range n {
		if err := p.Add(p.hold(decoded(t, job(i)))); err != nil {
			t.Fatal(err)
		}
	}
	each := int(weigh()-before) / n
	t.Logf("%d bytes per job", each)
	if each > most {
		t.Errorf("%d bytes per job, want %d at most", each, most)
	}
	runtime.KeepAlive(p)
}

func BenchmarkPack(b *testing.B) {
	p, u := newPacker(), decoded(b, job(1))
	b.ReportAllocs()
	for b.Loop() {
		p.pack(u)
	}
}

func BenchmarkUnpack(b *testing.B) {
	p := newPacker()
	packed := p.pack(decoded(b, job(1)))
	b.ReportAllocs()
	for b.Loop() {
		p.unpack(packed)
	}
}

// BenchmarkObjects looks at the members of ten thousand jobs that decide about
// their place in a queue.
func BenchmarkObjects(b *testing.B) {
	const n = 10_000
	p := newPicture(true)
	for i := range n {
		if err := p.Add(p.hold(decoded(b, job(i)))); err != nil {
			b.Fatal(err)
		}
	}
	claim, repository := PathTo("metadata", "labels", api.LabelClaim), PathTo("spec", "repository")
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range p.all() {
			if s.Text(claim) != "" || s.Text(repository) == "" || s.Created().IsZero() {
				b.Fatal(s.Unstructured())
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/job")
}

func BenchmarkDecode(b *testing.B) {
	data := []byte(job(1))
	b.ReportAllocs()
	for b.Loop() {
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			b.Fatal(err)
		}
	}
}
