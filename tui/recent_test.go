package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// day is a day of a repository whose token has ended an hour ago.
func day() snapshot.Lately {
	d := snapshot.NewDay(noon)
	for i := range 24 * 6 {
		at := noon.Add(-time.Duration(i) * 10 * time.Minute)
		if i < 5 {
			d.Add(snapshot.Past{Started: at.Add(-time.Second), Finished: at}, 'e', 0, 0, 0)
			continue
		}
		d.Add(snapshot.Past{Started: at.Add(-time.Duration(i%7+1) * time.Second), Finished: at}, "sssw"[i%4], int64(i%3), int64(i/100), 0)
	}
	return snapshot.Lately{Rows: ill(5), Day: d.Done()}
}

func TestRepositoryTellsOfItsJobs(t *testing.T) {
	t.Parallel()
	src := &archive{rows: ill(5), lately: day()}
	first := press(shown(picture(), Caps{Mono: true, ASCII: true}), "3", "down", "enter")
	frame := func(s State) string { return Render(s, 100, 40, s.Caps) }
	if f := frame(first); !strings.Contains(f, "Looking") {
		t.Errorf("before the answer:\n%s", f)
	}
	s := settle(t, first, src)
	if len(src.watched) != 1 || src.watched[0] != "default/lab-east" {
		t.Fatalf("asked %q", src.watched)
	}
	for _, want := range []string{"the last 5 jobs, since 13:57:37Z; limpet repo test lab-east looks why", "101 ok   33 warnings   5 failed", "p50 4.0s", "p95 7.0s   max 7.0s", "objects", "Recent jobs"} {
		if !strings.Contains(frame(s), want) {
			t.Errorf("no word of %q in\n%s", want, frame(s))
		}
	}
	rows := s.repoJobs() // two of the picture, then those of before
	if len(rows) != 2+7 {
		t.Fatalf("%d jobs", len(rows))
	}
	t.Run("enter opens the one under the cursor, esc leads back to it", func(t *testing.T) {
		if at := press(s, "enter"); at.screen != screenDetail || at.detail != rows[0].UID || at.partial {
			t.Errorf("screen %d shows %q", at.screen, at.detail)
		}
		at := settle(t, press(s, "down", "down", "down", "enter"), src)
		if j, _ := at.job(); at.screen != screenDetail || j.UID != "ill-1" || len(j.Errors) != 1 {
			t.Errorf("screen %d shows %+v", at.screen, j)
		}
		if at = press(at, "esc"); at.screen != screenRepo || at.recent.cursor != "ill-1" {
			t.Errorf("esc: screen %d, cursor %q", at.screen, at.recent.cursor)
		}
		if end := press(s, "end", "down"); end.recent.cursor != rows[len(rows)-1].UID {
			t.Errorf("the end: %q", end.recent.cursor)
		}
	})
	t.Run("it is read again when jobs have ended, and after a minute", func(t *testing.T) {
		look := func(after time.Duration, ended int) bool {
			at := s
			snap := picture()
			snap.Agent.History += ended
			at = at.Show(snap)
			at.Now = at.Now.Add(after)
			_, look := at.fetch()
			return look != nil
		}
		for _, tt := range []struct {
			after time.Duration
			ended int
			want  bool
		}{{recentMinAge - 1, 1, false}, {recentMinAge, 1, true}, {recentMinAge, 0, false}, {recentMaxAge, 0, true}} {
			if got := look(tt.after, tt.ended); got != tt.want {
				t.Errorf("after %v and %d jobs: %t", tt.after, tt.ended, got)
			}
		}
		waiting, _ := press(s, "esc", "up", "enter").fetch()
		if _, again := waiting.fetch(); again != nil {
			t.Error("two ask at once")
		}
	})
	t.Run("a job that has just ended is listed once", func(t *testing.T) {
		snap := picture()
		snap.Jobs[6].UID = "ill-0"
		if n := len(s.Show(snap).repoJobs()); n != 2+6 {
			t.Errorf("%d jobs", n)
		}
	})
	t.Run("another repository does not show the jobs of this one", func(t *testing.T) {
		other := press(s, "esc", "down", "enter")
		if f := frame(other); len(other.repoJobs()) != 2 || strings.Contains(f, "failed") || strings.Contains(f, "the last 5") {
			t.Errorf("%d jobs:\n%s", len(other.repoJobs()), f)
		}
	})
	t.Run("a fault is said, one that was ended is asked again", func(t *testing.T) {
		at := settle(t, first, &archive{err: errors.New("the disk\x1b[2J is gone")})
		if f := frame(at); !strings.Contains(f, "cannot be read: the disk[2J is gone") {
			t.Errorf("the screen:\n%s", f)
		}
		at, look := first.fetch()
		at = look(t.Context(), &archive{err: fmt.Errorf("ask: %w", context.Canceled)})(at)
		if at = settle(t, at, src); !at.recent.known {
			t.Error("it is not asked again")
		}
	})
}

