package screen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/sync/testenv/suite"
)

// The worlds of the randomised tests: snapshots, histories and results with random values in
// every field, so that new fields are covered.

var (
	fault = flag.Bool("fault", suite.IsFull(), "the long form: 100,000 states, 1,000,000 sequences")
)

// seeded returns the seed of a test and logs it.
func seeded(t *testing.T) uint64 {
	t.Helper()
	return suite.Seed(t)
}

// generator generates them.
type generator struct {
	*rand.Rand
	// plain worlds have ASCII texts only, and rows that the beginning of their name identifies.
	// They allow stronger checks.
	plain bool
	made  int // rows so far
}

// hostile are texts that a name, a message or a log line may have.
var hostile = []string{
	"", " ", "a", "team-dash", "dashboards/network/core.json", strings.Repeat("word ", 40), strings.Repeat("x", 300),
	"\x1b]0;pwn\x07\x1b[31mred\x1b[2J", "\x00nul\x00", "a\r\nb\tc", "\u009b31mC1", "\x7fdel\x08\x08",
	"\u202egnp.exe\u202c", "\u2066isolate\u2069", "אבג עברית", "العربية ١٢٣", "\u0600\u06dd", // number signs that stand before
	"漢字漢字漢字", strings.Repeat("漢", 90), "한국어 \u1100\u1161\u11a8", "ไทยกำลัง", "क्षत्रिय नि",
	"e\u0301e\u0308", "\u0301", "a" + strings.Repeat("\u0302", 40), "🙂👩‍👩‍👧 🇩🇪🇫", "🇫", "1\ufe0f\u20e3 ©\ufe0f ☺", "👍🏽", "\u200b",
	"\u200d", "\ufeff", "\U000e0041tag",
	"\xff\xfe\xc3", "\xed\xa0\x80", "│╭─▸", "\u2028line", "ﷺ", "\u3000wide blank", "½Ⅷ", "--flag 'quote\" `x` $(y) \\",
}

// text returns one of them, sometimes a very long one.
func (h *generator) text() string {
	if h.plain {
		return []string{"", "a", "team-dash", "git.lab", "401 bad credentials", "dashboards/network/core.json: it is not what it was",
			strings.Repeat("word ", 20)}[h.IntN(7)]
	}
	if h.IntN(1500) == 0 {
		return strings.Repeat(hostile[1+h.IntN(len(hostile)-1)], 10<<10/8)
	}
	return hostile[h.IntN(len(hostile))]
}

func (h *generator) time() time.Time {
	switch h.IntN(6) {
	case 0, 1:
		return time.Time{}
	case 2:
		return []time.Time{time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
			time.Unix(math.MaxInt32, 0)}[h.IntN(4)]
	case 3:
		return noon.Add(time.Duration(h.Int64N(400*24)-200*24) * time.Hour)
	}
	return noon.Add(time.Duration(h.Int64N(7200)-3600) * time.Second)
}

func (h *generator) number() int64 {
	if h.IntN(8) == 0 {
		return []int64{-1, math.MaxInt64, math.MinInt64, 1 << 40}[h.IntN(4)]
	}
	return h.Int64N(2000)
}

// word returns one of some words, seldom a hostile text.
func (h *generator) word(of ...string) string {
	if h.IntN(12) == 0 {
		return h.text()
	}
	return of[h.IntN(len(of))]
}

// fill fills v with random values. Fields with known names mostly get valid values.
func (h *generator) fill(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.SetZero(); h.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			h.fill(v.Elem(), name)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(h.time()))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				h.fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			h.fill(v.Index(i), name)
		}
	case reflect.Uint8:
		v.SetUint(uint64(".cswe\x00\xff"[h.IntN(7)]))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), h.IntN(4), 4))
		for i := range v.Len() {
			h.fill(v.Index(i), name)
		}
	case reflect.String:
		v.SetString(h.named(name))
	case reflect.Bool:
		v.SetBool(h.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(int64(time.Duration(h.IntN(7200)-1) * time.Second))
			return
		}
		v.SetInt(h.number())
	case reflect.Uint64:
		v.SetUint(uint64(h.number()))
	case reflect.Map: // labels are on no screen
	case reflect.Float64:
		v.SetFloat([]float64{-1, 0, 22.5, 71, 99.6, 100, 1e9, math.NaN(), math.Inf(1), math.Inf(-1)}[h.IntN(10)])
	default:
		panic("no random " + v.Type().String())
	}
}

