package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// typed opens the palette and types words.
func typed(s State, words string) State {
	return press(s, append([]string{":"}, strings.Split(words, "")...)...)
}

func TestPalette(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	top := func(s State) command {
		p := s.overlay.(chooser)
		return p.found[p.at]
	}
	t.Run("words find what they mean, and the last line says the same for a shell", func(t *testing.T) {
		for words, want := range map[string][2]string{
			"pull tea":            {"pull team-dash", "limpet repo pull team-dash"},
			"pull team-dash --":   {"pull team-dash --full", "limpet repo pull team-dash --full"},
			"team pull":           {"pull team-dash", "limpet repo pull team-dash"},
			"PULL LAB-E":          {"pull lab-east", "limpet repo pull lab-east"},
			"plteam":              {"pull team-dash", "limpet repo pull team-dash"},
			"go repo lab-w":       {"go repo lab-west", "limpet repo show lab-west"},
			"go job infra":        {"go job infra-alerts-sync", "limpet job show infra-alerts-sync"},
			"go hist":             {"go history", "limpet history list"},
			"cancel lab-west-m":   {"cancel lab-west-move", "limpet job cancel lab-west-move"},
			"suspend lab-e":       {"suspend lab-east", "limpet repo suspend lab-east"},
			"history repo:lab-e":  {"history repo:lab-east", "limpet history list --repository lab-east"},
			"push lab-e":          {"push lab-east", "limpet job create lab-east --action push"},
			"test lab-e":          {"test lab-east", "limpet repo test lab-east"},
			"drain":               {"drain", "limpet drain"},
			"theme high":          {"theme high-contrast", ""},
			"copy comm":           {"copy command", ""},
			"cancel":              {"cancel", "limpet job cancel team-dash-sync"},
			"retry lab-east-sync": {"retry lab-east-sync", "limpet job retry z8z8"},
			"pull ch":             {"pull changes", "limpet repo pull team-dash"},
			"test":                {"test", "limpet repo test team-dash"},
			"show as":             {"show as YAML", "limpet get job team-dash-sync -o yaml"},
			"edit": {"edit", "limpet get repository team-dash -o yaml > team-dash.yaml && ${EDITOR:-vi} " +
				"team-dash.yaml && limpet apply -f team-dash.yaml"},
			"its hist": {"its history", "limpet history list --repository team-dash"},
		} {
			at := typed(s, words)
			c := top(at)
			line := ""
			if c.line != nil {
				line = c.line(&at)
			}
			if c.words != want[0] || line != want[1] {
				t.Errorf("%q finds %q, the same as %q; want %q", words, c.words, line, want)
			}
			if frame := strip(render(at, 100, 30, widget.Caps{})); line != "" && c.refusal(&at) == "" &&
				!strings.Contains(frame, "same as: "+line[:min(len(line), 50)]) {
				t.Errorf("%q: no %q in\n%s", words, line, frame)
			}
		}
	})
	t.Run("Enter acts on what was meant, wherever the cursor is", func(t *testing.T) {
		at, out := typed(s, "pull lab-west").Key("enter", "")
		if a := action(out); a == nil || a.Verb != Pull || a.Name != "lab-west" || at.overlay != nil {
			t.Errorf("got %+v", out)
		}
		if at := press(typed(s, "pull lab-west --full"), "enter"); !strings.Contains(askedText(at), "Full pull of lab-west") {
			t.Errorf("asks %q", askedText(at))
		}
		if at := press(typed(s, "cancel lab-west-push"), "enter"); !strings.Contains(askedText(at), "Cancel lab-west-push") {
			t.Errorf("asks %q", askedText(at))
		}
		if frame := strip(render(typed(s, "retry lab-west-move"), 100, 30, widget.Caps{})); !strings.Contains(frame, "runs now") ||
			strings.Contains(frame, "same as") {
			t.Errorf("the last line does not say why nothing is done:\n%s", frame)
		}
		at, out = typed(s, "retry lab-west-move").Key("enter", "")
		if len(out.Actions) > 0 || open(at) || !strings.Contains(at.toast, "runs now") {
			t.Errorf("what is refused: %+v, said %q", out, at.toast)
		}
		if at := press(typed(s, "go repo lab-west"), "enter"); at.screen != screenRepo || at.repo.repo.Name != "lab-west" {
			t.Errorf("screen %d", at.screen)
		}
		if at := press(typed(s, "theme blue"), "enter"); at.Caps.Theme != 2 || at.toast != "theme blue-orange" {
			t.Errorf("theme %d, said %q", at.Caps.Theme, at.toast)
		}
		if at := press(typed(press(s, "3"), "filter repo:lab-east"), "enter"); at.screen != screenJobs || at.filter() != "repo:lab-east" {
			t.Errorf("screen %d, filter %q", at.screen, at.filter())
		}
		if at := press(typed(s, "drain"), "enter"); !strings.Contains(askedText(at), "Nothing new is claimed") {
			t.Errorf("asks %q", askedText(at))
		}
	})
	t.Run("what writes to Git is never sent", func(t *testing.T) {
		for _, words := range gitWriteActions {
			at, out := typed(s, words+" lab-east").Key("enter", "")
			want := "limpet job create lab-east --action " + words
			if len(out.Actions) > 0 || open(at) || out.Copy != want || at.toast != want {
				t.Errorf("%s: %+v, said %q", words, out, at.toast)
			}
		}
		for _, b := range bindings {
			if slices.Contains(gitWriteActions, string(b.verb)) {
				t.Errorf("%s starts a %s", b.label, b.verb)
			}
		}
	})
	t.Run("a command looks again at what it acts on", func(t *testing.T) {
		at := typed(s, "cancel lab-west-move")
		later := testSnapshot()
		later.Jobs = later.Jobs[:1]
		at, out := at.Show(later).Key("enter", "")
		if len(out.Actions) > 0 || open(at) || at.toast == "" {
			t.Errorf("the job is gone: %+v, %q", out, at.toast)
		}
		none := testSnapshot()
		none.Jobs, none.Repos = nil, nil
		for words, want := range map[string]string{"go job lab-west-move": "lab-west-move is not in the queue any more",
			"go repo lab-west": "lab-west is not there any more"} {
			at := typed(s, words).Show(none)
			if frame := strip(render(at, 100, 30, widget.Caps{})); !strings.Contains(frame, want) || strings.Contains(frame, "same as") {
				t.Errorf("%s: the palette does not say so:\n%s", words, frame)
			}
			if at = press(at, "enter"); at.screen != screenOverview || !strings.HasPrefix(at.toast, want) || !at.toastBad {
				t.Errorf("%s leads to screen %d and says %q", words, at.screen, at.toast)
			}
		}
	})
	t.Run("a key of the row acts on the row that it names, though the cursor has gone on", func(t *testing.T) {
		later := testSnapshot()
		later.Jobs = append([]snapshot.Job{{UID: "new", Namespace: "default", Name: "new-sync", Repository: "lab-east", Action: "pull",
			State: "pending", Created: noon}}, later.Jobs...)
		at := typed(s, "cancel").Show(later)
		if j, _ := selected(at); j.UID != "new" {
			t.Fatalf("the cursor is on %q", j.Name)
		}
		if f := strip(render(at, 100, 30, widget.Caps{})); !strings.Contains(f, "limpet job cancel team-dash-sync") {
			t.Errorf("what it is about is not said:\n%s", f)
		}
		if at := press(at, "enter"); !strings.Contains(askedText(at), "Cancel team-dash-sync?") {
			t.Errorf("asks %q", askedText(at))
		}
		if _, out := typed(s, "pull changes").Show(later).Key("enter", ""); action(out) == nil || action(out).Name != "team-dash" {
			t.Errorf("pulls %+v", out)
		}
		if at := typed(press(s, "*"), "cancel"); top(at).note != "of the 6 that are marked" {
			t.Errorf("of several: %q", top(at).note)
		}
	})
	t.Run("nothing does the contrary of its words", func(t *testing.T) {
		for _, was := range []bool{false, true} {
			before, later := testSnapshot(), testSnapshot()
			before.Repos[0].Suspended, later.Repos[0].Suspended = was, !was
			before.Sources = []snapshot.Source{{UID: "s1", Namespace: "flux", Name: "apps", Suspended: was}}
			later.Sources = []snapshot.Source{{UID: "s1", Namespace: "flux", Name: "apps", Suspended: !was}}
			s := shown(before, widget.Caps{})
			verb := map[bool]string{false: "suspend ", true: "resume "}[was]
			for _, at := range []State{typed(s, verb+before.Repos[0].Name), typed(press(s, "3"), "suspend"), typed(s, verb+"source apps"),
				typed(press(s, "6"), "suspend")} {
				words := top(at).words
				at = at.Show(later)
				if f := strip(render(at, 100, 30, widget.Caps{})); strings.Contains(f, "same as") {
					t.Errorf("%s: it does not say that it does nothing:\n%s", words, f)
				}
				at, out := at.Key("enter", "")
				if len(out.Actions) > 0 || open(at) || !strings.Contains(at.toast, "suspended") {
					t.Errorf("%s: %+v, asks %q, says %q", words, out.Actions, askedText(at), at.toast)
				}
			}
		}
	})
	t.Run("Tab completes, and up brings back those of before", func(t *testing.T) {
		at := press(typed(s, "go repo lab-w"), "tab")
		if p := at.overlay.(chooser); p.text != "go repo lab-west" {
			t.Errorf("completed to %q", p.text)
		}
		at = press(press(at, "enter"), "1")
		at = press(typed(at, "theme mono"), "enter")
		at = press(at, ":", "up")
		if p := at.overlay.(chooser); p.text != "theme mono" {
			t.Errorf("up: %q", p.text)
		}
		at = press(at, "up", "up")
		if p := at.overlay.(chooser); p.text != "go repo lab-west" {
			t.Errorf("up again: %q", p.text)
		}
		at = press(at, "down")
		if p := at.overlay.(chooser); p.text != "theme mono" {
			t.Errorf("down: %q", p.text)
		}
		at = press(at, "down")
		if p := at.overlay.(chooser); p.text != "" {
			t.Errorf("down again: %q", p.text)
		}
		if c := top(press(at, "g", "o", " ", "r", "e", "p", "o", " ")); c.words != "go repo lab-west" {
			t.Errorf("what was used comes first, not %q", c.words)
		}
	})
	t.Run("it remembers a few", func(t *testing.T) {
		at := s
		for i := range 3 * paletteKept {
			at.perform(command{words: fmt.Sprint(i % (2 * paletteKept)), do: func(*State) {}})
		}
		if len(at.usedCommands) != paletteKept || at.usedCommands[paletteKept-1] != fmt.Sprint(paletteKept-1) {
			t.Errorf("%q", at.usedCommands)
		}
	})
	t.Run("letters are text", func(t *testing.T) {
		if p := typed(s, "jkq?").overlay.(chooser); p.text != "jkq?" {
			t.Errorf("typed %q", p.text)
		}
	})
}

