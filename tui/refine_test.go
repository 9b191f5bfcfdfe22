package tui

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// TestFilterTypedIsFilterAsked: whatever was typed, pasted and taken back before, and
// whatever has ended or left meanwhile, a filter shows what the history says to it
// when it is asked afresh.
func TestFilterTypedIsFilterAsked(t *testing.T) {
	t.Parallel()
	asked, steps := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 11))
		src, now, n := &archive{}, noon, 0
		end := func() { // a job ends, at times one that has ended before
			n++
			p := snapshot.Past{UID: fmt.Sprint("u", n), Namespace: "default", Name: fmt.Sprintf("lab-%d-sync-%d", r.IntN(30), n), Repository: fmt.Sprint("lab-", r.IntN(30)), Action: []string{"pull", "push"}[r.IntN(2)],
				State: []string{"success", "error", "warning"}[r.IntN(3)], Message: []string{"done", "401 Bad credentials", "ÉTAT", "so\x1bso"}[r.IntN(4)], Finished: now}
			if p.Message == "so\x1bso" && seed%4 != 0 { // in some histories only
				p.Message = "done"
			}
			if len(src.rows) > 0 && r.IntN(10) == 0 {
				i := r.IntN(len(src.rows))
				p.UID, p.Name = src.rows[i].UID, src.rows[i].Name
				src.rows = slices.Delete(src.rows, i, i+1)
			}
			src.rows = slices.Insert(src.rows, 0, p)
		}
		for range r.IntN(2000) {
			now = now.Add(time.Duration(r.IntN(5)) * time.Minute)
			end()
		}
		count := 0
		seen := func(s State) State { // the picture that follows
			count++
			snap := picture()
			snap.Agent.History = count // of all that it ever was it is none
			s = s.Show(snap)
			s.Now = now
			return s
		}
		s := seen(press(shown(picture(), Caps{Mono: true, ASCII: true}), "4"))
		var late Lookup // its answer has not come yet
		answers := func(s State) State {
			if late != nil {
				s, late = late(t.Context(), src)(s), nil
			}
			return settle(t, s, src)
		}
		s = answers(s)
		for step := range 150 {
			what := r.IntN(12)
			if what != 6 && what != 7 && !s.typing {
				s = press(s, "/")
			}
			switch what {
			case 0, 1:
				s = press(s, []string{"enter", "esc", "up", "down", "tab"}[r.IntN(5)])
			case 2, 3, 4:
				s = press(s, "backspace")
			case 5:
				s = s.Paste([]string{"state:error ", "repo:lab-7 ", "since:20h ", "until:3h ", "state:success,warning ", "bad", "action:push ", "état", "soso "}[r.IntN(9)])
			case 6:
				if s.typing {
					s = press(s, "enter")
				}
				for range r.IntN(5) {
					s = press(s, []string{"down", "pgdown", "end"}[r.IntN(3)])
					s = answers(s)
				}
			case 7:
				if r.IntN(3) > 0 {
					break
				}
				for range r.IntN(4) {
					now = now.Add(time.Duration(r.IntN(60)) * time.Second)
					end()
				}
				src.rows = src.rows[:len(src.rows)-min(r.IntN(4), len(src.rows))]
				s = seen(s)
			default:
				letters := "lab-1 state:er pul 401 BAD"
				s = press(s, string(letters[r.IntN(len(letters))]))
			}
			if s.screen != screenHistory {
				t.Fatalf("seed %d, step %d: it is on screen %d", seed, step, s.screen)
			}
			was := len(src.asked)
			if r.IntN(3) == 0 { // else more is typed before an answer
				s = answers(s)
			} else if next, look := s.fetch(); look != nil {
				s, late = next, look
			} else {
				s = next
			}
			if asked += len(src.asked) - was; r.IntN(4) > 0 {
				continue
			}
			for range 3 { // what has ended is looked for after a while, and what the cursor needs before
				s.Now = s.Now.Add(historyMinAge)
				s = answers(s)
			}
			now = s.Now
			afresh(t, fmt.Sprintf("seed %d, step %d", seed, step), s, src)
			steps++
		}
	}
	t.Logf("%d filters compared, %d lookups", steps, asked)
}

// afresh fails unless the rows are the first of what the history has for the filter,
// and all where it says so.
func afresh(t *testing.T, when string, s State, src *archive) {
	t.Helper()
	q, problem := historyQuery(s.filters[screenHistory], s.Now)
	q.Limit, q.Since, q.Until = 1<<30, s.history.query.Since, s.history.query.Until // as it was when it was asked
	page, _ := src.Past(t.Context(), q)
	want := cleanHistory(page).Rows
	if problem != "" {
		want = nil
	}
	have := s.history.rows
	if len(want) > len(have) && s.history.next != "" {
		if len(have) < min(historyPage/2, len(want)) && s.history.index() > len(s.history.items)-prefetchRows {
			t.Fatalf("%s: %d of %d rows, and no more are looked up", when, len(have), len(want))
		}
		want = want[:len(have)]
	}
	for i := range max(len(have), len(want)) {
		if i >= len(have) || i >= len(want) || have[i] != want[i] {
			t.Fatalf("%s: %q: row %d is wrong: %d rows for %d\n%s", when, s.filters[screenHistory], i, len(have), len(want), strings.Join(uidsOf(have, want), " "))
		}
	}
	if !slices.Equal(s.history.keys(), refolded(s.history).keys()) {
		t.Fatalf("%s: the lines are not of these rows", when)
	}
}

func refolded(p history) history { p.fold(); return p }

func uidsOf(lists ...[]snapshot.Past) (out []string) {
	for _, l := range lists {
		for _, r := range l[:min(len(l), 10)] {
			out = append(out, r.UID)
		}
		out = append(out, "|")
	}
	return out
}

// TestAnswersAreBounded: who types for hours has no more than so many rows kept.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	src := &archive{}
	for i := range maxHistoryRows {
		src.rows = append(src.rows, snapshot.Past{UID: fmt.Sprint("u", i), Name: fmt.Sprint("job-", i), Repository: "r", State: "success", Finished: noon.Add(-time.Duration(i) * time.Second)})
	}
	s := settle(t, press(shown(picture(), Caps{}), "4"), src)
	for range maxHistoryRows / historyPage {
		s = settle(t, press(s, "end"), src)
	}
	s = press(s, "/")
	asked := len(src.asked)
	for i := range 200 {
		s = settle(t, s.Paste(fmt.Sprint(i%10)), src)
		if i%3 > 0 {
			s = settle(t, press(s, "backspace"), src)
		}
		if len(s.history.earlier) > maxAnswers || s.history.trailRows() > maxAnswerRows {
			t.Fatalf("%d answers of %d rows are kept", len(s.history.earlier), s.history.trailRows())
		}
	}
	t.Logf("%d lookups", len(src.asked)-asked)
	if len(s.history.earlier) == 0 {
		t.Error("none is kept")
	}
}
