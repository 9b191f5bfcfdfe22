package screen

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 11, 20, 14, 2, 37, 0, time.UTC)

// check fails unless the frame is valid; see violation.
func check(t *testing.T, frame string, w, h int, caps widget.Caps) {
	t.Helper()
	if caps.ASCII && caps.Mono && strings.ContainsRune(frame, 0x1b) {
		t.Fatalf("escape sequence in a frame without colours and glyphs:\n%q", frame)
	}
	lines := strings.Split(strip(frame), "\n")
	if len(lines) != h {
		t.Fatalf("%d lines, want %d", len(lines), h)
	}
	for i, l := range lines {
		if got := displaywidth.String(l); got != w {
			t.Fatalf("line %d is %d cells wide, want %d: %q", i, got, w, l)
		}
		if caps.ASCII && !hostileRow(l) {
			for _, r := range l {
				if r >= 0x80 {
					t.Fatalf("line %d has %q in ASCII mode", i, r)
				}
			}
		}
	}
}

// hostileRow reports whether a row shows foreign text beyond ASCII, which is kept.
func hostileRow(l string) bool { return strings.ContainsAny(l, "👩👧漢字é🙂אب") }

// link is a begin or an end of a web address (OSC 8).
var link = regexp.MustCompile("\x1b]8;;[!-~]*\x07")

// strip removes SGR sequences and links from a frame.
func strip(frame string) string {
	frame = link.ReplaceAllString(frame, "")
	var b strings.Builder
	for i := 0; i < len(frame); i++ {
		if frame[i] == 0x1b {
			for i < len(frame) && frame[i] != 'm' {
				i++
			}
			continue
		}
		b.WriteByte(frame[i])
	}
	return b.String()
}

