package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// testFindings returns the findings of a test of lab-east.
func testFindings() []snapshot.Finding {
	return []snapshot.Finding{
		{Name: "rules", Result: "ok"},
		{Name: "credentials", Result: "ok", Detail: "secure.token, of the Secret lab-east"},
		{Name: "remote", Result: "failed", Detail: "secure.token: the host does not take it; renew the token in the settings of " +
			"the repository (401 Unauthorized from git.lab:443)"},
		{Name: "mirror https://mirror.lab/obs/east.git", Result: "warning", Detail: "it has 77be210, and 5d41aa9 is wanted"},
		{Name: "branch", Result: "skipped"},
	}
}

// eastYAML is the object of lab-east.
const eastYAML = `apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata:
  name: lab-east
  namespace: default
spec:
  git:
    branch: main
    url: https://git.lab/obs/east.git
  sync:
    enabled: true
    intervalSeconds: 60
`

func TestTestOfARepository(t *testing.T) {
	t.Parallel()
	src := &archive{rows: failedRows(5), lately: failedRows(5), findings: testFindings()}
	east := snapshot.Subject{Kind: snapshot.SubjectRepository, Namespace: "default", Name: "lab-east", UID: "r2"}
	at := press(shown(testSnapshot(), widget.Caps{Mono: true}), "3", "down", "t")
	if f := render(at, 80, 24, at.Caps); !strings.Contains(f, "Test lab-east") || !strings.Contains(f, "Looking, from the host of the agent") {
		t.Errorf("before the answer:\n%s", f)
	}
	asked, look := at.Fetch()
	if _, twice := asked.Fetch(); twice != nil {
		t.Error("it is asked twice")
	}
	take := look(t.Context(), src)
	if len(src.tried) != 1 || src.tried[0] != east {
		t.Fatalf("asked for %+v", src.tried)
	}
	s := take(asked)
	frame := strip(render(s, 80, 24, s.Caps))
	for _, want := range []string{"✓ ok rules", "✗ failed remote: secure.token", "401 Unauthorized from git.lab:443)",
		"! warning mirror https", "· skipped branch", "limpet repo test lab-east"} {
		if !strings.Contains(frame, want) {
			t.Errorf("no word of %q in\n%s", want, frame)
		}
	}
	if _, out := s.Key("y", "y"); out.Copy != "limpet repo test lab-east" {
		t.Errorf("y copies %q", out.Copy)
	}
	if closed := press(s, "esc"); closed.overlay != nil || closed.screen != screenRepos {
		t.Error("esc does not close it")
	}
	// A result that arrives after the box was closed, or for another one, is dropped.
	if late := take(press(asked, "esc")); late.overlay != nil {
		t.Errorf("a late answer opens %T", late.overlay)
	}
	other, _ := press(press(asked, "esc"), "up", "t").Fetch()
	late := take(other)
	if _, known, _ := late.popupText.of(late.overlay.(popup).popupKey); known {
		t.Error("an answer to another question is taken")
	}
	// From the row of a job the test is of its repository.
	if q := press(shown(testSnapshot(), widget.Caps{}), "2", "t").overlay.(popup); q.of.Kind != snapshot.SubjectRepository ||
		q.of.Name != "team-dash" {
		t.Errorf("on a job: %+v", q.of)
	}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"fault":        {errors.New("repositories \"lab-east\" not found"), "Not available: repositories \"lab-east\" not found"},
		"hostile":      {errors.New("a\x1b[2Jb"), "Not available: a[2Jb"},
		"takes longer": {context.DeadlineExceeded, "no answer within 10s; limpet repo test lab-east waits"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if errors.Is(tt.err, context.DeadlineExceeded) {
			cancel() // the lookup has timed out
		}
		s := look(ctx, &archive{err: tt.err})(asked)
		cancel()
		if f := strip(render(s, 120, 30, s.Caps)); !strings.Contains(f, tt.want) {
			t.Errorf("%s: no word of %q in\n%s", name, tt.want, f)
		}
	}
}