// TestReadOnly: every key with an action reports that the dashboard is read-only.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	s.ReadOnly = true
	for _, keys := range [][]string{nil, {"2"}, {"3"}, {"enter"}, {"3", "enter"}} {
		for _, b := range bindings {
			at := press(s, keys...)
			if b.verb == "" || !b.here(&at) {
				continue
			}
			if at, out := at.Key(strings.Fields(b.press)[0], ""); len(out.Actions) > 0 || open(at) || at.toast != at.readOnlyReason() {
				t.Errorf("%v %s: %+v, said %q", keys, b.label, out, at.toast)
			}
		}
	}
	for _, words := range []string{"pull lab-east", "cancel lab-west-push", "drain"} {
		if at, out := typed(s, words).Key("enter", ""); len(out.Actions) > 0 || open(at) || at.toast != at.readOnlyReason() {
			t.Errorf("%s: %+v, said %q", words, out, at.toast)
		}
	}
	s.Source = Standalone
	if q, _ := press(s, "q").overlay.(confirm); len(q.choices) != 1 {
		t.Errorf("quit offers %d ways: to drain is to ask for something", len(q.choices))
	}
}

func BenchmarkPaletteKey(b *testing.B) {
	snap := testSnapshot()
	for i := range 1000 {
		snap.Jobs = append(snap.Jobs, snapshot.Job{UID: fmt.Sprint("u", i), Name: fmt.Sprint("job-", i), State: "pending", Created: noon})
		snap.Repos = append(snap.Repos, snapshot.Repo{UID: fmt.Sprint("r", i), Name: fmt.Sprint("repo-", i)})
	}
	s := typed(shown(snap, widget.Caps{}), "pull re")
	for b.Loop() {
		at := press(s, "p")
		render(at, 80, 24, at.Caps)
	}
}

