package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"limpet/state/frame"
)

// put is a mutation that writes data.
func put(data string) func(*Object, uint64) (Mutation, error) {
	return func(*Object, uint64) (Mutation, error) { return Mutation{Data: []byte(data)}, nil }
}

func remove(*Object, uint64) (Mutation, error) { return Mutation{Delete: true}, nil }

func keep(*Object, uint64) (Mutation, error) { return Mutation{Keep: true}, nil }

func TestMutate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	var events []string
	s.OnObjects(func(batch []ObjectEvent) {
		for _, e := range batch {
			events = append(events, fmt.Sprintf("%s %s %s<-%s", e.Type, e.Object.Key.Name, e.Object.Data, e.Previous))
		}
	})
	key := ObjectKey{"g/jobs", "ns", "a"}
	boom := errors.New("boom")
	start := infoOf(t, s).Revision
	if start < uint64(time.Now().Add(-time.Hour).UnixMicro()) {
		t.Fatalf("first revision %d", start)
	}
	steps := []struct {
		name string
		fn   func(*Object, uint64) (Mutation, error)
		data string
		rev  uint64 // relative to the start
		err  error
	}{
		{"keep of what is absent", keep, "", 0, nil},
		{"delete of what is absent", remove, "", 0, ErrNotFound},
		{"add", put("1"), "1", 1, nil},
		{"keep", keep, "1", 1, nil},
		{"change", put("2"), "2", 2, nil},
		{"refuse", func(cur *Object, rev uint64) (Mutation, error) {
			if string(cur.Data) != "2" || cur.Revision != start+2 || rev != start+3 {
				return Mutation{}, fmt.Errorf("saw %+v and revision %d", cur, rev)
			}
			return Mutation{}, boom
		}, "", 0, boom},
		{"delete", remove, "2", 3, nil},
		{"add again", put("3"), "3", 4, nil},
	}
	for _, step := range steps {
		o, err := s.Mutate(ctx, key, step.fn)
		if step.err != nil {
			if !errors.Is(err, step.err) {
				t.Errorf("%s: error %v, want %v", step.name, err, step.err)
			}
			continue
		}
		if step.rev > 0 {
			step.rev += start
		}
		if err != nil || string(o.Data) != step.data || o.Revision != step.rev {
			t.Errorf("%s: %s at %d, %v; want %s at %d", step.name, o.Data, o.Revision, err, step.data, step.rev)
		}
	}
	if _, err := s.Mutate(ctx, key, func(*Object, uint64) (Mutation, error) { return Mutation{}, nil }); err == nil {
		t.Error("a mutation without data was taken")
	}
	want := []string{"ADDED a 1<-", "MODIFIED a 2<-1", "DELETED a 2<-2", "ADDED a 3<-"}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	if rev := infoOf(t, s).Revision; rev != start+4 {
		t.Errorf("revision %d", rev)
	}
	if o, err := s.Object(ctx, key); err != nil || string(o.Data) != "3" || o.Key != key {
		t.Errorf("object %+v, %v", o, err)
	}
	if _, err := s.Object(ctx, ObjectKey{"g/jobs", "ns", "b"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("absent object: %v", err)
	}
}

// TestMutateAlso: changes of other objects are stored with the one of Mutate, each under a revision
// of its own, or not at all.
func TestMutateAlso(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	var events []string
	s.OnObjects(func(batch []ObjectEvent) {
		for _, e := range batch {
			events = append(events, fmt.Sprint(e.Type, e.Object.Key.Name, e.Object.Revision))
		}
	})
	key := func(name string) ObjectKey { return ObjectKey{"g/jobs", "ns", name} }
	start := infoOf(t, s).Revision
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.Mutate(t.Context(), key(name), put("1")); err != nil {
			t.Fatal(err)
		}
	}
	events = nil
	with := func(last func(*Object, uint64) (Mutation, error)) func(*Object, uint64) (Mutation, error) {
		return func(*Object, uint64) (Mutation, error) {
			return Mutation{Delete: true, Also: []Change{{key("b"), put("2")}, {key("c"), last}}}, nil
		}
	}
	boom := errors.New("boom")
	if _, err := s.Mutate(t.Context(), key("a"), with(func(*Object, uint64) (Mutation, error) { return Mutation{}, boom })); err != boom {
		t.Errorf("refused with %v", err)
	}
	if o, err := s.Object(t.Context(), key("a")); err != nil || len(events) > 0 || infoOf(t, s).Revision != start+3 {
		t.Errorf("after a refusal: %v, %v, events %q", o, err, events)
	}
	if o, err := s.Mutate(t.Context(), key("a"), with(remove)); err != nil || o.Revision != start+4 {
		t.Errorf("%v, %v", o, err)
	}
	want := []string{fmt.Sprint(EventDeleted, "a", start+4), fmt.Sprint(EventModified, "b", start+5), fmt.Sprint(EventDeleted, "c", start+6)}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

func TestMutateErrorIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	for _, refusal := range []error{errors.New("boom"), ErrCorrupt, fmt.Errorf("quota of the caller: %w", syscall.ENOSPC)} {
		_, err := s.Mutate(context.Background(), ObjectKey{"g/jobs", "", "a"}, func(*Object, uint64) (Mutation, error) {
			return Mutation{},
				refusal
		})
		if err != refusal {
			t.Errorf("error %#v", err)
		}
	}
	if s.damaged.Load() {
		t.Error("an error of the caller counts as damage")
	}
}

func TestMutatePanicReachesItsCaller(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = s.Mutate(context.Background(), ObjectKey{"g/jobs", "", "a"},
			func(*Object, uint64) (Mutation, error) { panic("fault of the caller") })
	}()
	if _, err := s.Mutate(context.Background(), ObjectKey{"g/jobs", "", "a"}, put("1")); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestObjectsAreListed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	for _, k := range []ObjectKey{
		{"g/jobs", "b", "1"}, {"g/jobs", "a", "2"}, {"g/jobs", "a", "1"}, {"g/jobs", "", "0"}, {"g/jobs", "ab", "1"},
		{"g/job", "a", "x"}, {"g/jobsets", "a", "y"}, {"/secrets", "a", "z"},
	} {
		if _, err := s.Mutate(ctx, k, put("{}")); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		name string
		q    ObjectQuery
		want []string
	}{
		{"all namespaces", ObjectQuery{Resource: "g/jobs"}, []string{"/0", "a/1", "a/2", "ab/1", "b/1"}},
		{"one namespace", ObjectQuery{Resource: "g/jobs", Namespace: "a"}, []string{"a/1", "a/2"}},
		{"core group", ObjectQuery{Resource: "/secrets"}, []string{"a/z"}},
		{"nothing", ObjectQuery{Resource: "g/none"}, nil},
	}
	rev := infoOf(t, s).Revision
	for _, c := range cases {
		for limit := range 4 {
			var got []string
			pages := 0
			for q := c.q; ; pages++ {
				q.Limit = limit
				page, err := s.Objects(ctx, q)
				if err != nil || page.Revision != rev || limit > 0 && len(page.Items) > limit {
					t.Fatalf("%s: %+v, %v", c.name, page, err)
				}
				for _, o := range page.Items {
					got = append(got, o.Key.Namespace+"/"+o.Key.Name)
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, limit %d: %v, want %v", c.name, limit, got, c.want)
			}
		}
	}
	page, err := s.Objects(ctx, ObjectQuery{Resource: "g/jobs", Limit: 1})
	must(t, err)
	for _, q := range []ObjectQuery{
		{Resource: "g/jobs", After: "%"}, {Resource: "g/other", After: page.Next}, {Resource: ""}, {Resource: "a\x00b"},
	} {
		if _, err := s.Objects(ctx, q); err == nil {
			t.Errorf("query %+v was taken", q)
		}
	}
}

