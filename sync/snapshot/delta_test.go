package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

// history makes pictures that follow each other.
type history struct {
	*rand.Rand
	now time.Time
}

// fill puts random values into whatever is in v, so that a member which is added
// later is in the test at once.
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

// one changes one member of a row somewhere.
func (h *history) one(row any) {
	v := reflect.ValueOf(row).Elem()
	h.fill(v.Field(h.IntN(v.NumField())))
}

func change[T any](h *history, rows []T, newRow func() T, one func(*T)) []T {
	rows = slices.Clone(rows)
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

// next is the picture after s, which stays as it is. All its members change now
// and then.
func (h *history) next(s *Snapshot) *Snapshot {
	out := *s
	keys := map[string]bool{}
	unique := func(prefix string) string {
		for {
			if k := fmt.Sprint(prefix, h.IntN(1e6)); !keys[k] {
				keys[k] = true
				return k
			}
		}
	}
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
	for i := range s.Jobs {
		keys[s.Jobs[i].UID] = true
	}
	out.Seq += 1 + uint64(h.IntN(2))
	out.Jobs = change(h, s.Jobs, func() Job { var j Job; h.fill(reflect.ValueOf(&j).Elem()); j.UID = unique("j"); return j }, func(j *Job) {
		if h.IntN(2) == 0 {
			j.Log = h.lines(j.Log)
			return
		}
		uid := j.UID
		h.one(j)
		j.UID = uid
	})
	out.Repos = change(h, s.Repos, func() Repo { var r Repo; h.fill(reflect.ValueOf(&r).Elem()); r.Name = unique("r"); return r }, func(r *Repo) {
		namespace, name := r.Namespace, r.Name
		h.one(r)
		r.Namespace, r.Name = namespace, name
	})
	out.Sources = change(h, s.Sources, func() Source {
		var from Source
		h.fill(reflect.ValueOf(&from).Elem())
		from.UID = unique("s")
		return from
	}, func(from *Source) {
		uid := from.UID
		h.one(from)
		from.UID = uid
	})
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

// jsonText is how a picture looks to who gets it as JSON; a list without rows has one
// form.
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

// TestDeltasMakeThePicture: a picture and all changes since are the picture of
// now, whatever has happened, and the picture that was changed is as before.
func TestDeltasMakeThePicture(t *testing.T) {
	t.Parallel()
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("seed=%d", n)
	var deltas, whole, part int
	for i := range uint64(*histories) {
		h := &history{rand.New(rand.NewPCG(n, i)), time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)}
		is := h.next(h.next(h.next(&Snapshot{Seq: h.Uint64N(1 << 62)})))
		shown := overTheWire(t, is)
		for step := range 40 {
			was := is
			is = h.next(was)
			d := Diff(was, is)
			if d == nil {
				t.Fatalf("history %d, step %d: no change can be told", i, step)
			}
			before := jsonText(t, shown)
			next, err := Apply(shown, overTheWire(t, d))
			if err != nil {
				t.Fatalf("history %d, step %d: %v", i, step, err)
			}
			if got, want := jsonText(t, next), jsonText(t, is); got != want {
				t.Fatalf("history %d, step %d: the change\n%+v\nmade\n%s\nwant\n%s", i, step, d, got, want)
			}
			if jsonText(t, shown) != before {
				t.Fatalf("history %d, step %d: the picture that was changed is another", i, step)
			}
			shown = next
			deltas++
			if len(is.Jobs) > 0 && d.Jobs != nil {
				whole, part = whole+len(is.Jobs), part+len(d.Jobs.Put)
			}
		}
	}
	if part*2 > whole {
		t.Errorf("%d changes had %d of %d job rows", deltas, part, whole)
	}
	t.Logf("%d changes", deltas)
}

// TestSameSeesEveryMember: a member that the comparison forgets would never
// change on a screen.
func TestSameSeesEveryMember(t *testing.T) {
	t.Parallel()
	h := &history{rand.New(rand.NewPCG(1, 1)), time.Unix(1_800_000_000, 0).UTC()}
	eachMember(t, h, sameJob)
	eachMember(t, h, sameRepo)
	eachMember(t, h, sameSource)
	eachMember(t, h, func(a, b *Snapshot) bool {
		d := Diff(a, b)
		if d == nil { // two rows of one key, at random
			return false
		}
		got, err := Apply(a, d)
		return err == nil && jsonText(t, got) != jsonText(t, b) // a member that the delta does not carry
	})
}

func eachMember[T any](t *testing.T, h *history, same func(a, b *T) bool) {
	t.Helper()
	for i := range reflect.TypeFor[T]().NumField() {
		for range 20 {
			a, b := new(T), new(T)
			va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
			h.fill(va)
			vb.Set(va)
			if !reflect.DeepEqual(a, b) {
				t.Fatal("a copy is another")
			}
			for reflect.DeepEqual(a, b) {
				h.fill(vb.Field(i))
			}
			if same(a, b) {
				t.Errorf("%s: a change of %s is not seen", va.Type(), va.Type().Field(i).Name)
				break
			}
		}
	}
	if a := new(T); reflect.TypeFor[T]() != reflect.TypeFor[Snapshot]() {
		h.fill(reflect.ValueOf(a).Elem())
		if b := *a; !same(a, &b) {
			t.Errorf("%T: a row is another than itself", a)
		}
	}
}

func TestDiffSaysLittle(t *testing.T) {
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
	if d := Diff(was, &is); d.Jobs != nil || d.Repos != nil || d.Events != nil || d.Sources != nil || d.Agent != nil || d.API != nil {
		t.Errorf("nothing has changed: %+v", d)
	}
	// The first job ends and goes to the end, one comes, one log and the events go on.
	is.Jobs = append(slices.Clone(was.Jobs[1:]), Job{UID: "new"}, was.Jobs[0])
	is.Jobs[1000].State = "success"
	is.Jobs[1000].Log = append(slices.Clone(was.Events[1:]), Event{Text: "end"})
	is.Events = is.Jobs[1000].Log
	d := Diff(was, &is)
	if len(d.Jobs.Put) != 2 || len(d.Jobs.Gone) != 0 || d.Jobs.Put[1].At != 1000 || d.Jobs.Put[1].Row.Log != nil ||
		d.Jobs.Put[1].Log.Keep != 199 || len(d.Jobs.Put[1].Log.Add) != 1 || d.Events.Keep != 199 {
		t.Errorf("%+v", d.Jobs)
	}
	is.Jobs[5].UID = "new"
	if Diff(was, &is) != nil {
		t.Error("two rows of one key are told")
	}
	if Diff(&is, was) != nil {
		t.Error("two rows of one key, before, are told")
	}
}

// TestApplyRefusesWhatDoesNotFit: nothing is made of a change for another picture.
func TestApplyRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := &Snapshot{Seq: 7, Jobs: []Job{{UID: "a", Log: []Event{{Text: "1"}}}, {UID: "b"}}}
	job := func(at int, uid string, log *Lines) Put[Job] { return Put[Job]{At: at, Row: Job{UID: uid}, Log: log} }
	for name, d := range map[string]*Delta{
		"another picture":     {From: 6},
		"a row goes twice":    {From: 7, Jobs: &Rows[Job]{Len: 1, Gone: []string{"a", "a"}}},
		"gone and there":      {From: 7, Jobs: &Rows[Job]{Len: 2, Gone: []string{"a"}, Put: []Put[Job]{job(0, "a", nil)}}},
		"a stranger goes":     {From: 7, Jobs: &Rows[Job]{Len: 2, Gone: []string{"c"}}},
		"too few":             {From: 7, Jobs: &Rows[Job]{Len: 3, Put: []Put[Job]{job(0, "a", nil)}}},
		"too many":            {From: 7, Jobs: &Rows[Job]{Len: 1, Put: []Put[Job]{job(0, "a", nil)}}},
		"huge":                {From: 7, Jobs: &Rows[Job]{Len: 1 << 62}},
		"below zero":          {From: 7, Jobs: &Rows[Job]{Len: -1}},
		"no such place":       {From: 7, Jobs: &Rows[Job]{Len: 2, Put: []Put[Job]{job(2, "a", nil)}}},
		"place below zero":    {From: 7, Jobs: &Rows[Job]{Len: 2, Put: []Put[Job]{job(-1, "a", nil)}}},
		"places not in order": {From: 7, Jobs: &Rows[Job]{Len: 2, Put: []Put[Job]{job(1, "a", nil), job(0, "b", nil)}}},
		"log of a new job":    {From: 7, Jobs: &Rows[Job]{Len: 3, Put: []Put[Job]{job(2, "c", &Lines{})}}},
		"more log than was":   {From: 7, Jobs: &Rows[Job]{Len: 2, Put: []Put[Job]{job(0, "a", &Lines{Keep: 2})}}},
		"log below zero":      {From: 7, Jobs: &Rows[Job]{Len: 2, Put: []Put[Job]{job(0, "a", &Lines{Keep: -1})}}},
		"more events":         {From: 7, Events: &Lines{Keep: 1}},
	} {
		if got, err := Apply(s, d); !errors.Is(err, ErrGap) || got != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzApply: whatever somebody sends, a picture stays one, and the work is bounded
// by what was sent.
func FuzzApply(f *testing.F) {
	h := &history{rand.New(rand.NewPCG(3, 3)), time.Unix(1_800_000_000, 0).UTC()}
	s := &Snapshot{}
	for range 20 {
		next := h.next(s)
		was, _ := json.Marshal(s)
		d, _ := json.Marshal(Diff(s, next))
		f.Add(was, d)
		s = next
	}
	f.Add([]byte(`{"jobs":[{"uid":""},{"uid":""}]}`), []byte(`{"jobs":{"len":2,"put":[{"at":1,"row":{"uid":""}}]}}`))
	f.Fuzz(func(t *testing.T, was, change []byte) {
		s, d := new(Snapshot), new(Delta)
		if json.Unmarshal(was, s) != nil || json.Unmarshal(change, d) != nil {
			return
		}
		before, _ := json.Marshal(s)
		next, err := Apply(s, d)
		if after, _ := json.Marshal(s); !bytes.Equal(after, before) {
			t.Fatalf("%s has changed by %s", before, change)
		}
		switch {
		case err != nil && (next != nil || !errors.Is(err, ErrGap)):
			t.Fatalf("%v, %v", next, err)
		case err != nil:
			return
		case next.Seq != d.Seq, d.Jobs != nil && len(next.Jobs) != d.Jobs.Len, d.Repos != nil && len(next.Repos) != d.Repos.Len:
			t.Fatalf("%s and %s made %d jobs, %d repositories", was, change, len(next.Jobs), len(next.Repos))
		}
		if again := Diff(s, next); again != nil { // keys are unique
			if same, err := Apply(s, again); err != nil || jsonText(t, same) != jsonText(t, next) {
				t.Fatalf("told again: %v", err)
			}
		}
	})
}