func TestYAMLOfARow(t *testing.T) {
	t.Parallel()
	now := shown(testSnapshot(), widget.Caps{Mono: true})
	src := &archive{rows: failedRows(5), lately: failedRows(5), manifest: eastYAML}
	sources := press(shown(sourcesSnapshot(), widget.Caps{Mono: true}), "6")
	for name, tt := range map[string]struct {
		s    State
		want snapshot.Subject
		line string
	}{
		"repository": {press(now, "3", "down"), snapshot.Subject{Kind: "repository", Namespace: "default", Name: "lab-east", UID: "r2"},
			"limpet get repository lab-east -o yaml"},
		"its detail": {press(now, "3", "down", "enter"), snapshot.Subject{Kind: "repository", Namespace: "default", Name: "lab-east",
			UID: "r2"}, "limpet get repository lab-east -o yaml"},
		"job": {press(now, "2"), snapshot.Subject{Kind: "job", Namespace: "default", Name: "team-dash-sync", UID: "5c1e9c54"},
			"limpet get job team-dash-sync -o yaml"},
		"just done": {press(now, "2", "end"), snapshot.Subject{Kind: "job", Namespace: "default", Name: "lab-east-sync", UID: "y7c1"},
			"limpet history show y7c1 -o yaml"},
		"record": {settle(t, press(now, "4"), src), snapshot.Subject{Kind: "job", Namespace: "default", Name: "lab-east-sync-0",
			UID: "ill-0"}, "limpet history show ill-0 -o yaml"},
		"source": {sources, snapshot.Subject{Kind: "gitrepository", Namespace: sources.sources.rows[0].Namespace,
			Name: sources.sources.rows[0].Name, UID: sources.sources.rows[0].UID},
			"limpet get gitrepository " + sources.sources.rows[0].Name + " -o yaml"},
	} {
		src.tried = nil
		s := settle(t, press(tt.s, "y"), src)
		if len(src.tried) != 1 || src.tried[0] != tt.want {
			t.Errorf("%s: asked for %+v, want %+v", name, src.tried, tt.want)
		}
		if f := strip(render(s, 80, 24, s.Caps)); !strings.Contains(f, "    url: https://git.lab/obs/east.git") {
			t.Errorf("%s: no YAML in\n%s", name, f)
		}
		after, out := s.Key("y", "y")
		if out.Copy != eastYAML || !strings.Contains(after.toast, "12 lines of YAML copied; "+tt.line+" prints it") {
			t.Errorf("%s: y copies %q and says %q", name, out.Copy, after.toast)
		}
		for h := MinHeight; h <= 40; h++ { // also when the box is as high as the screen
			if f := strip(render(after, 100, h, after.Caps)); !strings.Contains(f, "12 lines of YAML copied") {
				t.Errorf("%s: a screen of %d lines does not say what was done:\n%s", name, h, f)
				break
			}
		}
		if _, out := s.Key("Y", "Y"); out.Copy != tt.line {
			t.Errorf("%s: Y copies %q, want %q", name, out.Copy, tt.line)
		}
	}
	t.Run("more than the screen holds is scrolled, and more than a terminal takes cut", func(t *testing.T) {
		var lines []string
		for i := range 9000 {
			lines = append(lines, fmt.Sprintf("line: %05d\x1b[2J\ttab", i))
		}
		s := settle(t, press(now, "3", "y"), &archive{manifest: strings.Join(lines, "\n") + "\n"})
		s.W, s.H = 80, 24
		if f := strip(render(s, 80, 24, s.Caps)); !strings.Contains(f, "line: 00000[2J tab") || !strings.Contains(f, "1-20/") {
			t.Errorf("the first lines:\n%s", f)
		}
		if f := strip(render(press(s, "pgdown"), 80, 24, s.Caps)); !strings.Contains(f, "11-30/") {
			t.Errorf("a page down:\n%s", f)
		}
		end := press(s, "end")
		if f := strip(render(end, 80, 24, s.Caps)); !strings.Contains(f, "bytes more") {
			t.Errorf("the end:\n%s", f)
		}
		if f := strip(render(press(end, "down", "up"), 80, 24, s.Caps)); strings.Contains(f, "bytes more") {
			t.Error("it scrolls beyond the end")
		}
		if _, out := s.Key("y", "y"); len(out.Copy) > maxYAML+100 || len(out.Copy) < maxYAML*9/10 {
			t.Errorf("%d bytes are copied", len(out.Copy))
		}
	})
}