// named returns the text of a field.
func (h *generator) named(name string) string {
	switch name {
	case "State", "SyncState":
		return h.word("pending", "working", "success", "warning", "error", "cancelled", "dead", "")
	case "Owner":
		return h.word("this", "other", "")
	case "Action":
		return h.word("pull", "push", "pr", "migrate", "delete", "move", "fixFolderMetadata")
	case "Level":
		return h.word("info", "warn", "error")
	case "Status":
		return h.word("True", "False", "Unknown")
	case "Op":
		return h.word(" ", "+", "-", "@")
	case "Type":
		return h.word("git", "github", "gitlab", "added", "deleted", "renamed", "modified")
	case "Runs":
		return h.word("", "ssssssssssssssssssseeeee", "....s...s.c.w...s...w..s", "s", strings.Repeat("e", 200))
	case "Mode":
		return h.word("on", "off", "auto", "")
	case "Repository", "Repo":
		return h.word(fmt.Sprintf("r%06d", h.IntN(8)), "lab-east", "")
	case "URL":
		if h.plain || h.IntN(2) == 0 {
			return h.word("https://git.lab/obs/east.git", "https://git.lab/obs/west.git", "http://git.lab/"+strings.Repeat("long/", 30)+
				"end.git", "ssh://git.lab/obs.git")
		}
		return h.word("https://git.lab/\x1b]8;;https://evil.example\a", "https://git.lab/漢字", "https://git.lab/a;b",
			"https://user@git.lab/", "https://git.lab/"+strings.Repeat("x", 3000))
	case "RefFrom", "RefTo", "LastRef":
		return h.word("", strings.Repeat("5d41aa90", 5), strings.Repeat("4e55f01a", 5))
	}
	return h.text()
}

// label returns the start of the name of a row, which identifies it on the screen.
func (h *generator) label(kind string) string {
	h.made++
	return fmt.Sprintf("%s%06d", kind, h.made)
}

func (h *generator) job() snapshot.Job {
	var j snapshot.Job
	h.fill(reflect.ValueOf(&j).Elem(), "")
	id := h.label("j")
	j.Name = id + j.Name
	if j.UID = id; h.IntN(20) == 0 && !h.plain {
		j.UID += h.text()
	}
	if h.IntN(2) == 0 { // most have it
		j.Finished, j.Undelivered, j.RetryAt = time.Time{}, time.Time{}, time.Time{}
	}
	return j
}

func (h *generator) repo() snapshot.Repo {
	var r snapshot.Repo
	h.fill(reflect.ValueOf(&r).Elem(), "")
	r.Name = h.label("r") + h.word("", "", "-dash")
	return r
}

func (h *generator) source() snapshot.Source {
	var from snapshot.Source
	h.fill(reflect.ValueOf(&from).Elem(), "Source")
	id := h.label("s")
	from.UID, from.Name = id, id+from.Name
	from.State = h.word("ready", "ready", "working", "failed", "stalled", "pending", "unknown")
	return from
}

func (h *generator) past() snapshot.HistoryRow {
	var p snapshot.HistoryRow
	h.fill(reflect.ValueOf(&p).Elem(), "")
	id := h.label("p")
	p.UID, p.Name, p.Repository = id, id+p.Name, id+p.Repository
	return p
}

// few returns a number of rows: none, one, some, seldom many.
func (h *generator) few() int {
	if h.IntN(16) == 0 {
		return 20 + h.IntN(60)
	}
	return []int{0, 1, 2, 3, 5, 9}[h.IntN(6)]
}

// snapshot returns a random snapshot.
func (h *generator) snapshot() *snapshot.Snapshot {
	s := &snapshot.Snapshot{Seq: h.Uint64N(1000)}
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		switch f := v.Type().Field(i); f.Name {
		case "Jobs", "Repos", "Sources", "Seq":
		default:
			h.fill(v.Field(i), f.Name)
		}
	}
	if s.At = noon; h.IntN(20) == 0 {
		s.At = h.time()
	}
	for range h.few() {
		s.Jobs = append(s.Jobs, h.job())
	}
	if !h.plain && len(s.Jobs) > 1 && h.IntN(20) == 0 {
		s.Jobs[0].UID, s.Jobs[1].UID = "twice", "twice"
	}
	for range h.few() {
		s.Repos = append(s.Repos, h.repo())
	}
	for range h.IntN(2) * h.few() {
		s.Sources = append(s.Sources, h.source())
	}
	if s.Counts = snapshot.Count(s.Jobs, s.At); h.IntN(4) == 0 {
		s.Counts.Pending += 1000
	}
	if h.IntN(3) > 0 { // the normal case
		s.API.Up, s.API.Synced, s.AsOf, s.Problem, s.API.Error = true, true, time.Time{}, "", ""
	}
	return s
}