func TestGoldenScreens(t *testing.T) {
	t.Parallel()
	plain := widget.Caps{Mono: true}
	offline := testSnapshot()
	offline.API.Up, offline.API.Error, offline.API.Since = false, "dial tcp 10.0.3.7:443: i/o timeout", noon.Add(-372*time.Second)
	offline.API.Next, offline.API.Tries = noon.Add(11*time.Second), 7
	before := testSnapshot()
	before.API.Up, before.API.Synced, before.API.Error, before.API.Since = false, false, "connection refused", noon.Add(-5*time.Second)
	before.AsOf = noon.Add(-50 * time.Hour)
	lives := jobPhases()
	unsent := lives
	unsent.API = offline.API
	crowd := testSnapshot()
	for i := range 990 {
		crowd.Jobs = append(crowd.Jobs[:6:6], append(
			[]snapshot.Job{{UID: fmt.Sprint("u", i), Namespace: "default", Name: fmt.Sprintf("bulk-%03d", 990-i), Repository: "lab-east",
				Action: "pull", Detail: "incr", State: "pending", Priority: fmt.Sprint(i % 10), Created: noon.Add(-20 * time.Second),
				Attempt: 1, MaxAttempt: 3}}, crowd.Jobs[6:]...)...)
	}
	crowded := shown(crowd, plain)
	crowded.Snap.Counts.Pending += 1999
	paused := testSnapshot()
	paused.Agent.Controllers = snapshot.Controllers{Mode: "on", State: snapshot.ControllersStandby, Holder: "lab-b_X"}
	east := &paused.Repos[1]
	east.Suspended, east.Next, east.Webhook, east.TokenEnds = true, noon.Add(23*time.Hour), nil, noon.Add(-time.Hour)
	east.Deleting, east.DeleteError = noon.Add(-time.Minute), "a job is running"
	empty := &snapshot.Snapshot{At: noon, Agent: testSnapshot().Agent, API: testSnapshot().API}
	fresh := &snapshot.Snapshot{At: noon, Agent: testSnapshot().Agent, API: snapshot.API{Server: "embedded", Embedded: true, Up: true,
		Synced: true}}
	alone := shown(fresh, plain)
	alone.Source = Standalone
	left := testSnapshot()
	left.AsOf = noon.Add(-50 * time.Minute)
	disk := shown(left, plain)
	disk.Source = FromDisk
	asking := alone
	asking.SetUp = true
	working := shown(testSnapshot(), plain)
	working.Source = Standalone
	sick := failingSnapshot()
	large := testSnapshot()
	large.Repos[0].Resources = 12_401
	forbidden := testSnapshot()
	forbidden.Jobs, forbidden.Repos, forbidden.Events, forbidden.API.Synced = nil, nil, nil, false
	forbidden.Problem = `list repositories: 403 Forbidden: repositories.provisioning.grafana.app is forbidden: User "edge-07" cannot list resource "repositories" (the token has no permission for this; it needs get, list and watch of repositories and jobs)`
	idle := testSnapshot()
	idle.Jobs, idle.Events = nil, nil
	idle.Repos[3].SyncState = "success"
	chronicle := &archive{rows: failedRows(34), care: testDiagnostics(), comparison: changed(), lately: failedRows(5),
		findings: testFindings(), manifest: eastYAML}
	narrow := shown(testSnapshot(), plain)
	narrow.W, narrow.H = 40, 10
	differs := func(keys ...string) State {
		s := shown(testSnapshot(), plain)
		for _, k := range append([]string{"enter", "d"}, keys...) {
			s = settle(t, press(s, k), chronicle)
		}
		return s
	}
	tests := []struct {
		name string
		s    State
		w, h int
	}{
		{"agent-80x24", settle(t, press(shown(testSnapshot(), plain), "5"), chronicle), 80, 24},
		{"agent-end-80x24", press(settle(t, press(shown(testSnapshot(), plain), "5"), chronicle), "end"), 80, 24},
		{"agent-140x40", settle(t, press(shown(testSnapshot(), plain), "5"), chronicle), 140, 40},
		{"history-80x24", settle(t, press(shown(testSnapshot(), plain), "4"), chronicle), 80, 24},
		{"history-140x40", press(settle(t, press(shown(testSnapshot(), plain), "4"), chronicle), "down", "down", "down", "+"), 140, 40},
		{"history-filter-80x24", settle(t, press(shown(testSnapshot(), plain), "4", "/", "s", "t", "a", "t", "e", ":", "e", "r", "o",
			"r"), chronicle), 80, 24},
		{"history-40x10", settle(t, press(shown(testSnapshot(), plain), "4"), chronicle), 40, 10},
		{"test-80x24", settle(t, press(shown(testSnapshot(), plain), "3", "down", "t"), chronicle), 80, 24},
		{"test-40x10", settle(t, press(shown(testSnapshot(), plain), "3", "down", "t"), chronicle), 40, 10},
		{"test-140x40", settle(t, press(shown(testSnapshot(), plain), "3", "down", "t"), chronicle), 140, 40},
		{"yaml-80x24", settle(t, press(shown(testSnapshot(), plain), "3", "down", "y"), chronicle), 80, 24},
		{"overview-80x24", shown(testSnapshot(), plain), 80, 24},
		{"overview-140x40", shown(testSnapshot(), plain), 140, 40},
		{"overview-ascii-80x24", shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), 80, 24},
		{"overview-colour-80x24", shown(testSnapshot(), widget.Caps{}), 80, 24},
		{"detail-80x24", press(shown(testSnapshot(), plain), "enter"), 80, 24},
		{"detail-140x40", press(shown(testSnapshot(), plain), "enter"), 140, 40},
		{"changes-80x24", differs(), 80, 24},
		{"changes-40x10", differs(), 40, 10},
		{"diff-80x24", differs("down", "enter"), 80, 24},
		{"diff-wrap-80x24", differs("down", "enter", "w", "n"), 80, 24},
		{"diff-140x40", differs("down", "enter"), 140, 40},
		{"detail-errors-80x24", press(shown(longTexts(), plain), "enter", "tab", "tab", "down", "down"), 80, 24},
		{"detail-zoom-80x24", press(shown(longTexts(), plain), "enter", "z", "w", "pgup"), 80, 24},
		{"detail-summary-80x24", press(shown(testSnapshot(), plain), "enter", "tab", "z"), 80, 24},
		{"detail-find-140x40", press(shown(longTexts(), plain), "enter", "/", "m", "a", "d", "e", "enter"), 140, 40},
		{"lives-80x24", shown(&lives, plain), 80, 24},
		{"lives-140x40", shown(&lives, plain), 140, 40},
		{"lives-detail-80x24", press(shown(&lives, plain), "enter"), 80, 24},
		{"rests-80x24", press(shown(&lives, plain), "down"), 80, 24},
		{"rests-140x40", press(shown(&lives, plain), "down"), 140, 40},
		{"rests-detail-80x24", press(shown(&lives, plain), "down", "enter"), 80, 24},
		{"retry-80x24", press(shown(&lives, plain), "end", "r"), 80, 24},
		{"crowd-80x24", press(crowded, "2", "end", "up"), 80, 24},
		{"crowd-detail-80x24", press(crowded, "2", "end", "up", "enter"), 80, 24},
		{"crowd-filter-80x24", press(crowded, "2", "/", "b", "u", "l", "k", "-", "0", "0", "enter"), 80, 24},
		{"unsent-80x24", shown(&unsent, plain), 80, 24},
		{"offline-80x24", shown(offline, plain), 80, 24},
		{"offline-140x40", shown(offline, plain), 140, 40},
		{"gone-80x24", shown(testSnapshot(), plain).Lose("ask the daemon: connection refused"), 80, 24},
		{"disk-80x24", disk, 80, 24},
		{"gone-140x40", shown(testSnapshot(), plain).Lose("ask the daemon: connection refused"), 140, 40},
		{"disk-140x40", disk, 140, 40},
		{"full-140x40", press(shown(testSnapshot(), plain), "P"), 140, 40},
		{"repo-side-140x40", press(shown(testSnapshot(), plain), "tab", "down"), 140, 40},
		{"overview-100x30", shown(testSnapshot(), plain), 100, 30},
		{"jobs-80x24", press(shown(testSnapshot(), plain), "2"), 80, 24},
		{"jobs-140x40", press(shown(testSnapshot(), plain), "2"), 140, 40},
		{"repos-140x40", press(shown(testSnapshot(), plain), "3", "down"), 140, 40},
		{"sure-140x40", press(shown(testSnapshot(), plain), "x"), 140, 40},
		{"changes-140x40", differs(), 140, 40},
		{"empty-140x40", shown(empty, plain), 140, 40},
		{"before-80x24", shown(before, plain), 80, 24},
		{"empty-80x24", shown(empty, plain), 80, 24},
		{"idle-80x24", shown(idle, plain), 80, 24},
		{"forbidden-80x24", shown(forbidden, plain), 80, 24},
		{"overview-79x24", shown(testSnapshot(), plain), 79, 24},
		{"welcome-80x24", alone, 80, 24},
		{"welcome-setup-80x24", asking, 80, 24},
		{"welcome-attached-80x24", shown(fresh, plain), 80, 24},
		{"welcome-140x40", alone, 140, 40},
		{"welcome-60x20", alone, 60, 20},
		{"welcome-40x10", alone, 40, 10},
		{"overview-60x20", shown(testSnapshot(), plain), 60, 20},
		{"help-80x24", press(shown(testSnapshot(), plain), "?"), 80, 24},
		{"help-140x40", press(shown(testSnapshot(), plain), "?", "down"), 140, 40},
		{"help-40x10", press(shown(testSnapshot(), plain), "?"), 40, 10},
		{"help-search-80x24", press(shown(offline, plain), "?", "p", "u", "l", "l"), 80, 24},
		{"full-80x24", press(shown(testSnapshot(), plain), "P"), 80, 24},
		{"full-40x10", press(shown(testSnapshot(), plain), "P"), 40, 10},
		{"full-large-80x24", press(shown(large, plain), "3", "P", "t", "e", "a", "m"), 80, 24},
		{"sure-80x24", press(shown(testSnapshot(), plain), "x"), 80, 24},
		{"palette-80x24", press(shown(testSnapshot(), plain), ":", "p", "u", "l", "l", " ", "t", "e", "a"), 80, 24},
		{"palette-140x40", press(shown(testSnapshot(), plain), ":"), 140, 40},
		{"palette-40x10", press(shown(testSnapshot(), plain), ":", "g", "o", "down"), 40, 10},
		{"palette-ascii-60x20", press(shown(offline, widget.Caps{Mono: true, ASCII: true}), ":", "p", "u", "l", "l"), 60, 20},
		{"sort-80x24", press(shown(testSnapshot(), plain), "tab", "o", "down", "enter", "o"), 80, 24},
		{"sort-40x10", press(shown(testSnapshot(), plain), "o"), 40, 10},
		{"marks-80x24", press(shown(testSnapshot(), plain), "2", "space", "down", "space", "P"), 80, 24},
		{"wide-zoom-80x24", press(shown(testSnapshot(), plain), "w", "z"), 80, 24},
		{"field-80x24", press(shown(testSnapshot(), plain), "2", "/", "s", "t", "tab", "e", "r", "r", "o", "r", "enter"), 80, 24},
		{"mean-80x24", press(shown(testSnapshot(), plain), "/", "s", "t", "a", "t", "e", ":", "e", "r", "o", "r", "enter"), 80, 24},
		{"errors-80x24", press(shown(sick, plain), "e", "down"), 80, 24},
		{"errors-140x40", press(shown(sick, plain), "e"), 140, 40},
		{"errors-40x10", press(shown(sick, plain), "e", "down"), 40, 10},
		{"errors-unread-80x24", shown(sick, plain), 80, 24},
		{"quit-80x24", press(working, "q"), 80, 24},
		{"repos-80x24", press(shown(testSnapshot(), plain), "3", "down"), 80, 24},
		{"repo-80x24", settle(t, press(shown(testSnapshot(), plain), "3", "down", "enter"), chronicle), 80, 24},
		{"repo-140x40", settle(t, press(shown(testSnapshot(), plain), "3", "down", "enter"), chronicle), 140, 40},
		{"repo-end-40x10", press(settle(t, press(narrow, "3", "down", "enter"), chronicle), "pgdown", "down"), 40, 10},
		{"repo-40x10", settle(t, press(shown(testSnapshot(), plain), "3", "down", "enter"), chronicle), 40, 10},
		{"repo-suspend-80x24", press(shown(testSnapshot(), plain), "3", "down", "s"), 80, 24},
		{"repo-suspended-80x24", press(shown(paused, plain), "3", "down", "enter"), 80, 24},
		{"filter-80x24", press(shown(testSnapshot(), plain), "/", "e", "a", "s", "t"), 80, 24},
		{"floor-40x10", shown(testSnapshot(), plain), 40, 10},
		{"tiny-39x9", shown(testSnapshot(), plain), 39, 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := render(tt.s, tt.w, tt.h, tt.s.Caps)
			check(t, got, tt.w, tt.h, tt.s.Caps)
			golden(t, tt.name, got)
		})
	}
}