// testDiagnostics returns the diagnostics of the test snapshot.
func testDiagnostics() snapshot.DiagnosticsReport {
	return snapshot.DiagnosticsReport{At: noon.Add(-2 * time.Second),
		Store: snapshot.Store{Info: state.Info{Path: "/var/lib/limpet/limpet.db", Bytes: 61 << 20, FreeBytes: 4 << 20, History: 41288,
			HistoryBytes: 40 << 20, Oldest: noon.Add(-167 * time.Hour), Claims: 3, Resting: 1, Objects: 0, Secrets: 2}, DiskFree: 41 << 30,
			DiskSize: 58 << 30},
		Mirrors: snapshot.Mirrors{Count: 4, Bytes: 212 << 20},
		Watches: []snapshot.Watch{{Kind: "jobs", Synced: true, Objects: 7}, {Kind: "repositories", Synced: true, Objects: 4},
			{Kind: "connections", Error: "403 Forbidden: connections is forbidden"}},
		Tokens: []snapshot.Tokens{
			{Provider: "github", TokenCounts: auth.TokenCounts{Held: 2, Oldest: 31 * time.Minute, Hits: 1204, Minted: 9}},
			{Provider: "gcp", TokenCounts: auth.TokenCounts{Held: 1, Oldest: time.Minute, Hits: 3, Minted: 1, Failed: 2}},
		}}
}

func TestAgentScreen(t *testing.T) {
	t.Parallel()
	src := &archive{care: testDiagnostics()}
	s := press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "5")
	frame := func(s State) string { return render(s, 140, 60, s.Caps) }
	if f := frame(s); !strings.Contains(f, "loading") || !strings.Contains(f, "pid          4121") {
		t.Errorf("before the answer:\n%s", f)
	}
	s = settle(t, s, src)
	for _, want := range []string{"41 GiB free of 58 GiB", "4 mirrors, 212 MiB", "403 Forbidden",
		"github       2 cached, 9 minted, 0 failed", "1 minted, 2 failed",
		"41,288 finished jobs, the oldest of 6d ago", "team-dash-sync, lease 18s"} {
		if !strings.Contains(frame(s), want) {
			t.Errorf("no word of %q in\n%s", want, frame(s))
		}
	}
	t.Run("it is asked again after a while only", func(t *testing.T) {
		if _, look := s.Fetch(); look != nil {
			t.Error("it asks again at once")
		}
		s := s
		s.Now = s.Now.Add(diagnosticsMaxAge)
		waiting, look := s.Fetch()
		if look == nil {
			t.Fatal("it is never asked again")
		}
		if _, again := waiting.Fetch(); again != nil {
			t.Error("two ask at once")
		}
		if _, look := press(s, "1").Fetch(); look != nil {
			t.Error("it is asked where nobody sees it")
		}
	})
	t.Run("a fault is said, and what the snapshot has stays", func(t *testing.T) {
		s := s
		s.Now = s.Now.Add(diagnosticsMaxAge)
		s = settle(t, s, &archive{err: errors.New("the daemon answers 404 Not Found")})
		if f := frame(s); !strings.Contains(f, "cannot be read: the daemon answers 404") || !strings.Contains(f, "pid          4121") {
			t.Errorf("the screen:\n%s", f)
		}
	})
}
