package tui

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// listener is a person who hears the lines, with a source for lookups.
type listener struct {
	t    *testing.T
	l    linear
	src  *archive
	now  time.Time
	said []string // everything
	out  Outcome  // of the last line
}

func listens(t *testing.T, snap *snapshot.Snapshot) *listener {
	t.Helper()
	s := NewState("attached to daemon 4121", Caps{}, noon)
	h := &listener{t: t, l: newLinear(s), src: &archive{rows: ill(34), care: kept()}, now: noon}
	h.show(snap)
	return h
}

func (h *listener) hear(lines []string) []string {
	h.t.Helper()
	for _, line := range lines {
		plainLine(h.t, line)
	}
	h.said = append(h.said, lines...)
	return lines
}

// plainLine fails for a line that could move anything.
func plainLine(t *testing.T, line string) {
	t.Helper()
	for _, r := range line {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || text.Hidden(r) {
			t.Fatalf("a line with %q: %q", r, line)
		}
	}
}

func (h *listener) show(snap *snapshot.Snapshot) []string {
	h.t.Helper()
	copied := *snap
	copied.Counts = snapshot.Count(snap.Jobs, h.now)
	copied.At = h.now
	var out []string
	h.l, out = h.l.show(&copied, "attached to daemon 4121", "", h.now)
	return h.hear(out)
}

// after lets time go by, second by second.
func (h *listener) after(d time.Duration) (out []string) {
	h.t.Helper()
	for ; d > 0; d -= time.Second {
		h.now = h.now.Add(min(d, time.Second))
		var said []string
		h.l, said = h.l.tick(h.now)
		out = append(out, h.hear(said)...)
	}
	return out
}

// types a line, and has what it looks up answered.
func (h *listener) types(line string) []string {
	h.t.Helper()
	h.said = append(h.said, "> "+text.Clean(line))
	var re reply
	h.l, re = h.l.enter(line)
	h.out = re.Outcome
	if re.Copy != "" {
		h.t.Errorf("%q: a copy for the clipboard takes an escape sequence", line)
	}
	out := h.hear(re.lines)
	for re.look != nil {
		take := re.look(h.t.Context(), h.src)
		h.l, re = h.l.found(take)
		out = append(out, h.hear(re.lines)...)
	}
	return out
}

// has fails unless one line contains each text.
func has(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	for _, txt := range texts {
		if !strings.Contains(strings.Join(lines, "\n"), txt) {
			t.Errorf("no %q in\n%s", txt, strings.Join(lines, "\n"))
		}
	}
}

// TestLinearSession is a session of a person, kept whole.
func TestLinearSession(t *testing.T) {
	t.Parallel()
	snap := ailing()
	h := listens(t, snap)
	for _, line := range []string{"help", "status", "jobs", "jobs state:error", "repositories", "repository lab-east", "job team-dash-sync", "history state:error", "more", "job 2", "agent", "errors",
		"pull lab-west", "full pull team-dash", "", "no", "suspend lab-west", "yes", "cancel lab-east-sync", "yes", "cancel lab-", "2", "yes", "job nothing-like-it", "pulll lab-west", "push lab-east", "drain", "yes"} {
		h.types(line)
	}
	next := ailing()
	next.Jobs[0].Progress, next.Jobs[0].Done = 81, 233
	h.now = h.now.Add(time.Second)
	h.show(next)
	h.types("quit")
	if !h.out.Quit {
		t.Error("quit does not")
	}
	path := filepath.Join("..", "testdata", "golden", "linear-session.txt")
	got := strings.Join(h.said, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the session is another:\n%s", got)
	}
}