// Texts that must be visible at common sizes.

// bottom returns the last line of a frame.
func bottom(frame string) string { return frame[strings.LastIndexByte(frame, '\n')+1:] }

// TestFootersAreTheKeysOfTheBox: the last line shows the keys of the open box instead of those
// of the screen.
func TestFootersAreTheKeysOfTheBox(t *testing.T) {
	t.Parallel()
	sick := shown(failingSnapshot(), widget.Caps{Mono: true, ASCII: true})
	s := shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true})
	working := s
	working.Source = Standalone
	large := testSnapshot()
	large.Repos[0].Resources = typeNameFrom
	for name, tt := range map[string]struct {
		s    State
		want string
	}{
		"help":    {press(s, "?"), "enter do it  letters search  esc close"},
		"palette": {press(s, ":"), "tab complete  enter run  esc close"},
		"errors":  {press(sick, "e"), "enter what it is about  c copy  d dismiss  D all  esc close"},
		"test":    {press(s, "3", "t"), "scroll  y copy command  esc close"},
		"sort":    {press(s, "2", "o"), "enter sort, again reverses  esc close"},
		"cancel":  {press(s, "x"), "y Yes, cancel it  n No, go back"},
		"quit":    {press(working, "q"), "y Yes, give them back  f Finish first  n No, go back"},
		"typed":   {press(shown(large, s.Caps), "3", "P"), "enter when the name is typed  esc no"},
	} {
		if got := bottom(render(tt.s, 100, 30, s.Caps)); !strings.Contains(got, tt.want) || strings.Contains(got, "open") ||
			strings.Contains(got, "q quit") {
			t.Errorf("%s: the last line is %q", name, got)
		}
	}
	for keys, want := range map[string]string{"3": "s suspend", "1 tab": "h history", "2": "x cancel"} {
		if got := bottom(render(press(s, strings.Fields(keys)...), 100, 30, s.Caps)); !strings.Contains(got, want) {
			t.Errorf("%s: no word of %q in %q", keys, want, got)
		}
	}
	paused := testSnapshot()
	paused.Repos[0].Suspended = true
	if got := bottom(render(press(shown(paused, s.Caps), "3"), 100, 30, s.Caps)); !strings.Contains(got, "s resume") {
		t.Errorf("a suspended one: %q", got)
	}
}

