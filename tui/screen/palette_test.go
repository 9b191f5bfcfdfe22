package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"limpet/sync/api"
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
			"go repository lab-w": {"go repository lab-west", "limpet repo show lab-west"},
			"go job infra":        {"go job infra-alerts-sync", "limpet job show infra-alerts-sync"},
			"GO REPOSITORY LAB-E": {"go repository lab-east", "limpet repo show lab-east"},
			"reposlabw":           {"go repository lab-west", "limpet repo show lab-west"},
			"go hist":             {"go history", "limpet history list"},
			"theme high":          {"theme high-contrast", ""},
			"copy comm":           {"copy command", ""},
			"cancel":              {"cancel", "limpet job cancel team-dash-sync"},
			"pull ch":             {"pull changes", "limpet repo pull team-dash"},
			"test":                {"test", "limpet repo test team-dash"},
			"show as":             {"show as YAML", "limpet get job team-dash-sync -o yaml"},
			"edit":                {"edit", "limpet edit repository team-dash"},
			"its hist":            {"its history", "limpet history list --repository team-dash"},
			"doctor":              {"doctor", "limpet doctor"},
		} {
			at := typed(s, words)
			c := top(at)
			line := at.line(c)
			if c.words != want[0] || line != want[1] {
				t.Errorf("%q finds %q, the same as %q; want %q", words, c.words, line, want)
			}
			if frame := strip(render(at, 100, 30, widget.Caps{})); line != "" && at.refusal(c) == "" &&
				!strings.Contains(frame, "same as: "+line[:min(len(line), 50)]) {
				t.Errorf("%q: no %q in\n%s", words, line, frame)
			}
		}
	})
	t.Run("ctx changes to a site of the config file", func(t *testing.T) {
		with := s
		with.Contexts = []Entry{{Words: "site-6"}, {Words: "site-7", Help: "ssh site-7.example"}}
		at := typed(with, "ctx site-7")
		if line := at.line(top(at)); line != "limpet --context site-7" {
			t.Errorf("the same as %q", line)
		}
		if _, out := at.Key("enter", ""); out.Context != "site-7" {
			t.Errorf("got %+v", out)
		}
		if found := typed(s, "ctx ").overlay.(chooser).found; len(found) > 0 && strings.HasPrefix(found[0].words, "ctx") {
			t.Errorf("without sites there is %+v", found[0])
		}
	})
	t.Run("Enter acts on what was meant, wherever the cursor is", func(t *testing.T) {
		at := typed(s, "pull ch")
		later := testSnapshot()
		later.Jobs = later.Jobs[1:] // the cursor goes to the job of another repository
		at, out := at.Show(later).Key("enter", "")
		if a := action(out); a == nil || a.Verb != snapshot.Pull || a.Name != "team-dash" || at.overlay != nil {
			t.Errorf("got %+v", out)
		}
		if at := press(typed(s, "full pull"), "enter"); !strings.Contains(askedText(at), "Full pull of team-dash") {
			t.Errorf("asks %q", askedText(at))
		}
		if frame := strip(render(typed(s, "retry"), 100, 30, widget.Caps{})); !strings.Contains(frame, "is running") ||
			strings.Contains(frame, "same as") {
			t.Errorf("the last line does not say why nothing is done:\n%s", frame)
		}
		at, out = typed(s, "retry").Key("enter", "")
		if len(out.Actions) > 0 || open(at) || !strings.Contains(at.toast, "is running") {
			t.Errorf("what is refused: %+v, said %q", out, at.toast)
		}
		if at := press(typed(s, "go repository lab-west"), "enter"); at.screen != screenRepo || at.repo.page.subject.object.repo.Name != "lab-west" {
			t.Errorf("screen %d", at.screen)
		}
		if at := press(typed(s, "theme blue"), "enter"); at.Caps.Theme != 2 || at.toast != "theme blue-orange" {
			t.Errorf("theme %d, said %q", at.Caps.Theme, at.toast)
		}
	})
	t.Run("the options of a job are asked for, and a yes before it writes", func(t *testing.T) {
		enter := func(at State, texts ...string) State {
			for i, txt := range texts {
				at = at.Paste(txt)
				at = press(at, map[bool]string{true: "enter", false: "down"}[i == len(texts)-1])
			}
			return at
		}
		newJob := func(s State, action string) (State, Outcome) {
			return press(s, append([]string{"3", "down", "A"}, strings.Split(action, "")...)...).Key("enter", "")
		}
		at, _ := newJob(s, "delete")
		at = enter(at, "../x")
		if q, ok := at.overlay.(form); !ok || !strings.Contains(q.why, "spec.delete.paths[0]") {
			t.Fatalf("a bad path: %+v", at.overlay)
		}
		for _, size := range [][2]int{{60, 15}, {80, 24}} {
			if f := strip(render(at, size[0], size[1], widget.Caps{})); !strings.Contains(f, "resource") || !strings.Contains(f, "../x_") {
				t.Errorf("%v:\n%s", size, f)
			}
		}
		at = enter(press(at, "ctrl+u"), "old.json, b/")
		if !open(at) || !strings.Contains(askedText(at), "limpet job create lab-east --action delete --path old.json --path b/") {
			t.Fatalf("asks %q", askedText(at))
		}
		_, out := at.Key("y", "y")
		want := Action{Verb: snapshot.CreateJob, Namespace: "default", Name: "lab-east",
			Spec: `{"action":"delete","delete":{"paths":["old.json","b/"]}}`}
		if a := action(out); a == nil || *a != want {
			t.Errorf("sends %+v", out)
		}
		at = enter(press(press(s, "3", "A"), "t", "e", "s", "t", "enter"), "")
		if q, ok := at.overlay.(form); !ok || !strings.Contains(q.why, "needs --duration") {
			t.Fatalf("without a duration: %+v", at.overlay)
		}
		if at = at.Paste("90s"); !strings.Contains(strip(render(at, 80, 24, widget.Caps{})), "--action test --duration 90s") {
			t.Errorf("no command line in\n%s", strip(render(at, 80, 24, widget.Caps{})))
		}
		if _, out = at.Key("enter", ""); action(out) == nil || action(out).Spec != `{"action":"test","test":{"duration":"90s"}}` {
			t.Errorf("sends %+v", out)
		}
		at, out = newJob(s, "deleteResources")
		if len(out.Actions) > 0 || at.overlay != nil || !strings.Contains(at.toast, "for repositories that are deleted") {
			t.Errorf("%+v, said %q", out, at.toast)
		}
		read := testSnapshot()
		for i := range read.Repos {
			read.Repos[i].ReadOnly = "it has no spec.workflows"
		}
		for _, action := range api.WriteActions {
			at, out = newJob(shown(read, widget.Caps{}), action)
			if len(out.Actions) > 0 || at.overlay != nil || !strings.Contains(at.toast, "no spec.workflows") {
				t.Errorf("%s: %+v, said %q", action, out, at.toast)
			}
		}
		dying := testSnapshot()
		for i := range dying.Repos {
			dying.Repos[i].Deleting = noon
		}
		if at, _ = newJob(shown(dying, widget.Caps{}), "deleteResources"); !open(at) {
			t.Errorf("said %q", at.toast)
		}
		if _, out = at.Paste("lab-east").Key("enter", ""); action(out) == nil || action(out).Name != "lab-east" {
			t.Errorf("sends %+v", out)
		}
	})
	t.Run("a command looks again at what it acts on", func(t *testing.T) {
		at := typed(press(s, "down"), "cancel")
		later := testSnapshot()
		later.Jobs = later.Jobs[:1]
		at, out := at.Show(later).Key("enter", "")
		if len(out.Actions) > 0 || open(at) || at.toast == "" {
			t.Errorf("the job is gone: %+v, %q", out, at.toast)
		}
		none := testSnapshot()
		none.Jobs, none.Repos = nil, nil
		for words, want := range map[string]string{"go job lab-west-move": "lab-west-move no longer exists",
			"go repository lab-west": "lab-west no longer exists"} {
			at := typed(s, words).Show(none)
			if frame := strip(render(at, 100, 30, widget.Caps{})); !strings.Contains(frame, want) || strings.Contains(frame, "same as") {
				t.Errorf("%s: the palette does not say so:\n%s", words, frame)
			}
			if at = press(at, "enter"); at.screen != screenOverview || !strings.HasPrefix(at.toast, want) || !at.toastBad {
				t.Errorf("%s leads to screen %d and says %q", words, at.screen, at.toast)
			}
		}
	})
	t.Run("nothing does the contrary of its words", func(t *testing.T) {
		for _, was := range []bool{false, true} {
			before, later := testSnapshot(), testSnapshot()
			before.Repos[0].Suspended, later.Repos[0].Suspended = was, !was
			before.Sources = []snapshot.Source{{UID: "s1", Namespace: "flux", Name: "apps", Suspended: was}}
			later.Sources = []snapshot.Source{{UID: "s1", Namespace: "flux", Name: "apps", Suspended: !was}}
			s := shown(before, widget.Caps{})
			for _, at := range []State{typed(press(s, "3"), "suspend"), typed(press(s, "6"), "suspend")} {
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
	t.Run("Tab completes", func(t *testing.T) {
		at := press(typed(s, "go repository lab-w"), "tab")
		if p := at.overlay.(chooser); p.text != "go repository lab-west" {
			t.Errorf("completed to %q", p.text)
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
			if b.verb == "" || !b.here(at.screen) {
				continue
			}
			if at, out := at.Key(strings.Fields(b.press)[0], ""); len(out.Actions) > 0 || open(at) || at.toast != at.readOnlyReason() {
				t.Errorf("%v %s: %+v, said %q", keys, b.label, out, at.toast)
			}
		}
	}
	for _, words := range []string{"pull changes", "cancel"} {
		if at, out := typed(s, words).Key("enter", ""); len(out.Actions) > 0 || open(at) || at.toast != at.readOnlyReason() {
			t.Errorf("%s: %+v, said %q", words, out, at.toast)
		}
	}
	s.Source = Standalone
	if q, _ := press(s, "q").overlay.(confirm); len(q.choices) != 1 {
		t.Errorf("quit offers %d ways: to drain is to ask for something", len(q.choices))
	}
}

// withCommands returns a state with some of the commands of the command line.
func withCommands() State {
	s := shown(testSnapshot(), widget.Caps{})
	s.Commands = func() []Entry {
		return []Entry{{"repo list", "Repositories"}, {"repo create", "Create one"}, {"logs", "The log"}, {"doctor", "Checks"}}
	}
	return s
}

// TestCommandLine: what is typed runs as it stands; fewer letters find a command; what is unknown
// is left to the command line.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"repo create a --url 'x y' --title \"it's\"": {"repo", "create", "a", "--url", "x y", "--title", "it's"},
		"limpet logs -f":              {"logs", "-f"},
		"rep lis":                     {"repo", "list"},
		"Repo":                        {"repo"},
		"nonsense --daemon":           {"nonsense", "--daemon"},
		"repo create a --title O\\'K": {"repo", "create", "a", "--title", "O'K"},
		"repo create 'a":              nil,
	} {
		at, out := press(withCommands(), ":").Paste(line).Key("enter", "")
		if !slices.Equal(out.Run, want) || at.console.running != (want != nil) || want == nil && at.toast == "" {
			t.Errorf("%q runs %q, said %q", line, out.Run, at.toast)
		}
	}
	if at, out := press(withCommands(), ":").Key("enter", ""); out.Run != nil || action(out) == nil {
		t.Errorf("nothing typed: %+v, %v", out, at.overlay)
	}
}

// TestTyped: Tab writes the words of a command; what is typed behind them is kept in any case.
func TestTyped(t *testing.T) {
	t.Parallel()
	text := func(s State) string { return s.overlay.(chooser).text }
	at := press(press(withCommands(), ":").Paste("rep cr"), "tab")
	if text(at) != "repo create " {
		t.Fatalf("completed to %q", text(at))
	}
	if at := press(press(withCommands(), ":").Paste("repo"), "tab"); text(at) != "repo list " {
		t.Errorf("a group is completed to %q", text(at))
	}
	for _, line := range []string{"Repo Create Two --title X", "repo create Two --title X"} {
		_, out := press(withCommands(), ":").Paste(line).Key("enter", "")
		if want := []string{"repo", "create", "Two", "--title", "X"}; !slices.Equal(out.Run, want) {
			t.Errorf("%q runs %q", line, out.Run)
		}
	}
}

// TestConsole: the pane follows its command, stops it with Esc, answers its question, and shows the
// head of what has ended.
func TestConsole(t *testing.T) {
	t.Parallel()
	running := press(press(withCommands(), ":").Paste("logs -f"), "enter")
	frame := func(s State) string { return strip(render(s, 80, 24, widget.Caps{})) }
	for i := range maxOutput + 10 {
		running = running.Output(fmt.Sprintf("line %d\n", i))
	}
	running = running.Output("\x1b[31mha").Output("lf\tone\r\n")
	if f := frame(running); !strings.Contains(f, "[31mhalf    one") || !strings.Contains(f, fmt.Sprintf("line %d ", maxOutput+9)) {
		t.Errorf("it does not follow its end:\n%s", f)
	}
	if n := len(running.console.lines); n != maxOutput {
		t.Errorf("%d lines are kept", n)
	}
	drawn(&running)
	up := press(running, "pgup").Output("more\nmore\n")
	if f := frame(up); strings.Contains(f, "more") {
		t.Errorf("scrolled up, it does not stay:\n%s", f)
	}
	if f := frame(press(up, "G")); !strings.Contains(f, "more") {
		t.Errorf("at the end again:\n%s", f)
	}
	stopping, out := running.Key("esc", "")
	if !out.Stop || stopping.overlay != (consolePane{}) || !strings.Contains(frame(stopping), "stopping") {
		t.Fatalf("esc: %+v, %v", out, stopping.overlay)
	}
	if f := frame(stopping.CommandEnded("exit code 5")); !strings.Contains(f, "exit code 5") {
		t.Errorf("where it was stopped:\n%s", f)
	}
	if at, out := running.Key("q", "q"); out.Quit || at.overlay == nil {
		t.Error("q leaves a running command")
	}
	once, out := running.Key("ctrl+c", "")
	if !out.Stop || out.Quit || once.overlay != (consolePane{}) {
		t.Errorf("ctrl-c: %+v, %v", out, once.overlay)
	}
	if _, out := once.Key("ctrl+c", ""); !out.Quit {
		t.Errorf("ctrl-c again: %+v", out)
	}
	if f := frame(press(running, "g")); !strings.Contains(f, "earlier lines left out") {
		t.Errorf("nothing says that lines are gone:\n%s", f)
	}
	ended := running.CommandEnded("")
	if f := frame(ended); !strings.Contains(f, "earlier lines left out") || strings.Contains(f, "[31mhalf") {
		t.Errorf("not its head:\n%s", f)
	}
	if at := press(ended, "esc"); at.overlay != nil {
		t.Errorf("esc shows %T", at.overlay)
	}
	if f := frame(press(withCommands(), "D").CommandEnded("")); !strings.Contains(f, "printed nothing") {
		t.Errorf("no output:\n%s", f)
	}

	asks := press(withCommands(), "D").Output("This deletes " + strings.Repeat("much and ", 20) + "more. Go on? [y/N] ")
	if f := frame(asks); !strings.Contains(f, "y yes") || !strings.Contains(f, "Go on? [y/N]") {
		t.Errorf("the question:\n%s", f)
	}
	for _, key := range []string{"y", "n"} {
		if at, out := asks.Key(key, key); out.Type != key+"\n" || at.console.asks() {
			t.Errorf("%s types %q", key, out.Type)
		}
	}
	if _, out := asks.Key("enter", ""); out.Type != "" {
		t.Errorf("enter answers %q", out.Type)
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
