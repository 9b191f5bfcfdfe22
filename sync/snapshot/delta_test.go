package snapshot

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var (
	seed      = flag.Uint64("seed", 0, "seed of the random histories; 0 = another one each time")
	histories = flag.Int("histories", 100, "how many random histories")
)

// history makes snapshots that follow each other.
type history struct {
	*rand.Rand
	now  time.Time
	keys int // that were given
}

// fill puts random values into whatever is in v, so that a member which is added later is in the
// test at once.
func (h *history) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.SetZero(); h.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			h.fill(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(h.now.Add(time.Duration(h.IntN(1000)) * time.Millisecond)))
			return
		}
		for i := range v.NumField() {
			h.fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), h.IntN(3), 3))
		for i := range v.Len() {
			h.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString([]string{"", "a", "\u2028<b>", "c\nc", `"\`}[h.IntN(5)])
	case reflect.Bool:
		v.SetBool(h.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(h.IntN(9)))
	case reflect.Uint64:
		v.SetUint(uint64(h.IntN(9)))
	case reflect.Float64:
		v.SetFloat(float64(h.IntN(900)) / 8)
	default:
		panic("no random " + v.Type().String())
	}
}

// change adds, removes, moves and changes rows; rekey gives a row the key of another one.
func change[T any](h *history, rows []T, rekey func(row *T, key string), like func(row, other *T)) []T {
	rows = slices.Clone(rows)
	newRow := func() (row T) {
		h.fill(reflect.ValueOf(&row).Elem())
		h.keys++
		rekey(&row, fmt.Sprint("k", h.keys))
		return row
	}
	one := func(row *T) {
		old := *row
		v := reflect.ValueOf(row).Elem()
		h.fill(v.Field(h.IntN(v.NumField())))
		like(row, &old)
	}
	for range h.IntN(6) {
		switch n := len(rows); h.IntN(5) {
		case 0:
			rows = slices.Insert(rows, h.IntN(n+1), newRow())
		case 1:
			if n > 0 {
				at := h.IntN(n)
				rows = slices.Delete(rows, at, at+1)
			}
		case 2: // moves
			if n > 0 {
				from, row := h.IntN(n), *new(T)
				row = rows[from]
				rows = slices.Delete(rows, from, from+1)
				rows = slices.Insert(rows, h.IntN(n), row)
			}
		default:
			if n > 0 {
				one(&rows[h.IntN(n)])
			}
		}
	}
	if h.IntN(40) == 0 {
		h.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	}
	return rows
}

// next returns a snapshot after s, which stays as it is. All its members change now and then.
func (h *history) next(s *Snapshot) *Snapshot {
	out := *s
	v := reflect.ValueOf(&out).Elem()
	for i := range v.NumField() {
		switch v.Type().Field(i).Name {
		case "Seq", "Jobs", "Repos", "Sources", "Events":
		default:
			if h.IntN(2) == 0 {
				h.fill(v.Field(i))
			}
		}
	}
	out.Seq += 1 + uint64(h.IntN(2))
	out.Jobs = change(h, s.Jobs, func(j *Job, key string) { j.UID = key }, func(j, old *Job) {
		j.UID = old.UID
		if h.IntN(2) == 0 {
			*j = *old
			j.Log = h.lines(j.Log)
		}
	})
	out.Repos = change(h, s.Repos, func(r *Repo, key string) { r.Name = key },
		func(r, old *Repo) { r.Namespace, r.Name = old.Namespace, old.Name })
	out.Sources = change(h, s.Sources, func(from *Source, key string) { from.UID = key }, func(from, old *Source) { from.UID = old.UID })
	out.Events = h.lines(s.Events)
	return &out
}

// lines goes on at the end of a list, which may have been cut at its beginning.
func (h *history) lines(was []Event) []Event {
	out := slices.Clone(was[min(h.IntN(3), len(was)):])
	for range h.IntN(3) {
		var e Event
		h.fill(reflect.ValueOf(&e).Elem())
		out = append(out, e)
	}
	if h.IntN(20) == 0 {
		return nil
	}
	return out
}

// jsonText is a snapshot as JSON; a list without rows has one form.
func jsonText(t testing.TB, s *Snapshot) string {
	t.Helper()
	c := *s
	c.Jobs, c.Repos, c.Events = slices.Clone(s.Jobs), append([]Repo{}, s.Repos...), append([]Event{}, s.Events...)
	if len(c.Jobs) == 0 {
		c.Jobs = []Job{}
	}
	data, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// overTheWire encodes and decodes a value.
func overTheWire[T any](t testing.TB, v *T) *T {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDeltasMakeTheSnapshot: a snapshot and all deltas since make the present one, and the snapshot
// that a delta is applied to stays as it is.
func TestDeltasMakeTheSnapshot(t *testing.T) {
	t.Parallel()
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("seed=%d", n)
	var whole, part int
	for i := range uint64(*histories) {
		h := &history{Rand: rand.New(rand.NewPCG(n, i)), now: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)}
		is := h.next(h.next(h.next(&Snapshot{Seq: h.Uint64N(1 << 62)})))
		shown := overTheWire(t, is)
		for step := range 40 {
			was := is
			is = h.next(was)
			d := Diff(was, is)
			before := jsonText(t, shown)
			next, err := Apply(shown, overTheWire(t, d))
			if err != nil {
				t.Fatalf("history %d, step %d: %v", i, step, err)
			}
			if got, want := jsonText(t, next), jsonText(t, is); got != want {
				t.Fatalf("history %d, step %d: the delta\n%+v\nmade\n%s\nwant\n%s", i, step, d, got, want)
			}
			if jsonText(t, shown) != before {
				t.Fatalf("history %d, step %d: the old snapshot has changed", i, step)
			}
			shown = next
			for _, p := range d.Jobs {
				whole, part = whole+p.N+len(p.Rows), part+len(p.Rows)
			}
		}
	}
	if part*2 > whole {
		t.Errorf("%d of %d job rows were sent", part, whole)
	}
}

func TestDiffIsSmall(t *testing.T) {
	t.Parallel()
	was := &Snapshot{Seq: 1}
	for i := range 1000 {
		was.Jobs = append(was.Jobs, Job{UID: fmt.Sprint("j", i), State: "pending"})
		was.Repos = append(was.Repos, Repo{Namespace: "n", Name: fmt.Sprintf("r%03d", i)})
	}
	for i := range 200 {
		was.Events = append(was.Events, Event{At: time.Unix(int64(i), 0)})
	}
	was.Jobs[0].Log = was.Events
	is := *was
	is.Seq = 2
	if data, err := json.Marshal(Diff(was, &is)); err != nil || len(data) > 2000 {
		t.Errorf("nothing has changed: %d bytes, %v", len(data), err)
	}
	// The first job ends and moves to the end, one comes, one log and the events grow.
	is.Jobs = append(slices.Clone(was.Jobs[1:]), Job{UID: "new"}, was.Jobs[0])
	is.Jobs[1000].State = "success"
	is.Jobs[1000].Log = append(slices.Clone(was.Events[1:]), Event{Text: "end"})
	is.Events = is.Jobs[1000].Log
	d := Diff(was, &is)
	if len(d.Jobs) != 2 || d.Jobs[0].At != 1 || d.Jobs[0].N != 999 || len(d.Jobs[1].Rows) != 2 ||
		d.Events[0].N != 199 || len(d.Repos) != 1 {
		t.Errorf("%+v, %+v", d.Jobs, d.Events)
	}
}

// TestApplyRefuses: a delta for another snapshot gives an error.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	s := &Snapshot{Seq: 7, Jobs: []Job{{UID: "a", Log: []Event{{Text: "1"}}}, {UID: "b"}}}
	for name, d := range map[string]*Delta{
		"another snapshot": {From: 6},
		"too many rows":    {From: 7, Jobs: List[Job]{{N: 3}}},
		"huge":             {From: 7, Jobs: List[Job]{{At: 1, N: math.MaxInt}}},
		"below zero":       {From: 7, Jobs: List[Job]{{N: -1}}},
		"no such row":      {From: 7, Jobs: List[Job]{{At: 3}}},
		"row below zero":   {From: 7, Jobs: List[Job]{{At: -1, N: 1}}},
		"more events":      {From: 7, Events: List[Event]{{N: 1}}},
	} {
		if got, err := Apply(s, d); err == nil || got != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzApply: no delta changes the snapshot that it is applied to.
func FuzzApply(f *testing.F) {
	h := &history{Rand: rand.New(rand.NewPCG(3, 3)), now: time.Unix(1_800_000_000, 0).UTC()}
	s := &Snapshot{}
	for range 20 {
		next := h.next(s)
		was, _ := json.Marshal(s)
		d, _ := json.Marshal(Diff(s, next))
		f.Add(was, d)
		s = next
	}
	f.Add([]byte(`{"jobs":[{"uid":""},{"uid":""}]}`), []byte(`{"jobs":[{"rows":[{"uid":""}]}]}`))
	f.Fuzz(func(t *testing.T, was, change []byte) {
		s, d := new(Snapshot), new(Delta)
		if json.Unmarshal(was, s) != nil || json.Unmarshal(change, d) != nil {
			return
		}
		before := jsonText(t, s)
		next, err := Apply(s, d)
		if jsonText(t, s) != before {
			t.Fatalf("%s has changed by %s", before, change)
		}
		if err != nil {
			return
		}
		if same, err := Apply(s, Diff(s, next)); err != nil || jsonText(t, same) != jsonText(t, next) {
			t.Fatalf("compared again: %v", err)
		}
	})
}
