package screen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// archive is a source with its history in memory. It records its calls.
type archive struct {
	rows  []snapshot.HistoryRow // newest first
	asked []snapshot.HistoryQuery
	err   error
	care  snapshot.DiagnosticsReport

	lately     []snapshot.HistoryRow // of the repository screen
	watched    []string              // the repositories asked for by it
	comparison snapshot.Comparison
	compared   []snapshot.CompareQuery
	findings   []snapshot.Finding
	manifest   string
	edited     snapshot.Edited
	files      snapshot.FileList
	stored     []state.Artifact // of every source, the newest first
	listed     []snapshot.FileQuery
	tried      []snapshot.Subject
}

func (a *archive) HistoryPage(_ context.Context, q snapshot.HistoryQuery) (snapshot.HistoryPage, error) {
	if q.Limit == recentRows {
		a.watched = append(a.watched, q.Namespace+"/"+q.Repository)
		return snapshot.HistoryPage{Rows: a.lately}, a.err
	}
	a.asked = append(a.asked, q)
	if a.err != nil {
		return snapshot.HistoryPage{}, a.err
	}
	page := snapshot.HistoryPage{All: len(a.rows)}
	skip := q.Before != ""
	for _, r := range a.rows {
		if skip {
			skip = r.UID != q.Before
			continue
		}
		if !selects(q, r) {
			continue
		}
		if len(page.Rows) == q.Limit {
			page.Next = page.Rows[q.Limit-1].UID
			break
		}
		page.Rows = append(page.Rows, r)
	}
	return page, nil
}

