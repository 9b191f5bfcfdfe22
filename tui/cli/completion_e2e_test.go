package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// offered is what __complete prints; it must never print anything else.
func (h *home) offered(t *testing.T, args ...string) string {
	t.Helper()
	r := h.must(t, 0, append([]string{"__complete"}, args...)...)
	if r.err != "" || strings.ContainsRune(r.out, '\x1b') {
		t.Errorf("__complete %q: %q %q", args, r.out, r.err)
	}
	return strings.Join(strings.Fields(r.out), " ")
}

// TestCompletion asks real shells what they offer, with and without a daemon.
func TestCompletion(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"boards", "beta", "alpha"} {
		h.must(t, 0, "repo", "create", name, "--url", "https://127.0.0.1:1/x.git")
	}
	h.must(t, 0, "repo", "create", "far", "-n", "site-b", "--url", "https://127.0.0.1:1/x.git")
	if got := h.offered(t, "repository", ""); got != "" {
		t.Errorf("without a daemon and a cache: %q", got)
	}
	d := h.daemon(t, "--controllers", "off")
	for _, tt := range []struct{ call, want string }{
		{"repository||repo|show", "alpha beta boards far"}, {"repository|b|repo|show", "beta boards"}, {"repository|.b|repo|show", "beta boards"}, {"repository|.|repo|show", "alpha beta boards far"}, {"repository||repo|show|-n|site-b", "far"}, {"repository||repo|show|--namespace=site-b", "far"},
		{"namespace|", "default site-b"}, {"connection|", ""}, {"object||get|repositories", "alpha beta boards far"}, {"object|b|delete|repository", "beta boards"},
		{"object||get|nonsense", ""}, {"job|", ""}, {"unheard-of|", ""}, {"repository||--output=xml|--no-such", "alpha beta boards far"}, {"repository||--drivers=many", "alpha beta boards far"}, {"repository||--kubeconfig=/nowhere", ""},
	} {
		// On a busy machine the first answer comes after the 150 ms; what came in
		// time once is offered from then on.
		until(t, tt.call+" offers "+tt.want, func() bool { return h.offered(t, strings.Split(tt.call, "|")...) == tt.want })
	}
	t.Run("shells", func(t *testing.T) { shellsOffer(t, h) })

	// A daemon that answers nothing is not waited for.
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if got := h.offered(t, "repository", "b"); got != "beta boards" {
		t.Errorf("a stopped daemon: %q", got)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("a stopped daemon is waited for: %s", took)
	}
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.stop(t)
	if got := h.offered(t, "repository", "b"); got != "beta boards" {
		t.Errorf("offline: %q", got)
	}
	if got := h.offered(t, "repository", "", "--state", filepath.Join(h.dir, "other.db")); got != "" {
		t.Errorf("names of another state file: %q", got)
	}
	// Names that no shell should see, and a torn cache.
	caches, err := filepath.Glob(filepath.Join(h.dir, ".cache", "limpet", "names-*.json"))
	if err != nil || len(caches) == 0 {
		t.Fatal(caches, err)
	}
	for _, text := range []string{`{"repository":["$(touch x)","a\u001b[2Jb","-n","ok.name"]}`, `{"repo`} {
		for _, path := range caches {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := h.offered(t, "repository", ""); got != "ok.name" && !strings.HasSuffix(text, "repo") || got != "" && strings.HasSuffix(text, "repo") {
			t.Errorf("%s: %q", text, got)
		}
	}
	h.env = append(h.env, "LIMPET_CONFIG="+h.file(t, "bad.yaml", "drivrs: [\n"))
	if got := h.offered(t, "repository", ""); got != "" {
		t.Errorf("a bad config file: %q", got)
	}
	h.env = append(h.env, "HOME=", "LIMPET_STATE=", "LIMPET_CONFIG=")
	if got := h.offered(t, "repository", ""); got != "" {
		t.Errorf("no place for anything: %q", got)
	}
}

// lines are what is typed, and the words that have to be offered: all of them, or
// with a "+" these among others.
var completionLines = map[string]string{
	"limpet j":                           "job",
	"limpet job ":                        "cancel create list logs retry show watch",
	"limpet job list --rep":              "--repository",
	"limpet -o j":                        "json jsonl",
	"limpet --output=j":                  "json jsonl",
	"limpet job list --repository b":     "beta boards",
	"limpet job list -r a":               "alpha",
	"limpet repo show ":                  "alpha beta boards far",
	"limpet repo show -n site-b ":        "far",
	"limpet -n site-b repo pull ":        "far",
	"limpet repo create ":                "",
	"limpet get re":                      "repositories",
	"limpet get repositories b":          "beta boards",
	"limpet delete connections ":         "",
	"limpet completion ":                 "bash fish powershell zsh",
	"limpet service install --d":         "+--dry-run --drivers",
	"limpet status --dri":                "",
	"limpet --drivers 3 stat":            "status",
	"limpet config validate some-f":      "some-file",
	"limpet --cleanup ":                  "fail off requeue",
	"limpet history list --status error": "+",
}