// TestHelpTextsFit: no description of a key is cut in its column.
func TestHelpTextsFit(t *testing.T) {
	t.Parallel()
	for _, b := range bindings {
		text := b.words
		if b.asks {
			text += " (y)"
		}
		if len(text) > 15 {
			t.Errorf("%q has %d letters, there is room for %d", text, len(text), 15)
		}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	good, warned, failed := "completed successfully", "completed with warnings", "completed with errors"
	for _, tt := range []struct {
		j    snapshot.Job
		want string
	}{
		{snapshot.Job{Message: "pushed 4e55f01"}, "pushed 4e55f01"},
		{snapshot.Job{Message: good}, ""},
		{snapshot.Job{Message: good, Summary: []snapshot.Summary{{Create: 2000}, {Create: 24, Update: 3, Delete: 1, Noop: 9}}}, "+2,024 ~3 -1"},
		{snapshot.Job{Message: good, Summary: []snapshot.Summary{{Noop: 9}}}, "nothing to change"},
		{snapshot.Job{Message: warned, Warnings: []string{"old (file: a.json, name: , action: updated)"},
			Summary: []snapshot.Summary{{Warn: 1, Create: 1}}}, "a.json: old"},
		{snapshot.Job{Message: warned, Warnings: []string{"a", "b"}, Summary: []snapshot.Summary{{Warn: 2, Create: 1}}}, "2 warnings, +1"},
		{snapshot.Job{Message: failed, Errors: []string{"a", "b"}, Warnings: []string{"c"}}, "2 errors, 1 warning"},
		{snapshot.Job{Message: failed}, ""},
	} {
		if got := jobResult(tt.j); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.j, got, tt.want)
		}
	}
	snap := testSnapshot()
	snap.Jobs[6].State, snap.Jobs[6].Message, snap.Jobs[6].Errors, snap.Jobs[6].Summary = "success", good, nil, []snapshot.Summary{{Update: 3}}
	if frame := render(shown(snap, widget.Caps{ASCII: true, Mono: true}), 80, 24,
		widget.Caps{ASCII: true, Mono: true}); !strings.Contains(frame, "success ~3 ") || strings.Contains(frame, "completed") {
		t.Errorf("the list does not say what was done:\n%s", frame)
	}
	for _, tt := range []struct {
		came state.Totals
		want string
	}{
		{state.Totals{}, ""},
		{state.Totals{Counted: true}, "nothing to change"},
		{state.Totals{Counted: true, Create: 2024, Update: 3, Delete: 1}, "+2,024 ~3 -1"},
		{state.Totals{Counted: true, Create: 1, Warnings: 2}, "2 warnings, +1"},
		{state.Totals{Warnings: 1, Only: "old (file: a.json, name: , action: updated)"}, "a.json: old"},
		{state.Totals{Errors: 2, Warnings: 1}, "2 errors, 1 warning"},
	} {
		r := snapshot.HistoryRow{UID: "u", Name: "n", Repository: "r", State: "success", Message: good, Finished: noon, Tally: &tt.came}
		if got := recordResult(r); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.came, got, tt.want)
		}
		frame := render(settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "4"),
			&archive{rows: []snapshot.HistoryRow{r}}), 140, 40, widget.Caps{Mono: true, ASCII: true})
		if strings.Count(frame, tt.want) < 2 { // in the row, and in the record below it
			t.Errorf("the history does not say %q twice:\n%s", tt.want, frame)
		}
	}
	if a, b := (snapshot.HistoryRow{State: "warning", Message: warned, Tally: &state.Totals{Only: "a"}}),
		(snapshot.HistoryRow{State: "warning", Message: warned, Tally: &state.Totals{Only: "b"}}); sameFailure(a, b) || !sameFailure(a, a) {
		t.Error("two warnings of different texts are folded as one")
	}
	src := &archive{rows: []snapshot.HistoryRow{{UID: "u", Name: "n", Repository: "r", State: "success", Message: good, Finished: noon}}}
	if frame := render(settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "4"), src), 80, 24,
		widget.Caps{Mono: true, ASCII: true}); strings.Contains(frame, "completed") || !strings.Contains(frame, "+ success  ") {
		t.Errorf("the history says the same twice:\n%s", frame)
	}
}