// selects reports whether a query selects a row.
func selects(q snapshot.HistoryQuery, r snapshot.HistoryRow) bool {
	return (q.Repository == "" || q.Repository == r.Repository) && (len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		widget.ContainsWords(strings.Join(q.Words, " "), r.Name, r.Repository, r.Action, r.State, r.Message)
}

func (a *archive) PastJob(_ context.Context, uid string) (snapshot.Job, error) {
	for _, r := range a.rows {
		if r.UID == uid {
			j := jobOfRecord(r)
			j.Errors = []string{"GET info/refs: 401 Unauthorized (git.lab)"}
			return j, nil
		}
	}
	return snapshot.Job{}, errors.New("not in the history")
}

func (*archive) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
func (a *archive) Diagnostics(context.Context) (snapshot.DiagnosticsReport, error) {
	return a.care, a.err
}
func (a *archive) Test(_ context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	a.tried = append(a.tried, of)
	return a.findings, a.err
}
func (a *archive) Manifest(_ context.Context, of snapshot.Subject) (string, error) {
	a.tried = append(a.tried, of)
	return a.manifest, a.err
}
func (a *archive) Artifacts(_ context.Context, of state.SourceKey) ([]state.Artifact, error) {
	return a.stored, a.err
}

func (a *archive) Files(_ context.Context, q snapshot.FileQuery) (snapshot.FileList, error) {
	a.listed = append(a.listed, q)
	out := a.files
	if q.Path != "" {
		out = snapshot.FileList{Commit: out.Commit, Text: a.manifest, Diff: out.Diff}
	}
	return out, a.err
}
func (a *archive) Edit(context.Context, snapshot.Edit) (snapshot.Edited, error) {
	return a.edited, a.err
}
func (a *archive) Compare(_ context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	a.compared = append(a.compared, q)
	if a.err != nil {
		return snapshot.Comparison{}, a.err
	}
	out := a.comparison
	if q.Path == "" {
		out.Text = nil
	}
	return out, nil
}
func (*archive) Act(context.Context, Action) error { return nil }
func (*archive) Name() string                      { return Standalone }
func (*archive) Note() string                      { return "" }

// settle runs lookups until the screen needs none.
func settle(t *testing.T, s State, src Source) State {
	t.Helper()
	for range 100 {
		next, look := s.Fetch()
		if s = next; look == nil {
			return s
		}
		s = look(t.Context(), src)(s)
	}
	t.Fatal("the screen lacks something for ever")
	return s
}

// jobsFinished returns the state after jobs have finished.
func jobsFinished(s State) State {
	snap := testSnapshot()
	snap.Agent.History++
	s.Now = s.Now.Add(historyMinAge)
	return s.Show(snap)
}

// failedRows returns the failed jobs of a repository with an expired token, after a good one.
func failedRows(n int) []snapshot.HistoryRow {
	var out []snapshot.HistoryRow
	for i := range n {
		at := noon.Add(-time.Duration(i+1) * time.Minute)
		out = append(out, snapshot.HistoryRow{UID: fmt.Sprint("ill-", i), Namespace: "default", Name: fmt.Sprint("lab-east-sync-", i),
			Repository: "lab-east", Action: "pull", State: "error",
			Message: "401 bad credentials", Agent: "edge-07", Started: at.Add(-time.Second), Finished: at, Attempts: make([]state.Attempt, 3)})
	}
	at := noon.Add(-26 * time.Hour)
	return append(out,
		snapshot.HistoryRow{UID: "warn", Namespace: "default", Name: "lab-west-sync", Repository: "lab-west", Action: "pull", State: "warning",
			Message: "276 ok, 1 warning", Started: at.Add(-41 * time.Second), Finished: at, RefTo: strings.Repeat("5d41aa90", 5),
			Attempts: make([]state.Attempt, 1)},
		snapshot.HistoryRow{UID: "push", Namespace: "default", Name: "lab-west-push", Repository: "lab-west", Action: "push", State: "success",
			Message: "pushed", Started: at.Add(-70 * time.Second), Finished: at.Add(-time.Minute), Attempts: make([]state.Attempt, 1)})
}

func TestHistoryScreen(t *testing.T) {
	t.Parallel()
	src := &archive{rows: failedRows(34)}
	s := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "4"), src)
	// A job has finished since the rows were fetched.
	old := s
	old.history.changes++
	t.Run("a filter is looked up and what it means is asked", func(t *testing.T) {
		at := settle(t, press(old, "/", "s", "t", "a", "t", "e", ":", "w", "a", "r", "n", "i", "n", "g", "enter"), src)
		if rows := at.history.items.rows; len(rows) != 1 || rows[0].UID != "warn" {
			t.Fatalf("%d rows", len(rows))
		}
		if q := src.asked[len(src.asked)-1]; !slices.Equal(q.States, []string{"warning"}) || q.Limit != historyPage {
			t.Errorf("asked %+v", q)
		}
		if at = settle(t, press(at, "esc"), src); len(at.history.items.rows) != 36 || at.screen != screenHistory {
			t.Errorf("esc: %d rows on screen %d", len(at.history.items.rows), at.screen)
		}
	})
	t.Run("a filter that means nothing lets nothing through and says so", func(t *testing.T) {
		asked := len(src.asked)
		at := settle(t, press(s, "/", "s", "t", "a", "t", "e", ":", "x", "enter"), src)
		if len(at.history.items.rows) != 0 || slices.ContainsFunc(src.asked[asked:], func(q snapshot.HistoryQuery) bool { return len(q.States) > 0 }) {
			t.Errorf("%d rows, asked %+v", len(at.history.items.rows), src.asked[asked:])
		}
		if frame := render(at, 80, 24, at.Caps); !strings.Contains(frame, "state:x is none of success") ||
			!strings.Contains(frame, "0 of 36 jobs") {
			t.Errorf("it is not said:\n%s", frame)
		}
		if at = settle(t, press(at, "esc"), src); len(at.history.items.rows) != 36 {
			t.Errorf("after esc: %d rows", len(at.history.items.rows))
		}
	})
	t.Run("an answer that comes late is not shown", func(t *testing.T) {
		typed, first := press(old, "/", "x").Fetch()
		typed, second := press(typed, "backspace", "w", "e", "s", "t").Fetch()
		late := first(t.Context(), src)
		typed = second(t.Context(), src)(typed)
		if got := late(typed); len(got.history.items.rows) != 2 || got.history.filter != "west" {
			t.Errorf("%d rows of %q", len(got.history.items.rows), got.history.filter)
		}
	})
	t.Run("one lookup runs at a time", func(t *testing.T) {
		waiting, look := press(old, "/", "e").Fetch()
		if look == nil {
			t.Fatal("nothing is looked up")
		}
		if _, again := waiting.Fetch(); again != nil {
			t.Error("the same is looked up twice")
		}
	})
	t.Run("what ends is seen, and the cursor stays on its row", func(t *testing.T) {
		at := press(s, "down")
		was := at.history.items.cursor
		more := &archive{rows: append([]snapshot.HistoryRow{{UID: "new", Repository: "lab-west", State: "success", Finished: noon}}, src.rows...)}
		snap := testSnapshot()
		snap.Agent.History++
		at = at.Show(snap)
		if _, look := at.Fetch(); look != nil {
			t.Error("it looks again at once: a busy agent ends many jobs a second")
		}
		at.Now = at.Now.Add(historyMinAge)
		at = settle(t, at, more)
		if len(at.history.items.rows) != 37 || at.history.items.rows[0].UID != "new" || at.history.items.cursor != was {
			t.Errorf("%d rows, the first %q, cursor %q", len(at.history.items.rows), at.history.items.rows[0].UID, at.history.items.cursor)
		}
	})
	t.Run("a row tells of which repository it is, at the least width as well", func(t *testing.T) {
		if f := render(s, MinWidth, MinHeight, s.Caps); !strings.Contains(f, "lab-east") || !strings.Contains(f, "401 bad") {
			t.Errorf("the screen:\n%s", f)
		}
	})
	t.Run("enter shows the record whole, esc leads back", func(t *testing.T) {
		at := press(s, "enter")
		if j := *at.detail.subject.object.job; at.screen != screenDetail || j.UID != "ill-0" {
			t.Fatalf("screen %d shows %q", at.screen, j.UID)
		}
		at = settle(t, at, src)
		if j, live := *at.detail.subject.object.job, at.detail.subject.live; live || len(j.Errors) != 1 {
			t.Errorf("the record was not looked up: %+v", j)
		}
		if at = press(at, "esc"); at.screen != screenHistory || at.history.items.cursor != "ill-0" {
			t.Errorf("screen %d, cursor %q", at.screen, at.history.items.cursor)
		}
	})
	t.Run("r runs the job under the cursor again", func(t *testing.T) {
		if _, out := press(s, "r").Key("y", "y"); len(out.Actions) != 1 || out.Actions[0].Verb != snapshot.Retry || out.Actions[0].UID != "ill-0" {
			t.Errorf("got %+v", out.Actions)
		}
	})
	t.Run("h shows the history of a repository", func(t *testing.T) {
		at := settle(t, press(shown(testSnapshot(), widget.Caps{}), "3", "down", "h"), src)
		if at.screen != screenHistory || len(at.history.items.rows) != 34 {
			t.Errorf("screen %d, %d rows", at.screen, len(at.history.items.rows))
		}
	})
	t.Run("a lookup that is ended is done again", func(t *testing.T) {
		for name, at := range map[string]State{"first": press(shown(testSnapshot(), widget.Caps{}), "4"),
			"another filter": press(old, "/", "x"), "fresh": jobsFinished(s)} {
			at, look := at.Fetch()
			if look == nil {
				t.Fatalf("%s: nothing is looked up", name)
			}
			at = look(t.Context(), &archive{err: fmt.Errorf("ask: %w", context.Canceled)})(at)
			if f := render(at, 100, 30, at.Caps); strings.Contains(f, "canceled") {
				t.Errorf("%s:\n%s", name, f)
			}
			at.Now = at.Now.Add(historyMinAge)
			again := *src
			again.asked = nil
			if at = settle(t, at, &again); len(again.asked) == 0 || !at.history.known {
				t.Errorf("%s: it is not asked again", name)
			}
		}
	})
	t.Run("a fault is said and tried again", func(t *testing.T) {
		bad := &archive{err: errors.New("the daemon\x1b[2J is gone")}
		at := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "4"), bad)
		if frame := render(at, 80, 24, at.Caps); !strings.Contains(frame, "cannot be read: the daemon[2J is gone") {
			t.Errorf("the screen does not say so:\n%s", frame)
		}
		at.Now = at.Now.Add(historyMinAge)
		if at = settle(t, at, src); len(at.history.items.rows) != 36 {
			t.Errorf("after the fault: %d rows", len(at.history.items.rows))
		}
	})
}