func shellsOffer(t *testing.T, h *home) {
	dir := filepath.Dir(limpetBinary(t))
	h.file(t, "some-file", "")
	env := append(slices.Clone(h.env), "PATH="+dir+":"+os.Getenv("PATH"))
	scripts := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := h.must(t, 0, "completion", shell)
		if strings.ContainsRune(r.out, '\x1b') || strings.Count(r.out, "\n") < 100 {
			t.Errorf("%s: %s", shell, r.out)
		}
		scripts[shell] = h.file(t, "complete."+shell, r.out)
	}
	// One shell answers for all lines.
	ask := map[string][]string{
		"bash": {"--norc", "-c", `set -u; source "$0"; for line; do COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=(); _limpet; echo "<$line>"; printf '%s\n' ${COMPREPLY[@]+"${COMPREPLY[@]}"}; done`, scripts["bash"]},
		"fish": {"--no-config", "-c", `source $argv[1]; for line in $argv[2..-1]; echo "<$line>"; complete -C $line | string replace -r '\t.*' '' | string replace -r '^--output=' ''; end`, scripts["fish"]},
	}
	lines := slices.Sorted(maps.Keys(completionLines))
	for shell, args := range ask {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not installed: nobody has asked it", shell)
			continue
		}
		cmd := exec.Command(shell, append(args, lines...)...)
		cmd.Env, cmd.Dir = env, h.dir
		out, err := cmd.CombinedOutput()
		if err != nil && shell == "bash" {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
		for _, line := range lines {
			want := completionLines[line]
			_, rest, _ := strings.Cut(string(out), "<"+line+">\n")
			rest, _, _ = strings.Cut(rest, "<limpet")
			got := strings.Fields(rest)
			slices.Sort(got)
			if some, ok := strings.CutPrefix(want, "+"); ok {
				for _, word := range strings.Fields(some) {
					if !slices.Contains(got, word) {
						t.Errorf("%s %q: %v lacks %s", shell, line, got, word)
					}
				}
			} else if strings.Join(got, " ") != want {
				t.Errorf("%s %q: offers %q, want %q", shell, line, got, want)
			}
		}
	}
	if _, err := exec.LookPath("zsh"); err != nil {
		t.Log("zsh is not installed: nobody has asked it")
		return
	}
	zshOffers(t, h, env, scripts["zsh"])
}

// zshOffers types into a real zsh on a terminal: its completion works nowhere else.
// The line that it has made of a Tab is printed by a function of limpet's name.
func zshOffers(t *testing.T, h *home, env []string, script string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "zsh", "-f", "-i")
	cmd.Env, cmd.Dir = append(env, "TERM=xterm"), h.dir
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cancel()
	defer terminal.Close()
	var seen bytes.Buffer
	chunks := make(chan []byte)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 4096)
			n, err := terminal.Read(buf)
			if n > 0 {
				chunks <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	await := func(word string) {
		t.Helper()
		for !strings.Contains(seen.String(), word) {
			chunk, ok := <-chunks
			if !ok {
				t.Fatalf("zsh does not show %q:\n%q", word, seen.String())
			}
			seen.Write(chunk)
		}
		seen.Reset()
	}
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(terminal, text); err != nil {
			t.Fatal(err)
		}
	}
	say("PS1='> '; autoload -Uz compinit; compinit -u -D; source " + script + "\n")
	say(`limpet() { if [[ $1 == __complete ]]; then command limpet "$@"; else print -r -- "RAN<$*>"; fi }` + "\n")
	say("print re''ady\n")
	await("ready")
	for line, want := range map[string]string{
		"limpet j\tw\t":                       "job watch",
		"limpet job list --rep\talp\t":        "job list --repository alpha",
		"limpet -o ya\tstat\t":                "-o yaml status",
		"limpet --output=ya\tstat\t":          "--output=yaml status",
		"limpet repo show bo\t":               "repo show boards",
		"limpet -n site-b repo pull \t":       "-n site-b repo pull far",
		"limpet get rep\tbe\t":                "get repositories beta",
		"limpet completion z\t":               "completion zsh",
		"limpet config validate some-f\t":     "config validate some-file",
		"limpet service install --dry\t":      "service install --dry-run",
		"limpet --cleanup requ\t":             "--cleanup requeue",
		"limpet job list --no-heade\t -r a\t": "job list --no-headers -r alpha",
	} {
		say(line + "\n")
		await(fmt.Sprintf("RAN<%s>", want))
	}
	say("exit\n")
	for range chunks {
	}
}