// golden compares a frame with the golden file of that name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("..", "..", "testdata", "golden", "screen-"+name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got+"\n" != string(want) {
		t.Errorf("%s has changed; look at it and run with -update\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

func TestInvariants(t *testing.T) {
	t.Parallel()
	hostile := testSnapshot()
	evil := "\x1b]0;pwn\x07\x1b[31mred\r\n\u202eedoc 漢字漢字 é🙂👩‍👩‍👧 אב\u200b\xff" + strings.Repeat("漢", 90)
	for i := range hostile.Jobs {
		hostile.Jobs[i].Name, hostile.Jobs[i].Repository, hostile.Jobs[i].Message = evil, evil, evil
		hostile.Jobs[i].WaitReason = evil
		hostile.Jobs[i].Log = []snapshot.Event{{At: noon, Level: "error", Text: evil}}
		hostile.Jobs[i].URLs = []snapshot.Link{{Name: evil, URL: evil}}
		hostile.Jobs[i].Errors, hostile.Jobs[i].Summary = []string{evil}, []snapshot.Summary{{Kind: evil, Create: 1 << 60}}
		hostile.Jobs[i].State = []string{"working", "odd" + evil, ""}[i%3]
	}
	for i := range hostile.Repos {
		hostile.Repos[i].Connection, hostile.Repos[i].DeleteError, hostile.Repos[i].Deleting = evil, evil, noon
		hostile.Repos[i].Webhook, hostile.Repos[i].Conditions = &snapshot.Webhook{ID: evil},
			[]snapshot.Condition{{Type: evil, Status: evil, Reason: evil, Message: evil}}
		hostile.Repos[i].Name, hostile.Repos[i].URL, hostile.Repos[i].LastRef, hostile.Repos[i].Runs = evil, evil, evil, evil
	}
	hostile.Agent.Host, hostile.Problem = evil, evil
	hostile.Events = []snapshot.Event{{At: noon, Level: "error", Job: evil, Text: evil},
		{At: noon, Level: "error", Repo: evil, Text: strings.Repeat(evil, 4)}}
	many := testSnapshot()
	for i := range 10_000 {
		many.Jobs = append(many.Jobs, snapshot.Job{UID: fmt.Sprint("u", i), Name: fmt.Sprint("job-", i), State: "pending", Created: noon})
	}
	down := testSnapshot()
	down.API.Up = false
	gone := shown(testSnapshot(), widget.Caps{})
	gone.Gone = "ask the daemon: connection refused"
	odd := &archive{}
	for i := range 20 {
		odd.rows = append(odd.rows, snapshot.HistoryRow{UID: fmt.Sprint(i), Name: evil, Repository: evil, Action: evil,
			State: []string{"error", evil}[i/10], Message: evil, Agent: evil, RefTo: evil})
	}
	odd.care = snapshot.DiagnosticsReport{At: noon, Store: snapshot.Store{Info: state.Info{Path: evil}}, Watches: []snapshot.Watch{{Kind: evil, Error: evil}},
		Tokens: []snapshot.Tokens{{Provider: evil, TokenCounts: auth.TokenCounts{Failed: 1 << 60}}}}
	odd.lately = odd.rows
	odd.comparison = snapshot.Comparison{All: math.MaxInt, Files: []snapshot.FileChange{{Type: evil, Path: evil, From: evil},
		{Type: "added", Path: "b"}}, Text: &snapshot.TextChange{Form: evil, Added: 1 << 60, More: 1 << 60,
		Lines: []snapshot.TextLine{{Op: evil, Text: evil}, {Op: "@", Text: evil}, {Op: "+", Text: evil}}}}
	states := map[string]State{
		"live": shown(testSnapshot(), widget.Caps{}), "hostile": shown(hostile, widget.Caps{}),
		"empty": NewState("standalone", widget.Caps{}, noon),
		"many":  press(shown(many, widget.Caps{}), "end"),
		"fresh": shown(&snapshot.Snapshot{At: noon, Agent: hostile.Agent, API: snapshot.API{Embedded: true, Up: true, Synced: true}},
			widget.Caps{}), "down": shown(down, widget.Caps{}), "gone": gone,
	}
	screens := map[string][]string{"overview": nil, "jobs": {"2"}, "repos": {"3"}, "detail": {"enter"}, "repo": {"3", "enter"},
		"history": {"4"}, "record": {"4", "enter"}, "changes": {"enter", "d"}, "summary": {"enter", "tab", "end", "u"},
		"errors zoomed": {"enter", "shift+tab", "z", "end"}, "log": {"enter", "z", "w", "f", "pgup", "/", "r", "e"},
		"diff": {"enter", "d", "enter"}, "wrapped": {"enter", "d", "enter", "w", "n", "N", "/", "d"}, "its changes": {"4", "enter", "d"},
		"agent": {"5"}, "agent end": {"5", "end"}, "suspend": {"3", "s"}, "help": {"?"}, "sure": {"P"}, "filter": {"/", "z", "z"}}
	maps.Copy(screens, boxes)
	sizes := [][2]int{{1, 1}, {39, 24}, {40, 10}, {60, 20}, {60, 16}, {80, 24}, {81, 25}, {120, 30}, {140, 40}, {200, 60}}
	for name, s := range states {
		for screen, keys := range screens {
			at := s
			for _, key := range keys {
				at = settle(t, press(at, key), odd)
			}
			for _, size := range sizes {
				for _, caps := range []widget.Caps{{}, {Mono: true}, {ASCII: true}, {Mono: true, ASCII: true}, {Theme: 1}, {Theme: 2}} {
					s := at
					s.Caps = caps
					frame := render(s, size[0], size[1], caps)
					check(t, frame, size[0], size[1], caps)
					if strings.Contains(frame, "pwn\x07") || strings.Contains(frame, "\u202e") {
						t.Fatalf("%s/%s: foreign control characters on the screen", name, screen)
					}
				}
			}
		}
	}
}

func BenchmarkRender10kJobs(b *testing.B) {
	many := testSnapshot()
	for i := range 10_000 {
		many.Jobs = append(many.Jobs, snapshot.Job{UID: fmt.Sprint("u", i), Name: fmt.Sprint("job-", i), State: "pending", Created: noon})
	}
	s := shown(many, widget.Caps{})
	for b.Loop() {
		render(s, 140, 40, s.Caps)
	}
}

// TestHeaderCutsNothing: a part of the header is shown in full or not at all.
func TestHeaderCutsNothing(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true})
	for w := MinWidth; w <= 120; w++ {
		head, _, _ := strings.Cut(render(s, w, 24, s.Caps), "\n")
		for _, word := range strings.Fields(head) {
			if !strings.Contains(" limpet 1.0.0 edge-07 * API ok 38ms attached to daemon 4121 14:02:37Z ", " "+word+" ") {
				t.Fatalf("width %d: %q in %q", w, word, head)
			}
		}
		if !strings.Contains(head, "API ok") || w >= 80 && !strings.Contains(head, "4121  14:02:37Z") {
			t.Errorf("width %d: %q", w, head)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		w    int
		want []string
	}{
		{"", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"abcdefghij k", 4, []string{"abcd", "efgh", "ij k"}},
		{"漢字漢字 x", 4, []string{"漢字", "漢字", "x"}},
	} {
		if got := widget.Wrap(tt.text, tt.w); strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("%q at %d: %q, want %q", tt.text, tt.w, got, tt.want)
		}
	}
}

// selected returns the selected job, and whether it still exists.
func selected(s State) (snapshot.Job, bool) {
	if len(s.selected) == 0 || s.selected[0].job == nil {
		return snapshot.Job{}, false
	}
	return *s.selected[0].job, !s.selected[0].gone
}