// TestHistoryIsReadInPages: rows are fetched as the cursor nears their end, up to a bound.
func TestHistoryIsReadInPages(t *testing.T) {
	t.Parallel()
	src := &archive{}
	for i := range 2 * maxHistoryRows {
		src.rows = append(src.rows, snapshot.HistoryRow{UID: fmt.Sprint("u", i), Repository: "r", State: "success",
			Finished: noon.Add(-time.Duration(i) * time.Second)})
	}
	s := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "4"), src)
	if len(s.history.items.rows) != historyPage {
		t.Fatalf("%d rows at first", len(s.history.items.rows))
	}
	for i := range maxHistoryRows + 50 {
		s = settle(t, press(s, "down"), src)
		if want := fmt.Sprint("u", min(i+1, maxHistoryRows-1)); s.history.items.cursor != want {
			t.Fatalf("after %d steps the cursor is on %s, want %s", i+1, s.history.items.cursor, want)
		}
		if i%500 == 0 {
			check(t, render(s, 80, 24, s.Caps), 80, 24, s.Caps)
		}
	}
	if n := len(src.asked); n != maxHistoryRows/historyPage {
		t.Errorf("%d lookups", n)
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line, problem string
		want          snapshot.HistoryQuery
	}{
		{"", "", snapshot.HistoryQuery{}},
		{"repo:lab-east state:error,dead bad", "", snapshot.HistoryQuery{Repository: "lab-east", States: []string{"error", "dead"},
			Words: []string{"bad"}}},
		{"state:error,success", "", snapshot.HistoryQuery{States: []string{"error", "success", "dead"}}},
		{"since:24h until:1h", "", snapshot.HistoryQuery{Since: noon.Add(-24 * time.Hour), Until: noon.Add(-time.Hour)}},
		{"since:7d", "", snapshot.HistoryQuery{Since: noon.Add(-7 * 24 * time.Hour)}},
		{"since:2026-11-19", "", snapshot.HistoryQuery{Since: time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)}},
		{"since:2026-11-19T08:30 ref:5d41", "", snapshot.HistoryQuery{Since: time.Date(2026, 11, 19, 8, 30, 0, 0, time.UTC), Ref: "5d41"}},
		{"since:soon", "since:soon is no age such as 24h or 7d, and no day such as 2026-11-20", snapshot.HistoryQuery{}},
		{"since:-5d", "since:-5d is no age such as 24h or 7d, and no day such as 2026-11-20", snapshot.HistoryQuery{}},
		{"state:eror x", "state:eror: did you mean error?", snapshot.HistoryQuery{Words: []string{"x"}}},
		{"state:", "", snapshot.HistoryQuery{}},
		{"rpo:a", "there is no field rpo: did you mean repo?", snapshot.HistoryQuery{}},
		{"state:w", "", snapshot.HistoryQuery{States: []string{"warning"}}},
		{"reposit:a", "there is no field reposit", snapshot.HistoryQuery{}},
		{"git.lab:443:x :y", "", snapshot.HistoryQuery{Words: []string{"git.lab:443:x", ":y"}}},
	} {
		s := NewState(Standalone, widget.Caps{}, noon)
		s.filters[screenHistory] = tt.line
		got, problem := s.history.query(&s.scene)
		tt.want.Limit = historyPage
		if fmt.Sprint(got) != fmt.Sprint(tt.want) || problem != tt.problem {
			t.Errorf("%q: %+v %q, want %+v %q", tt.line, got, problem, tt.want, tt.problem)
		}
	}
}