// TestFiguresAreNotCut: a cut number is a wrong number.
func TestFiguresAreNotCut(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.Jobs[0].Done, snap.Jobs[0].Total = 123456, 1234567
	snap.Jobs[1].Done, snap.Jobs[1].Total = 3031, 3031
	for _, w := range []int{100, 120, 140} {
		frame := render(press(shown(snap, widget.Caps{Mono: true, ASCII: true}), "2"), w, 30, widget.Caps{Mono: true, ASCII: true})
		if !strings.Contains(frame, " 123456/1234567 ") || !strings.Contains(frame, " 3031 ") {
			t.Errorf("%d wide:\n%s", w, frame)
		}
	}
}

// TestRepositoriesAreCountedByState: the title counts repositories by state, and each failing
// one shows since when.
func TestRepositoriesAreCountedByState(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.Repos[0].SyncState, snap.Repos[2].SyncState = "warning", ""
	for _, w := range []int{80, 100, 140} {
		frame := render(press(shown(snap, widget.Caps{Mono: true, ASCII: true}), "3"), w, 24, widget.Caps{Mono: true, ASCII: true})
		for _, want := range []string{"1 in order, 1 with warnings, 1 failing, 1 not pulled yet", "failing 3h"} {
			if !strings.Contains(frame, want) {
				t.Errorf("%d wide: no word of %q in\n%s", w, want, frame)
			}
		}
	}
	snap.Repos[3].SyncState, snap.Repos[3].LastRef = "pending", strings.Repeat("9c0ffee1", 5)
	if note := reposNote(snap.Repos); note != "0 in order, 1 with warnings, 1 failing, 1 waiting, 1 not pulled yet" {
		t.Errorf("one that was pulled waits: %q", note)
	}
}

// TestUnusedLinesGoToRepositories: on the overview, repositories get the lines that jobs do not need, and
// both cursors stay visible.
func TestUnusedLinesGoToRepositories(t *testing.T) {
	t.Parallel()
	for jobs := range 12 {
		for repos := range 12 {
			snap := testSnapshot()
			snap.Jobs, snap.Repos = nil, nil
			for i := range jobs {
				snap.Jobs = append(snap.Jobs, snapshot.Job{UID: fmt.Sprint("u", i), Name: fmt.Sprintf("job-%02d", i), State: "pending", Created: noon})
			}
			for i := range repos {
				snap.Repos = append(snap.Repos, snapshot.Repo{UID: fmt.Sprint("r", i), Name: fmt.Sprintf("repo-%02d", i)})
			}
			frame := render(shown(snap, widget.Caps{Mono: true, ASCII: true}), 80, 24, widget.Caps{Mono: true, ASCII: true})
			seenJobs, seenRepos := strings.Count(frame, "job-"), strings.Count(frame, " repo-")
			if want := min(jobs, 8); repos <= 6 && seenJobs != want {
				t.Errorf("%d jobs, %d repositories: %d jobs are seen, want %d\n%s", jobs, repos, seenJobs, want, frame)
			}
			if want := min(repos, 6+max(4-max(jobs-4, 0), 0)); seenRepos != want {
				t.Errorf("%d jobs, %d repositories: %d repositories are seen, want %d\n%s", jobs, repos, seenRepos, want, frame)
			}
		}
	}
}