// TestRevisionsGrowUnderLoad: each change gets a revision of its own, events come in their order,
// before the writer hears.
func TestRevisionsGrowUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	var mu sync.Mutex // guards seen
	seen := map[uint64]bool{}
	last := uint64(0)
	s.OnObjects(func(batch []ObjectEvent) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range batch {
			if e.Object.Revision <= last {
				t.Errorf("revision %d after %d", e.Object.Revision, last)
			}
			last = e.Object.Revision
			seen[last] = true
		}
	})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 50 {
				o, err := s.Mutate(ctx, ObjectKey{"g/jobs", "ns", fmt.Sprint(i % 5)}, put(fmt.Sprint(g, i)))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if !seen[o.Revision] {
					t.Errorf("writer of revision %d heard of it before the watchers", o.Revision)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(seen) != 400 {
		t.Errorf("%d events", len(seen))
	}
}

// zstdMagic begins what zstd has made.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// TestStoredForm: what is written is read again, and takes the space that its text needs.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	text := strings.Repeat(`{"type":"graph","title":"cpu"},`, 1000)
	for name, c := range map[string]struct {
		data string
		most int // bytes that are stored
	}{
		"small":               {`{"spec":{}}`, 11},
		"below the limit":     {text[:frame.PackedFrom-1], frame.PackedFrom - 1},
		"large":               {text, len(text) / 20},
		"random":              {incompressible(50_000), 50_000},
		"begins as zstd does": {string(zstdMagic) + "x", 40},
		"zstd that is large":  {string(zstdMagic) + text, len(text) / 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, Options{})
			key := ObjectKey{"g/dashboards", "default", "a"}
			if _, err := s.Mutate(ctx, key, put(c.data)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Object(ctx, key); err != nil || string(got.Data) != c.data {
				t.Errorf("read %d bytes, %v", len(got.Data), err)
			}
			page, err := s.Objects(ctx, ObjectQuery{Resource: key.Resource})
			if err != nil || len(page.Items) != 1 || string(page.Items[0].Data) != c.data {
				t.Errorf("listed %d, %v", len(page.Items), err)
			}
			m, err := read(ctx, s, func(v view) (frame.Meta, error) { return v.meta() })
			if stored := m.Counters[frame.Objects].Bytes; err != nil || stored > int64(c.most+frame.HeaderSize+64) {
				t.Errorf("%d bytes are stored for %d, want at most %d; %v", stored, len(c.data), c.most, err)
			}
		})
	}
}

// TestTail: an object whose end was compressed before is the same object.
func TestTail(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	text := `{"metadata":{"resourceVersion":"0"}` + strings.Repeat(`,"spec":{"title":"cpu"}`, 1000)
	for name, c := range map[string]struct {
		data string
		from int
	}{
		"large": {text, 35}, "all": {text, 0}, "nothing": {text, len(text)}, "small": {text[:100], 35}, "random": {incompressible(50_000), 9},
	} {
		tail, err := s.Tail([]byte(c.data), c.from)
		must(t, err)
		key := ObjectKey{"g/dashboards", "default", name}
		_, err = s.Mutate(t.Context(), key, func(*Object, uint64) (Mutation, error) { return Mutation{Data: []byte(c.data), Tail: tail}, nil })
		must(t, err)
		if got, err := s.Object(t.Context(), key); err != nil || string(got.Data) != c.data {
			t.Errorf("%s: read %d bytes of %d, %v", name, len(got.Data), len(c.data), err)
		}
		if end, err := s.ReadTail(tail); err != nil || tail.Size() > 0 && string(end) != c.data[c.from:] || len(end) != tail.Size() {
			t.Errorf("%s: the tail has %d bytes, %v", name, len(end), err)
		}
	}
}

// TestWrongCompression is damage, though its checksum is right.
func TestWrongCompression(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	key := ObjectKey{"g/dashboards", "default", "a"}
	k, err := key.bytes()
	must(t, err)
	must(t, s.write(t.Context(), func(w *txn) error {
		return w.putStamped(frame.Objects, k, append(bytes.Clone(zstdMagic), "no frame"...), 1)
	}))
	if _, err := s.Object(t.Context(), key); !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v", err)
	}
	if _, err := s.Objects(t.Context(), ObjectQuery{Resource: key.Resource}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("list: error %v", err)
	}
	must(t, s.write(t.Context(), func(w *txn) error { return w.remove(frame.Objects, k) }))
}

// TestArtifactsOfKinds: sources of one name and of several kinds have their own records, and those
// of before there were several kinds are of GitRepositories.
func TestArtifactsOfKinds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	git := SourceKey{Kind: "gitrepository", Namespace: "default", Name: "site"}
	oci := SourceKey{Kind: "ocirepository", Namespace: "default", Name: "site"}
	for key, revision := range map[SourceKey]string{git: "main@sha1:1", oci: "v1@sha256:2"} {
		before := Artifact{Namespace: key.Namespace, Name: key.Name, Revision: revision} // without a kind, as in old records
		if _, err := s.ChangeArtifacts(ctx, key, func([]Artifact) []Artifact { return []Artifact{before} }); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.AllArtifacts(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for key, revision := range map[SourceKey]string{git: "main@sha1:1", oci: "v1@sha256:2"} {
		list, err := s.Artifacts(ctx, key)
		if err != nil || len(list) != 1 || list[0].Revision != revision || list[0].Source() != key || len(all[key]) != 1 ||
			all[key][0].Source() != key {
			t.Errorf("%s has %v, %v, of all %v", key, list, err, all[key])
		}
	}
	if key := sourceOf("artifact/default/site"); key != git || key.record() != "artifact/default/site" {
		t.Errorf("the record of before is of %s", key)
	}
}
