package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// TestCrowdedLines: where the words of a line do not fit, the shorter form of them
// comes before nothing.
func TestCrowdedLines(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	line := func(s State, y int) string { return strings.Split(Render(s, 80, 24, caps), "\n")[y] }

	snap := picture()
	snap.API.Insecure = true
	snap.Agent.Version, snap.Agent.Host = "7ff207c", "vm"
	s := shown(snap, caps)
	s.Source = "attached to daemon 26810"
	if head := line(s, 0); !strings.Contains(head, "  daemon 26810") || strings.Contains(head, "attached") {
		t.Errorf("whose picture it is: %q", head)
	}
	snap.API.Insecure = false
	s = shown(snap, caps)
	s.Source = "attached to daemon 26810"
	if head := line(s, 0); !strings.Contains(head, "attached to daemon 26810") {
		t.Errorf("whose picture it is, with room: %q", head)
	}

	snap = picture()
	snap.Counts, snap.Jobs = snapshot.Counts{}, nil
	for i := range 1000 {
		snap.Sources = append(snap.Sources, snapshot.Source{UID: fmt.Sprint("s", i), Namespace: "default", Name: fmt.Sprintf("src-%04d", i), State: "ready"})
	}
	for _, press1 := range []string{"1", "6"} {
		if tabs := line(press(shown(snap, caps), press1), 1); !strings.Contains(tabs, "6 Sources 1,000") || !strings.Contains(tabs, "4 History") || len(strings.TrimRight(tabs, " ")) > 80 {
			t.Errorf("tabs after %s: %q", press1, tabs)
		}
	}
}

// TestConditionsThatAreMetGiveWay: a box that has room for nothing but "more lines"
// is left to the jobs; what is not met is said all the same.
func TestConditionsThatAreMetGiveWay(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	snap := picture()
	for i := range snap.Repos {
		for j := range 10 {
			snap.Repos[i].Conditions = append(snap.Repos[i].Conditions, snapshot.Condition{Type: fmt.Sprint("NamespaceQuota", j), Status: "True", Reason: "QuotaUnlimited"})
		}
	}
	frame := Render(press(shown(snap, caps), "3", "enter"), 80, 24, caps)
	if strings.Contains(frame, "Conditions") {
		t.Errorf("a box of no use:\n%s", frame)
	}
	for i := range snap.Repos {
		snap.Repos[i].Conditions[1] = snapshot.Condition{Type: "SyncStatus", Status: "False", Reason: "SyncFailed", Message: strings.Repeat("why ", 40)}
	}
	if frame = Render(press(shown(snap, caps), "3", "enter"), 80, 24, caps); !strings.Contains(frame, "SyncFailed: why") {
		t.Errorf("what is not met is not said:\n%s", frame)
	}
}

// TestNothingYet: a list with nothing in it says what is missing, and no key that
// there is nothing for.
func TestNothingYet(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	snap := picture()
	snap.Jobs, snap.Repos, snap.Counts = nil, nil, snapshot.Counts{}
	for key, want := range map[string]string{
		"2": "No jobs. A job is about a repository, and there is none yet.",
		"4": "No job has ended here yet. A job is about a repository, and there is none yet.",
	} {
		frame := Render(settle(t, press(shown(snap, caps), key), &archive{}), 120, 30, caps)
		if !strings.Contains(frame, want) || strings.Contains(frame, "p on a repository") {
			t.Errorf("want %q:\n%s", want, frame)
		}
	}
	if frame := Render(press(shown(snap, caps), "3"), 80, 24, caps); strings.Contains(frame, "0 in order") {
		t.Errorf("none of no repositories is in order:\n%s", frame)
	}
}

// TestNoJobsOffline: while the API is away nobody knows when the next pull is.
func TestNoJobsOffline(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	snap := picture()
	snap.Jobs = nil
	snap.Repos[0].Next = noon.Add(time.Minute)
	if frame := Render(press(shown(snap, caps), "2"), 120, 30, caps); !strings.Contains(frame, " Next pull in ") {
		t.Fatalf("online:\n%s", frame)
	}
	snap.API.Up = false
	if frame := Render(press(shown(snap, caps), "2"), 120, 30, caps); strings.Contains(frame, " Next pull in ") || !strings.Contains(frame, "No jobs.") {
		t.Errorf("offline:\n%s", frame)
	}
}

// TestNoJobsFailing: what fails is looked at again, and what is suspended waits; of neither
// a pull is promised.
func TestNoJobsFailing(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	snap := picture()
	snap.Jobs = nil
	for i := range snap.Repos {
		r := &snap.Repos[i]
		r.Enabled, r.Healthy, r.Checked, r.Suspended, r.Next = true, false, noon, false, noon.Add(time.Duration(i+1)*time.Minute)
	}
	says := func(want string) {
		t.Helper()
		if frame := Render(press(shown(snap, caps), "2"), 140, 30, caps); !strings.Contains(frame, want) {
			t.Errorf("no word of %q in\n%s", want, frame)
		}
	}
	says("None is pulled while it fails; the next look is in 1m: " + snap.Repos[0].Name)
	snap.Repos[2].Healthy = true
	says("Next pull in 3m: " + snap.Repos[2].Name)
	snap.Repos[3].Healthy, snap.Repos[2].Suspended = true, true
	says("Next pull in 4m: " + snap.Repos[3].Name)
}