// TestDisabledKeysAreNotMentioned: while no action can be sent, no text mentions its key.
func TestDisabledKeysAreNotMentioned(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.Jobs, snap.Repos[1].SyncState = nil, ""
	live := shown(snap, widget.Caps{Mono: true, ASCII: true})
	disk, readOnly := live, live
	disk.Source, readOnly.ReadOnly = FromDisk, true
	for keys, want := range map[string]string{"2": "p on a repository starts one", "4": "p on a repository starts a pull",
		"3 enter": "p starts a pull"} {
		at := func(s State) string {
			return render(settle(t, press(s, strings.Fields(keys)...), &archive{}), 119, 30, s.Caps)
		}
		if !strings.Contains(at(live), want) {
			t.Errorf("%s: no word of %q in\n%s", keys, want, at(live))
		}
		for name, s := range map[string]State{"disk": disk, "read-only": readOnly, "gone": live.Lose("no daemon")} {
			if strings.Contains(at(s), want) {
				t.Errorf("%s, %s: %q in\n%s", name, keys, want, at(s))
			}
		}
	}
}

// TestNoEmptyBoxes: an empty box is hidden, or shows the reason.
func TestNoEmptyBoxes(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true})
	if frame := render(settle(t, press(s, "4"), &archive{}), 80, 24, s.Caps); strings.Contains(frame, "Record") ||
		strings.Count(frame, "\n+") != 2 {
		t.Errorf("a history without a job has a record:\n%s", frame)
	}
	if frame := render(settle(t, press(s, "3", "enter"), &archive{}), 80, 24, s.Caps); !strings.Contains(frame, "No job has ended.") ||
		strings.Contains(frame, "p50") {
		t.Errorf("a day without a job has figures:\n%s", frame)
	}
	for state, want := range map[string]string{"done": "No log of this job is kept here.",
		"other": "The agent that runs it has the log.", "waits": "It has not begun.", "runs": "It has said nothing yet."} {
		snap := testSnapshot()
		j := &snap.Jobs[0]
		j.Log, j.Errors, j.Warnings = nil, nil, nil
		switch state {
		case "done":
			j.Finished = noon.Add(-time.Second)
		case "other":
			j.Owner = "other"
		case "waits":
			j.Owner, j.State = "", "pending"
		}
		at := press(shown(snap, s.Caps), "2")
		at.jobs.cursor = j.UID
		if frame := render(press(at, "enter"), 80, 24, s.Caps); !strings.Contains(frame, want) || strings.Contains(frame, "following") {
			t.Errorf("%s: no word of %q in\n%s", state, want, frame)
		}
	}
}

// TestSharedErrorIsShownOnce: an error that several lines of the agent screen share is shown once.
func TestSharedErrorIsShownOnce(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.API.Up, snap.API.Error = false, "dial tcp 10.0.3.7:443: i/o timeout"
	src := &archive{care: snapshot.DiagnosticsReport{At: noon,
		Watches: []snapshot.Watch{{Kind: "jobs", Objects: 3, Synced: true, Error: "reach https://x: " + snap.API.Error},
			{Kind: "repositories", Error: "not allowed"}}, Tokens: []snapshot.Tokens{{Provider: "github", TokenCounts: auth.TokenCounts{Failed: 4}}}}}
	frame := render(settle(t, press(shown(snap, widget.Caps{Mono: true, ASCII: true}), "5"), src), 100, 40,
		widget.Caps{Mono: true, ASCII: true})
	for _, want := range []string{"3 known; not watched while the API is away", "0 known; not allowed",
		"github       0 held; 4 could not be made "} {
		if !strings.Contains(frame, want) {
			t.Errorf("no word of %q in\n%s", want, frame)
		}
	}
	local := testSnapshot()
	local.API.Embedded, local.API.Server = true, "embedded"
	if frame := render(settle(t, press(shown(local, widget.Caps{Mono: true, ASCII: true}), "5"), src), 100, 40,
		widget.Caps{Mono: true, ASCII: true}); !strings.Contains(frame, "server       * embedded API") {
		t.Errorf("the server:\n%s", frame)
	}
}
