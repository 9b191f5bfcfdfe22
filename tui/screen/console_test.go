package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"limpet/tui/widget"
)

// withCommands returns a state with some of the commands of the command line.
func withCommands() State {
	s := shown(testSnapshot(), widget.Caps{})
	s.Commands = []Entry{{"repo list", "Repositories"}, {"repo create", "Create one"}, {"logs", "The log"}, {"doctor", "Checks"}}
	return s
}

// TestCommandLine: what is typed runs as it stands; fewer letters find a command; what is unknown is left to the command line.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"repo create a --url 'x y' --title \"it's\"": {"repo", "create", "a", "--url", "x y", "--title", "it's"},
		"limpet logs -f":              {"logs", "-f"},
		"rep lis":                     {"repo", "list"},
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

// TestCompletion: the words of a command, then what may stand behind them.
func TestCompletion(t *testing.T) {
	t.Parallel()
	text := func(s State) string { return s.overlay.(chooser).text }
	at := press(press(withCommands(), ":").Paste("rep cr"), "tab")
	if text(at) != "repo create " {
		t.Fatalf("completed to %q", text(at))
	}
	at = at.Paste("--ti")
	next, out := at.Key("tab", "")
	if out.Complete != "repo create --ti" {
		t.Fatalf("asks for %q", out.Complete)
	}
	if got := next.Completed("another line", []string{"--title"}); text(got) != text(next) {
		t.Errorf("an old answer: %q", text(got))
	}
	if got := next.Completed(out.Complete, []string{"--title"}); text(got) != "repo create --title " {
		t.Errorf("one: %q", text(got))
	}
	got := next.Completed(out.Complete, []string{"--timeout", "--time"})
	if frame := strip(render(got, 80, 24, widget.Caps{})); text(got) != "repo create --time" || !strings.Contains(frame, "--timeout  --time") {
		t.Errorf("several: %q\n%s", text(got), frame)
	}
	if got := next.Completed(out.Complete, nil); text(got) != text(next) {
		t.Errorf("none: %q", text(got))
	}
}

// TestConsole: the pane follows its command, stops it with Esc, answers its question, and shows the head of what has ended.
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
	if _, out := running.Key("ctrl+c", ""); !out.Stop || !out.Quit {
		t.Errorf("ctrl-c: %+v", out)
	}
	ended := running.CommandEnded("")
	if f := frame(ended); !strings.Contains(f, "line 12 ") || strings.Contains(f, "[31mhalf") {
		t.Errorf("not its head:\n%s", f)
	}
	if at := press(ended, "esc"); at.overlay != nil {
		t.Errorf("esc shows %T", at.overlay)
	}
	if at := press(ended, ":"); at.overlay.(chooser).text != "logs -f" {
		t.Errorf(": has %q", at.overlay.(chooser).text)
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