// next returns a changed copy of s: rows come, go, move and change.
func (h *generator) next(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Seq++
	out.Jobs, out.Repos = moved(h, s.Jobs, h.job, 60), moved(h, s.Repos, h.repo, 40)
	for i := range out.Jobs {
		if h.IntN(4) == 0 {
			j := &out.Jobs[i]
			uid, name := j.UID, j.Name
			f := reflect.ValueOf(j).Elem()
			k := h.IntN(f.NumField())
			h.fill(f.Field(k), f.Type().Field(k).Name)
			j.UID, j.Name = uid, name
		}
	}
	if out.Sources = s.Sources; len(s.Sources) > 0 || h.IntN(10) == 0 {
		out.Sources = moved(h, s.Sources, h.source, 40)
	}
	for i := range out.Sources {
		if h.IntN(4) == 0 {
			from := &out.Sources[i]
			uid, name := from.UID, from.Name
			f := reflect.ValueOf(from).Elem()
			k := h.IntN(f.NumField())
			h.fill(f.Field(k), f.Type().Field(k).Name)
			from.UID, from.Name = uid, name
		}
	}
	for range h.IntN(3) {
		var e snapshot.Event
		h.fill(reflect.ValueOf(&e).Elem(), "")
		out.Events = append(slices.Clone(out.Events[max(len(out.Events)-20, 0):]), e)
	}
	if h.IntN(6) == 0 {
		h.fill(reflect.ValueOf(&out.API).Elem(), "")
	}
	if h.IntN(6) == 0 {
		h.fill(reflect.ValueOf(&out.Agent).Elem(), "")
	}
	if h.IntN(6) == 0 {
		out.Problem = h.text()
	}
	out.AsOf = time.Time{}
	if h.IntN(12) == 0 {
		out.AsOf = h.time()
	}
	out.Counts = snapshot.Count(out.Jobs, out.At)
	return &out
}

func moved[T any](h *generator, rows []T, row func() T, most int) []T {
	rows = slices.Clone(rows)
	for range h.IntN(4) {
		n := len(rows)
		switch h.IntN(3) {
		case 0:
			if n < most {
				rows = slices.Insert(rows, h.IntN(n+1), row())
			}
		case 1:
			if n > 0 {
				at := h.IntN(n)
				rows = slices.Delete(rows, at, at+1)
			}
		default:
			if n > 1 {
				a, b := h.IntN(n), h.IntN(n)
				rows[a], rows[b] = rows[b], rows[a]
			}
		}
	}
	if h.IntN(60) == 0 {
		return nil
	}
	return rows
}

// oracle is a source that returns anything, or fails.
type oracle struct {
	archive
	*generator
}

func (o *oracle) err() error {
	if o.IntN(5) == 0 {
		return errors.New("no answer: " + o.text())
	}
	return nil
}

func (o *oracle) HistoryPage(_ context.Context, q snapshot.HistoryQuery) (snapshot.HistoryPage, error) {
	page := snapshot.HistoryPage{Next: o.word("", "", "more"), All: o.IntN(100000)}
	for range o.few() {
		p := o.past()
		page.Rows = append(page.Rows, p)
		for range o.IntN(3) * o.IntN(4) { // the folded ones
			p.UID = o.label("p")
			page.Rows = append(page.Rows, p)
		}
	}
	return page, o.err()
}

func (o *oracle) PastJob(_ context.Context, uid string) (snapshot.Job, error) {
	j := o.job()
	j.UID = uid
	return j, o.err()
}

func (o *oracle) Diagnostics(context.Context) (c snapshot.DiagnosticsReport, err error) {
	o.fill(reflect.ValueOf(&c).Elem(), "")
	return c, o.err()
}

func (o *oracle) Compare(context.Context, snapshot.CompareQuery) (c snapshot.Comparison, err error) {
	o.fill(reflect.ValueOf(&c).Elem(), "")
	for i := range c.Files {
		c.Files[i].Path = o.label("f") + c.Files[i].Path
		if o.IntN(4) > 0 { // most have it
			c.Files[i].From = ""
		}
	}
	return c, o.err()
}

func (o *oracle) Artifacts(context.Context, state.SourceKey) (list []state.Artifact, err error) {
	o.fill(reflect.ValueOf(&list).Elem(), "")
	for i := range list {
		list[i].UID, list[i].Digest = o.word("s1", list[i].UID), o.label("a")
	}
	return list, o.err()
}

func (o *oracle) Files(context.Context, snapshot.FileQuery) (c snapshot.FileList, err error) {
	o.fill(reflect.ValueOf(&c).Elem(), "")
	for i := range c.Files {
		c.Files[i].Path = o.label("f") + c.Files[i].Path
	}
	return c, o.err()
}

func (o *oracle) Test(context.Context, snapshot.Subject) (out []snapshot.Finding, err error) {
	for range o.few() {
		out = append(out, snapshot.Finding{Name: o.text(), Result: []string{"ok", "failed", "warning", "skipped", o.text()}[o.IntN(5)],
			Detail: o.text()})
	}
	return out, o.err()
}

func (o *oracle) Manifest(context.Context, snapshot.Subject) (string, error) {
	var lines []string
	for range o.few() {
		lines = append(lines, strings.Repeat(" ", o.IntN(60))+o.text())
	}
	return strings.Join(lines, "\n"), o.err()
}