func TestHeights(t *testing.T) {
	t.Parallel()
	p := newPainter(0, 0, Caps{ASCII: true})
	if got := p.heights([]int64{0, 1, 4, 7, 8, 1 << 60}, 1); got != " ....@" {
		t.Errorf("%q", got)
	}
	if got := p.heights([]int64{0, 1, 4, 7, 8}, 2); got != "  ::++@@@@" {
		t.Errorf("%q", got)
	}
	if got := p.heights(make([]int64, 3), 1); got != "   " {
		t.Errorf("%q", got)
	}
}

// TestRecentJobsNeedNoHeads: where there is room for little, it is for the rows, and in
// a row for which job it is.
func TestRecentJobsNeedNoHeads(t *testing.T) {
	t.Parallel()
	s := settle(t, press(shown(picture(), Caps{Mono: true, ASCII: true}), "3", "down", "enter", "down"), &archive{rows: ill(5), lately: day()})
	for h := minHeight; h <= 44; h++ {
		for _, w := range []int{40, 41, 50, 59, 60, 80, 100, 119, 120, 140} {
			frame := Render(s, w, h, s.Caps)
			_, jobs, found := strings.Cut(frame, "Recent jobs")
			_, row, _ := strings.Cut(jobs, "|> . ")
			row, _, _ = strings.Cut(row, "\n")
			if found && !strings.Contains(row, s.repoJobs()[indexOf(s.recent.cursor, keysOf(s.repoJobs(), jobKey))].Name) {
				t.Errorf("%dx%d: no row of the cursor in\n%s", w, h, frame)
			} else if !found && h >= 13 {
				t.Errorf("%dx%d: no jobs in\n%s", w, h, frame)
			}
		}
	}
}

// TestCursorOfTheJobsFollowsAnAnswer: the row that was under the cursor stays under it,
// and when it is gone, the one in its place.
func TestCursorOfTheJobsFollowsAnAnswer(t *testing.T) {
	t.Parallel()
	src := &archive{rows: ill(5), lately: day()}
	s := settle(t, press(shown(picture(), Caps{}), "3", "down", "enter"), src)
	s = press(s, "down", "down", "down", "down") // on the third of those of before
	if s.recent.cursor != "ill-2" {
		t.Fatalf("the cursor is on %q", s.recent.cursor)
	}
	again := func(drop int) State {
		at := s
		at.Now = at.Now.Add(recentMaxAge)
		rows := ill(5)
		src.lately.Rows = append(rows[:drop:drop], rows[drop+1:]...)
		return settle(t, at, src)
	}
	if at := again(0); at.recent.cursor != "ill-2" {
		t.Errorf("another one is gone: the cursor is on %q", at.recent.cursor)
	}
	if at := again(2); at.recent.cursor != "ill-3" {
		t.Errorf("its own is gone: the cursor is on %q", at.recent.cursor)
	}
}