// TestLinearTells: what changes is one sentence, once.
func TestLinearTells(t *testing.T) {
	t.Parallel()
	change := func(f func(s *snapshot.Snapshot)) []string {
		h := listens(t, picture())
		h.after(time.Second)
		next := picture()
		f(next)
		h.now = h.now.Add(time.Second)
		out := h.show(next)
		if again := h.show(next); len(again) > 0 {
			t.Errorf("the same picture says %q", again)
		}
		return out
	}
	for name, c := range map[string]struct {
		change func(s *snapshot.Snapshot)
		want   []string
	}{
		"nothing":                {func(*snapshot.Snapshot) {}, nil},
		"a step":                 {func(s *snapshot.Snapshot) { s.Jobs[0].Progress, s.Jobs[0].Done = 81, 233 }, []string{"14:02:39 team-dash-sync for team-dash: working, 81 percent, 233 of 288 files"}},
		"less than a step":       {func(s *snapshot.Snapshot) { s.Jobs[0].Progress, s.Jobs[0].Done = 74, 213 }, nil},
		"a job begins":           {func(s *snapshot.Snapshot) { s.Jobs[4].State, s.Jobs[4].Owner = "working", "this" }, []string{"14:02:39 lab-west-push for lab-west: working, 0 percent"}},
		"a job begins elsewhere": {func(s *snapshot.Snapshot) { s.Jobs[4].State, s.Jobs[4].Owner = "working", "other" }, []string{"14:02:39 lab-west-push for lab-west: working on another agent"}},
		"a second attempt":       {func(s *snapshot.Snapshot) { s.Jobs[5].State, s.Jobs[5].Owner = "working", "this" }, []string{"14:02:39 lab-east-sync for lab-east: working, 0 percent, attempt 2"}},
		"a job ends":             {func(s *snapshot.Snapshot) { s.Jobs[0].State, s.Jobs[0].Finished = "success", noon }, []string{"14:02:39 team-dash-sync for team-dash: success after 42 seconds, 14 created, 4 updated, 1 in error"}},
		"a job fails": {func(s *snapshot.Snapshot) {
			s.Jobs[1].State, s.Jobs[1].Finished, s.Jobs[1].Message = "error", noon, "no such branch"
		}, []string{"14:02:39 infra-alerts-sync for infra-alerts: error after 9 seconds, no such branch. Next: job infra-alerts-sync"}},
		"a job is cancelled":  {func(s *snapshot.Snapshot) { s.Jobs[4].State, s.Jobs[4].Finished = "cancelled", noon }, []string{"14:02:39 lab-west-push for lab-west: cancelled"}},
		"its result waits":    {func(s *snapshot.Snapshot) { s.Jobs[1].Unsent = noon }, []string{"14:02:39 infra-alerts-sync for infra-alerts: done, the API has not taken its result yet"}},
		"it rests":            {func(s *snapshot.Snapshot) { s.Jobs[5].RestsUntil = noon.Add(20 * time.Second) }, []string{"14:02:39 lab-east-sync for lab-east: pending, attempt 2 in 18 seconds"}},
		"it goes":             {func(s *snapshot.Snapshot) { s.Jobs = slices.Delete(s.Jobs, 4, 5) }, []string{"14:02:39 lab-west-push for lab-west: gone from the queue"}},
		"what has ended goes": {func(s *snapshot.Snapshot) { s.Jobs = s.Jobs[:6] }, nil},
		"a file in error":     {func(s *snapshot.Snapshot) { s.Jobs[0].Errors = append(s.Jobs[0].Errors, "a.json: bad") }, []string{"14:02:39 team-dash-sync for team-dash: error, a.json: bad"}},
		"an error event": {func(s *snapshot.Snapshot) {
			s.Events = append(s.Events, snapshot.Event{At: noon, Level: "error", Repo: "lab-west", Text: "no route"})
		}, []string{"14:02:39 lab-west: error, no route. Next: repository lab-west"}},
		"an error that has its own": {func(s *snapshot.Snapshot) {
			s.Jobs[1].State, s.Jobs[1].Finished, s.Jobs[1].Message = "error", noon, "x"
			s.Events = append(s.Events, snapshot.Event{At: noon, Level: "error", Job: "infra-alerts-sync", Text: "x"})
		}, []string{"14:02:39 infra-alerts-sync for infra-alerts: error after 9 seconds, x. Next: job infra-alerts-sync"}},
		"the API goes":    {func(s *snapshot.Snapshot) { s.API.Up, s.API.Error = false, "i/o timeout" }, []string{"14:02:39 offline: the API does not answer, i/o timeout. Nothing is sent, and nothing is queued for later. Next: limpet doctor, in another terminal"}},
		"a problem":       {func(s *snapshot.Snapshot) { s.Problem = "the clock is wrong" }, []string{"14:02:39 problem: the clock is wrong"}},
		"it drains":       {func(s *snapshot.Snapshot) { s.Agent.Draining, s.Agent.Busy = noon, 2 }, []string{"14:02:39 draining, 2 to go"}},
		"a lease is lost": {func(s *snapshot.Snapshot) { s.Agent.LostCount = 1 }, []string{"14:02:39 1 lease lost: another agent may take what ran. Next: agent"}},
		"a repository comes": {func(s *snapshot.Snapshot) {
			s.Repos = append(s.Repos, snapshot.Repo{Namespace: "default", Name: "new"})
		}, []string{"14:02:39 repository new: is new"}},
		"one goes":                   {func(s *snapshot.Snapshot) { s.Repos = s.Repos[:3] }, []string{"14:02:39 repository team-dash: is gone"}},
		"one fails":                  {func(s *snapshot.Snapshot) { s.Repos[0].Healthy, s.Repos[0].Health = false, "401" }, []string{"14:02:39 repository infra-alerts: failing, 401. Next: repository infra-alerts"}},
		"one is healthy again":       {func(s *snapshot.Snapshot) { s.Repos[1].Healthy = true }, []string{"14:02:39 repository lab-east: healthy again"}},
		"one is suspended":           {func(s *snapshot.Snapshot) { s.Repos[0].Suspended = true }, []string{"14:02:39 repository infra-alerts: suspended on this agent"}},
		"errors come before the end": {func(s *snapshot.Snapshot) { s.Jobs[0].State, s.Jobs[0].Finished = "success", noon; s.Problem = "p" }, []string{"14:02:39 problem: p", "14:02:39 team-dash-sync for team-dash: success after 42 seconds, 14 created, 4 updated, 1 in error"}},
	} {
		if got := change(c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: said\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestLinearComesBack: what went away and came back is said once each time.
func TestLinearComesBack(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	var out []string
	for range 5 {
		h.l, out = h.l.lose("connection refused", h.now)
		h.hear(out)
		h.after(time.Second)
	}
	if got := strings.Count(strings.Join(h.said, "\n"), "does not answer: connection refused"); got != 1 {
		t.Errorf("said %d times", got)
	}
	has(t, h.types("jobs"), "as of 14:02:37Z")
	has(t, h.types("pull lab-west"), "Not done: the daemon does not answer")
	has(t, h.show(picture()), "the daemon answers again: attached to daemon 4121")
	down := picture()
	down.API.Up, down.API.Error = false, "i/o timeout"
	has(t, h.show(down), "offline")
	has(t, h.types("retry lab-east-sync"), "Which one?")
	has(t, h.types("2"), "Not done: the API is away")
	has(t, h.show(picture()), "online: the API answers")
	drained := picture()
	drained.Agent.Draining = noon
	has(t, h.show(drained), "drained, claims nothing")
	has(t, h.show(picture()), "claims jobs again")
	bad := picture()
	bad.Problem = "the clock is wrong"
	h.show(bad)
	has(t, h.show(picture()), "the problem is over: the clock is wrong")
}

// TestLinearQuiet: of a burst a few sentences are said, errors among them, and the
// rest is counted.
func TestLinearQuiet(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	h.after(10 * time.Second)
	burst := picture()
	for i := range 19 {
		burst.Jobs = append(burst.Jobs, snapshot.Job{UID: fmt.Sprint("b", i), Name: fmt.Sprint("bulk-", i), State: "working", Owner: "this", Progress: -1})
	}
	burst.Events = append(burst.Events, snapshot.Event{At: noon, Level: "error", Text: "the disk is full"})
	out := h.show(burst)
	if len(out) != tellBurst-tellSpare || !strings.Contains(out[0], "the disk is full") {
		t.Errorf("said %d: %q", len(out), out)
	}
	has(t, h.after(time.Second), fmt.Sprintf("and %d more jobs began", 19-len(out)+1))

	said := 0
	for n := range 60_000 { // a thousand pictures a second for a minute
		storm := &snapshot.Snapshot{API: picture().API}
		for i := range 3 {
			storm.Jobs = append(storm.Jobs, snapshot.Job{UID: fmt.Sprint(n/2, i), Name: fmt.Sprint("s", n/2, i), State: []string{"working", "error"}[n%2], Owner: "this"})
		}
		if n%2 == 1 {
			storm.Jobs[0].Finished, storm.Jobs[0].Message = h.now, fmt.Sprint("error ", n)
		}
		h.now = h.now.Add(time.Millisecond)
		said += len(h.show(storm))
		if n%1000 == 999 {
			h.now = h.now.Add(-time.Second)
			said += len(h.after(time.Second))
		}
	}
	if most := 60*3 + 8; said > most || said < 120 {
		t.Errorf("%d sentences in a minute, at most %d", said, most)
	}
	h.after(time.Minute)
	h.show(&snapshot.Snapshot{API: picture().API})
	if out := h.after(10 * time.Second); len(out) > 3 {
		t.Errorf("after the storm: %q", out)
	}
}

// TestLinearFolds: an equal error is said once a minute, with how often it came.
func TestLinearFolds(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	for i := range 6 {
		next := picture()
		next.Jobs = append(next.Jobs, snapshot.Job{UID: fmt.Sprint("again", i), Name: fmt.Sprint("lab-west-sync-", i), Repository: "lab-west", Action: "pull", State: "error", Message: "no such host", Finished: h.now, Owner: "this"})
		h.show(next)
		h.after(5 * time.Second)
	}
	if got := strings.Count(strings.Join(h.said, "\n"), "no such host"); got != 1 {
		t.Errorf("said %d times:\n%s", got, strings.Join(h.said, "\n"))
	}
	has(t, h.after(2*time.Minute), "5 times more: lab-west-sync-5 for lab-west: error, no such host")
	if got := strings.Count(strings.Join(h.said, "\n"), "no such host"); got != 2 {
		t.Errorf("said %d times in the end", got)
	}
}

// TestLinearFoldsForAMinute: an error that came again is told a minute after the first
// time, and one that comes later is told at once.
func TestLinearFoldsForAMinute(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	fails := func(i int) []string {
		next := picture()
		next.Jobs = append(next.Jobs, snapshot.Job{UID: fmt.Sprint("again", i), Name: fmt.Sprint("lab-west-sync-", i), Repository: "lab-west", Action: "pull", State: "error", Message: "no such host", Finished: h.now, Owner: "this"})
		return h.show(next)
	}
	has(t, fails(0), "no such host")
	h.after(30 * time.Second)
	if out := append(fails(1), h.after(29*time.Second)...); len(out) > 0 {
		t.Errorf("within a minute: %q", out)
	}
	if out := h.after(2 * time.Second); len(out) != 1 || !strings.Contains(out[0], "once more: lab-west-sync-1 for lab-west: error, no such host") {
		t.Errorf("after a minute: %q", out)
	}
	if out := h.after(2 * time.Minute); len(out) > 0 {
		t.Errorf("nothing has come: %q", out)
	}
	has(t, fails(2), "lab-west-sync-2 for lab-west: error, no such host")
}

// TestLinearProgress: each 10 percent, else each 10 seconds, and nothing where
// nothing moves.
func TestLinearProgress(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	count := 0
	for i := range 25 { // 71 to 95 percent, one a second
		next := picture()
		next.Jobs[0].Progress = float64(71 + i)
		h.after(time.Second)
		count += len(h.show(next))
	}
	if count != 2 { // at 80 percent, and 10 s later
		t.Errorf("%d sentences from 71 to 95 percent", count)
	}
	next := picture()
	next.Jobs[0].Progress = 95
	for range 30 {
		h.after(time.Second)
		if out := h.show(next); len(out) > 0 {
			t.Errorf("nothing has moved: %q", out)
		}
	}
	waits := next
	waits.Jobs = append(waits.Jobs, snapshot.Job{UID: "new", Name: "waits", State: "pending"})
	if out := h.show(waits); len(out) > 0 {
		t.Errorf("a job that has just come: %q", out)
	}
	if out := h.after(5 * time.Second); len(out) != 1 || !strings.Contains(out[0], "waits: pending") {
		t.Errorf("a job that waits: %q", out)
	}
}

// TestLinearAsks: nothing is sent without a typed yes, and an empty line decides
// nothing.
func TestLinearAsks(t *testing.T) {
	t.Parallel()
	large := picture()
	large.Repos[2].Resources = 12_401
	for _, c := range []struct {
		line, answer string
		want         Verb // "" = nothing is sent
	}{
		{"full pull team-dash", "yes", PullFull}, {"pull team-dash --full", "YES", PullFull}, {"full pull team-dash", "y", ""}, {"full pull team-dash", "1", ""}, {"full pull team-dash", "no", ""}, {"full pull team-dash", "jobs", ""},
		{"full pull lab-west", "yes", ""}, {"full pull lab-west", "lab-wes", ""}, {"full pull lab-west", "LAB-WEST", ""}, {"full pull lab-west", "lab-west", PullFull},
		{"suspend team-dash", "yes", Suspend}, {"cancel lab-west-push", "yes", Cancel}, {"retry y7c1", "yes", Retry}, {"drain", "yes", Drain}, {"drain", "", ""},
	} {
		h := listens(t, large)
		out := h.types(c.line)
		if len(h.out.Actions) > 0 || !open(h.l.s) {
			t.Errorf("%s: sent %v at once, said %q", c.line, h.out.Actions, out)
		}
		has(t, out, "Anything else means no.")
		if empty := h.types("  "); len(empty) > 0 || !open(h.l.s) || len(h.out.Actions) > 0 {
			t.Errorf("%s: an empty line: %q", c.line, empty)
		}
		out = h.types(c.answer)
		a := action(h.out)
		if c.want == "" && (a != nil || c.answer != "" && !slices.Equal(out, []string{"No: nothing was done."})) || c.want != "" && (a == nil || a.Verb != c.want) {
			t.Errorf("%s, %s: sent %v, said %q", c.line, c.answer, h.out.Actions, out)
		}
		if c.answer != "" && open(h.l.s) {
			t.Errorf("%s, %s: the question is still there", c.line, c.answer)
		}
	}
}

// TestLinearWords: what the words mean, and what is refused.
func TestLinearWords(t *testing.T) {
	t.Parallel()
	snap := picture()
	snap.Repos[2].Suspended = true
	snap.Repos = append(snap.Repos, snapshot.Repo{UID: "r9", Namespace: "other", Name: "team-dash"})
	for _, c := range []struct {
		lines []string
		want  string
		act   string // verb namespace/name
	}{
		{[]string{"pull lab-east"}, "pull of lab-east asked for", "pull default/lab-east"},
		{[]string{"PULL lab-e"}, "pull of lab-east asked for", "pull default/lab-east"},
		{[]string{"pull other/team-dash"}, "asked for", "pull other/team-dash"},
		{[]string{"pull team-dash"}, "2: team-dash in namespace other", ""},
		{[]string{"pull team-dash", "2"}, "asked for", "pull other/team-dash"},
		{[]string{"pull team-dash", "3"}, "Type a number from 1 to 2", ""},
		{[]string{"pull team-dash", "3", "1"}, "asked for", "pull default/team-dash"},
		{[]string{"pull team-dash", "status", "1"}, "1 is no command", ""},
		{[]string{"pull lab-eats"}, "Did you mean lab-east?", ""},
		{[]string{"pull"}, "Say which", ""},
		{[]string{"repository lab-east", "pull"}, "asked for", "pull default/lab-east"},
		{[]string{"repositories", "pull 2"}, "asked for", "pull default/lab-east"},
		{[]string{"repositories lab-w", "pull 1"}, "asked for", "pull default/lab-west"},
		{[]string{"jobs", "pull"}, "Say which", ""},
		{[]string{"suspend lab-west"}, "is suspended already", ""},
		{[]string{"resume lab-west"}, "resume of lab-west asked for", "resume default/lab-west"},
		{[]string{"resume lab-east"}, "is not suspended", ""},
		{[]string{"resume"}, "Say which", ""},
		{[]string{"job lab-west-push", "cancel", "yes"}, "cancel of lab-west-push asked for", "cancel default/lab-west-push"},
		{[]string{"jobs state:working", "cancel 2", "yes"}, "infra-alerts-sync asked for", "cancel default/infra-alerts-sync"},
		{[]string{"retry team-dash-sync"}, "Not done: this job runs now", ""},
		{[]string{"cancel y7c1"}, "Not done: this job has ended", ""},
		{[]string{"history", "retry 2", "yes"}, "asked for", "retry"},
		{[]string{"job ill-3"}, "error: GET info/refs", ""},
		{[]string{"job lab-east-sync-30"}, "error: GET info/refs", ""},
		{[]string{"job nowhere"}, "The history has none either", ""},
		{[]string{"history state:eror"}, "did you mean error?", ""},
		{[]string{"history repo:nowhere"}, "None of 36 jobs matches repo:nowhere", ""},
		{[]string{"jobs state:eror"}, "did you mean error?", ""},
		{[]string{"go repo lab-west"}, "resume lab-west ends that", ""},
		{[]string{"go job lab-west-push"}, "action: push", ""},
		{[]string{"filter repo:lab-east"}, "Jobs that match repo:lab-east: 2 of 7", ""},
		{[]string{"push lab-east"}, "limpet job create lab-east --action push", ""},
		{[]string{"theme mono"}, "is no command", ""},
		{[]string{"jbos"}, "Did you mean jobs?", ""},
		{[]string{"drain --off"}, "Not done: it claims jobs already", ""},
		{[]string{"undo"}, "The word help lists them", ""},
		{[]string{"doctor"}, "in another terminal: limpet doctor", ""},
		{[]string{"errors"}, "lab-east-sync: 401 bad credentials. Next: limpet job show lab-east-sync", ""},
		{[]string{"setup"}, "Not done: this limpet is set up", ""},
		{[]string{"more"}, "That was all.", ""},
		{[]string{"changes"}, "Say which", ""},
		{[]string{"job team-dash-sync", "changes"}, "", ""},
	} {
		h := listens(t, snap)
		var out []string
		for _, line := range c.lines {
			out = h.types(line)
		}
		has(t, out, c.want)
		got := ""
		if a := action(h.out); a != nil {
			got = fmt.Sprintf("%s %s/%s", a.Verb, a.Namespace, a.Name)
		}
		if got != c.act && !(c.act == "retry" && strings.HasPrefix(got, "retry ")) {
			t.Errorf("%q: sent %q, want %q; said %q", c.lines, got, c.act, out)
		}
	}
}

var entry = regexp.MustCompile(`^\d+: job `)

// TestLinearMore: a long list is said a page at a time, whole in the end.
func TestLinearMore(t *testing.T) {
	t.Parallel()
	snap := picture()
	for i := range 30 {
		snap.Jobs = append(snap.Jobs, snapshot.Job{UID: fmt.Sprint("m", i), Name: fmt.Sprintf("bulk-%02d", i), State: "pending"})
	}
	h := listens(t, snap)
	h.src.rows = ill(450)
	for list, entries := range map[string]int{"jobs": 37, "history action:pull": 450} {
		var all []string
		for out := h.types(list); ; out = h.types("more") {
			page := 0
			for _, l := range out {
				if entry.MatchString(l) || strings.Contains(l, " more like these") {
					page++
				}
			}
			if all = append(all, out...); page > pageBlocks {
				t.Fatalf("%s: %d entries at once", list, page)
			}
			if strings.Contains(out[len(out)-1], "That was all.") {
				break
			}
		}
		if list == "jobs" {
			has(t, all, fmt.Sprintf("%d: job bulk-29", entries))
		}
		if n := len(h.src.asked); list != "jobs" && n < 3 {
			t.Errorf("the history was asked %d times", n)
		}
	}
}

// TestLinearQuits: Ctrl-C and quit ask where jobs run in this process, and Ctrl-C
// twice ends.
func TestLinearQuits(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	if _, re := h.l.interrupt(); !re.Quit {
		t.Error("Ctrl-C leaves a daemon at once")
	}
	h.l.s.Source = Standalone
	l, re := h.l.interrupt()
	if re.Quit || !open(l.s) {
		t.Fatalf("Ctrl-C with jobs: %+v", re)
	}
	has(t, h.hear(re.lines), "Quit?", "1: Yes, give them back", "2: Finish first", "Anything else means no.")
	if _, re = l.interrupt(); !re.Quit {
		t.Error("twice does not end")
	}
	h.l = l
	if h.types("2"); action(h.out) == nil || action(h.out).Verb != Drain || !h.l.s.leaving {
		t.Errorf("finish first: %+v", h.out)
	}
	done := picture()
	done.Agent.Draining, done.Agent.Busy = noon, 0
	if h.l, _ = h.l.show(done, Standalone, "", noon); !h.l.s.Ended() {
		t.Error("it does not end")
	}
	h.l = l
	if h.types("yes"); !h.out.Quit {
		t.Error("yes does not quit")
	}
	h.l = l
	if h.types("stay"); h.out.Quit {
		t.Error("what is no yes quits")
	}
}

// TestLinearFails: what was asked for and failed is said at once.
func TestLinearFails(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	l, out := h.l.acted(errors.New("409: it is \x1b[31mthere already"))
	h.l = l
	has(t, h.hear(out), "14:02:37 not done: 409: it is [31mthere already")
	if out := h.show(picture()); len(out) > 0 {
		t.Errorf("said again: %q", out)
	}
	has(t, h.types("errors"), "there already")
	h.src.err = errors.New("the file is locked")
	has(t, h.types("history"), "The history cannot be read: the file is locked")
	has(t, h.types("job elsewhere"), "the file is locked")
}

// TestLinearFirstRun: a fresh limpet says the two ways on.
func TestLinearFirstRun(t *testing.T) {
	t.Parallel()
	s := NewState(Standalone, Caps{}, noon)
	s.SetUp = true
	h := &listener{t: t, l: newLinear(s), src: &archive{}, now: noon}
	h.show(&snapshot.Snapshot{API: snapshot.API{Server: "embedded", Embedded: true, Up: true}})
	out := h.show(&snapshot.Snapshot{API: snapshot.API{Server: "embedded", Embedded: true, Up: true, Synced: true}})
	has(t, out, "limpet repo create NAME", "The word setup asks three questions")
	if h.types("setup"); !h.out.SetUp {
		t.Error("the word does nothing")
	}
}

// TestLinearAsksForSettings: the set-up and the blocked screen in words.
func TestLinearAsksForSettings(t *testing.T) {
	t.Parallel()
	u := setUp{file: "/home/a/.config/limpet/config.yaml"}
	var want wish
	say := func(lines ...string) string {
		for _, line := range lines {
			u.wrong = ""
			u, want = u.enter(line)
		}
		out := u.spoken()
		for _, line := range out {
			plainLine(t, line)
		}
		return strings.Join(out, "\n")
	}
	for _, c := range []struct {
		lines []string
		said  string
		want  wish
	}{
		{[]string{""}, "1 of 3. Where is the server?", wishNothing},
		{[]string{"nonsense://x"}, "this is no address", wishNothing},
		{[]string{"grafana.example.com"}, "2 of 3. Who are you?", wishNothing},
		{[]string{"glsa_secret"}, "a token that is typed would be read out", wishNothing},
		{[]string{"back", "https://grafana.example.com", "/etc/limpet/token"}, "3 of 3. Trying https://grafana.example.com", wishTry},
		{[]string{"2"}, "Trying", wishNothing},
	} {
		if got := say(c.lines...); !strings.Contains(got, c.said) || want != c.want {
			t.Errorf("%q: said %q, wish %d", c.lines, got, want)
		}
	}
	if strings.Contains(fmt.Sprint(u), "glsa_secret") {
		t.Error("the token that was typed is kept")
	}
	u = u.took(triedMsg{of: u, err: errors.New("401 \x1b[31m")})
	if got := say(""); !strings.Contains(got, "It does not work: 401 [31m") || !strings.Contains(got, "2: write them all the same") {
		t.Errorf("said %q", got)
	}
	if say("yes"); want != wishNothing {
		t.Error("yes is none of the numbers")
	}
	tried := u
	if say("1"); u.step != askToken {
		t.Error("1 does not lead back")
	}
	u = tried
	if say("2"); want != wishSave || !u.busy {
		t.Error("2 does not write")
	}
	if say("leave"); want != wishLeave {
		t.Error("leave does not")
	}

	b := blocked{holder: Holder{Path: "/x", PID: 7, Socket: "/s"}, canCopy: true, now: noon}
	has(t, b.spoken(), "in use by process 7", "1: wait until it is free", "2: open a copy, read-only", "3: quit", "Type a number.")
	for line, key := range map[string]string{"1": "w", " Wait ": "w", "2": "o", "copy": "o", "3": "q", "quit": "q", "4": "", "0": "", "": "", "yes": ""} {
		if got := b.typed(line); got != key {
			t.Errorf("%q is %q, want %q", line, got, key)
		}
	}
	waits, _, _, _ := b.press("w")
	again, _ := waits.looked(Look{}, noon.Add(time.Second))
	if !waits.differs(b) || again.differs(waits) {
		t.Error("another try alone is nothing new")
	}
	free, _ := b.looked(Look{Free: true}, noon)
	has(t, free.spoken(), "1: open it", "2: quit")
	if free.typed("2") != "q" {
		t.Error("the numbers are those that were said")
	}
}

// FuzzLinear: a typed line never panics and its answer is plain text.
func FuzzLinear(f *testing.F) {
	for _, line := range []string{"pull lab-east", "full pull team-dash", "jobs state:error", "history since:24h", "1", "yes", "\x1b[2J", "go repo lab", "diff 99999999999999999999", "more"} {
		f.Add(line, "yes")
	}
	f.Fuzz(func(t *testing.T, line, then string) {
		h := listens(t, picture())
		h.types(line)
		h.types(then)
	})
}
