package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// TestTellsALostSourceOnce: that a source was lost is said when it is lost. It is no
// new error once the source answers again, however often it was asked meanwhile.
func TestTellsALostSourceOnce(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	var out []string
	for range 3 {
		h.l, out = h.l.lose("connection refused", h.now)
		h.hear(out)
		h.after(5 * time.Second)
	}
	back := h.show(picture())
	if len(back) != 1 || !strings.Contains(back[0], "the daemon answers again") {
		t.Errorf("once it answers: %q", back)
	}
	if out := append(h.after(2*time.Minute), h.show(picture())...); len(out) > 0 {
		t.Errorf("later: %q", out)
	}
	if got := strings.Count(strings.Join(h.said, "\n"), "connection refused"); got != 1 {
		t.Errorf("said %d times:\n%s", got, strings.Join(h.said, "\n"))
	}
	has(t, h.types("errors"), "connection refused")
}

// TestTellsNothingOfTheGreeting: what was there when somebody came in is said in the
// greeting, and not again as news.
func TestTellsNothingOfTheGreeting(t *testing.T) {
	t.Parallel()
	snap := ailing()
	snap.Problem = "the clock is wrong"
	snap.Events = append(snap.Events, snapshot.Event{At: noon, Level: "error", Repo: "lab-west", Text: "no route"})
	snap.Jobs[0].Errors = append(snap.Jobs[0].Errors, "a.json: bad")
	h := listens(t, snap)
	if out := append(h.after(5*time.Second), h.show(snap)...); len(out) > 0 {
		t.Errorf("after the greeting: %q", out)
	}
	for _, line := range h.said {
		if strings.HasPrefix(line, noon.Format("15:04:")) {
			t.Errorf("the greeting goes on with %q", line)
		}
	}
}

// TestTellsErrorsAfterAnyBurst: when many jobs have ended at once, what goes wrong
// right after that has room of its own, and what has none is counted.
func TestTellsErrorsAfterAnyBurst(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	h.after(10 * time.Second)
	ended := func(n int, state string) *snapshot.Snapshot {
		next := picture()
		for i := range n {
			next.Jobs = append(next.Jobs, snapshot.Job{UID: fmt.Sprint(state, i), Name: fmt.Sprint(state, "-", i), State: state, Message: fmt.Sprint("reason ", i), Finished: h.now, Owner: "this"})
		}
		return next
	}
	if out := h.show(ended(19, "success")); len(out) != tellBurst-tellSpare {
		t.Errorf("of 19 ends: %q", out)
	}
	all := ended(19, "success")
	all.Jobs = append(all.Jobs, ended(9, "error").Jobs[len(picture().Jobs):]...)
	out := h.show(all)
	if len(out) != tellSpare {
		t.Errorf("of 9 errors: %q", out)
	}
	for i, line := range out {
		if !strings.Contains(line, fmt.Sprintf("error-%d: error, reason %d. Next: job error-%d", i, i, i)) {
			t.Errorf("an error is told as %q", line)
		}
	}
	has(t, h.after(time.Second), "and 6 more errors: errors lists them, 14 more jobs ended")
	if out := h.after(10 * time.Second); len(out) > 0 {
		t.Errorf("counted twice: %q", out)
	}
}

// TestTellsErrorsFirst: of one burst errors are told before what has ended, whatever
// their order is in the picture.
func TestTellsErrorsFirst(t *testing.T) {
	t.Parallel()
	h := listens(t, picture())
	h.after(10 * time.Second)
	next := picture()
	for i := range 30 {
		state := "success"
		if i%10 == 9 {
			state = "error"
		}
		next.Jobs = append(next.Jobs, snapshot.Job{UID: fmt.Sprint("b", i), Name: fmt.Sprint("bulk-", i), State: state, Message: fmt.Sprint("reason ", i), Finished: h.now, Owner: "this"})
	}
	out := h.show(next)
	if len(out) != tellBurst-tellSpare {
		t.Fatalf("said %q", out)
	}
	for i, line := range out {
		if isError := strings.Contains(line, ": error, "); isError != (i < 3) {
			t.Errorf("line %d of %q", i+1, out)
		}
	}
}

// TestLinearPages: ten entries of a list are said at once, and twenty things that a
// name may mean.
func TestLinearPages(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][2]int{9: {9, 9}, 10: {10, 10}, 11: {10, 11}, 20: {10, 20}, 21: {10, 20}, 45: {10, 20}} {
		snap := &snapshot.Snapshot{API: picture().API}
		for i := range n {
			snap.Jobs = append(snap.Jobs, snapshot.Job{UID: fmt.Sprint("m", i), Name: fmt.Sprintf("bulk-%02d", i), State: "working", Owner: "this"})
		}
		h := listens(t, snap)
		entries := func(lines []string, mark string) (some int) {
			for _, l := range lines {
				if strings.Contains(l, mark) {
					some++
				}
			}
			return some
		}
		out := h.types("jobs")
		if got := entries(out, ": job bulk-"); got != want[0] {
			t.Errorf("%d of %d jobs are said at once", got, n)
		}
		if more := fmt.Sprintf("%d more: the word more goes on.", n-want[0]); slices.Contains(out, more) != (n > want[0]) {
			t.Errorf("of %d: %q", n, out)
		}
		out = h.types("cancel bulk")
		if got := entries(out, ": bulk-"); got != want[1] {
			t.Errorf("%d of %d jobs are offered", got, n)
		}
		if more := fmt.Sprintf("%d more: type more of the name.", n-want[1]); slices.Contains(out, more) != (n > want[1]) {
			t.Errorf("of %d: %q", n, out)
		}
		last := fmt.Sprint(want[1])
		if out = h.types(fmt.Sprint(want[1] + 1)); !slices.Equal(out, []string{"Type a number from 1 to " + last + ", or another command."}) {
			t.Errorf("one too many: %q", out)
		}
		has(t, h.types(last), fmt.Sprintf("Cancel bulk-%02d", want[1]-1))
	}
}

// TestSetUpForgetsATypedToken: a token that was typed where it would be read out is
// not kept: it is not in what is asked next, and goes nowhere.
func TestSetUpForgetsATypedToken(t *testing.T) {
	t.Parallel()
	u := setUp{}
	for _, line := range []string{"grafana.example.com", "glsa_secret", "", "back", "grafana.example.com"} {
		u, _ = u.enter(line)
		if text := fmt.Sprintf("%+v %q", u, u.spoken()); strings.Contains(text, "glsa_secret") {
			t.Fatalf("after %q: %s", line, text)
		}
		u.wrong = ""
	}
	if u.step != askToken || u.settings() != (Settings{Server: "https://grafana.example.com"}) {
		t.Errorf("step %d, %+v", u.step, u.settings())
	}
}
