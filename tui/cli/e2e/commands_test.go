package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"github.com/creack/pty"

	"limpet/sync/testenv"
)

// TestAllExitCodes makes each of them happen with the built program. With -o json
// the last line of stderr is a document with the same code, and names a command.
func TestAllExitCodes(t *testing.T) {
	t.Parallel()
	known := readSchemas(t)
	h := newHome(t)
	gate := newGate(t, 2)
	h.daemon(t, "--controllers", "off")
	boards := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", testenv.Repo(t, 1, 2).Dir)
	for name, url := range map[string]string{"first": boards, "second": boards, "gated": gate.URL} {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch)
	}
	h.must(t, 0, "repo", "create", "off", "--url", boards, "--disabled")
	server := serveAPI(t, newHome(t))
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html>the hotel network</html>")
	}))
	t.Cleanup(stranger.Close)
	locked := newHome(t)
	holder := locked.command(context.WithoutCancel(t.Context()), t, "api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0", "--state", locked.state())
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
	until(t, "the file is held", func() bool { return locked.owner() == holder.Process.Pid })
	remote := func(args ...string) []string {
		return append([]string{"--provisioning-server-url", server, "--state", filepath.Join(h.dir, "none.db")}, args...)
	}
	seen := map[int]bool{}
	for _, tt := range []struct {
		code int
		at   *home
		args []string
		try  string
	}{
		{exitOK, h, []string{"repo", "pull", "first", "--full", "--wait"}, ""},
		{exitError, h, []string{"job", "show", "nothing"}, "limpet job list"},
		{exitUsage, h, []string{"--drivers", "many", "status"}, "limpet"},
		{exitAuth, h, remote("--token", "stale", "get", "repositories"), "--token"},
		{exitPartial, h, []string{"repo", "pull", "second", "--full", "--wait"}, "limpet history show "},
		{exitVersion, h, []string{"--state", filepath.Join(h.dir, "none.db"), "--provisioning-server-url", stranger.URL, "get", "jobs"}, "--provisioning-server-url"},
		{exitJobFailed, h, []string{"repo", "pull", "off", "--wait"}, "limpet history show "},
		{exitUnreachable, h, []string{"--state", filepath.Join(h.dir, "none.db"), "--provisioning-server-url", "https://127.0.0.1:1", "get", "jobs"}, "--provisioning-server-url"},
		{exitStore, locked, []string{"store", "info"}, fmt.Sprintf("wait until process %d has ended", holder.Process.Pid)},
		{exitTimeout, h, []string{"repo", "pull", "gated", "--full", "--wait", "--timeout", "1s"}, "limpet job watch gated-sync"},
	} {
		r := tt.at.run(t, append(tt.args, "-o", "json", "-q", "--log-level", "error")...)
		if r.code != tt.code {
			t.Errorf("limpet %s: exit %d, want %d\n%s%s", strings.Join(tt.args, " "), r.code, tt.code, r.out, r.err)
		}
		seen[r.code] = true
		known.says(t, r, tt.try)
	}
	// The job of the last one goes on.
	waiting := h.aside(t, "job", "watch", "gated-sync", "-o", "json", "-q")
	until(t, "somebody waits", func() bool { return h.daemonWorks(t) })
	h.must(t, 0, "job", "cancel", "gated-sync")
	r := waiting()
	seen[r.code] = true
	known.says(t, r, "limpet ")

	table := h.must(t, 0, "help", "exit-codes").out
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for code := range 11 {
		if !seen[code] {
			t.Errorf("exit code %d did not happen", code)
		}
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d  `, code)).MatchString(table) {
			t.Errorf("limpet help exit-codes does not tell of %d:\n%s", code, table)
		}
		if !strings.Contains(string(readme), fmt.Sprintf("| %d | ", code)) {
			t.Errorf("README has no row for exit code %d", code)
		}
	}
}

// says fails the test unless stderr ends with a document whose code is that of the
// process and which says what to try.
func (s schemas) says(t *testing.T, r result, try string) {
	t.Helper()
	if r.code == 0 {
		if r.err != "" {
			t.Errorf("success says %s", r.err)
		}
		return
	}
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	last := lines[len(lines)-1]
	s.keeps(t, "error", last)
	var d struct {
		Error struct {
			Code int
			Try  string
		}
	}
	if err := json.Unmarshal([]byte(last), &d); err != nil || d.Error.Code != r.code || !strings.Contains(d.Error.Try, try) || strings.Count(r.err, `"type":"error"`) != 1 {
		t.Errorf("exit %d, %v, want a try with %q: %s", r.code, err, try, r.err)
	}
}

// TestAskedOnATerminal: on a terminal a person is asked before something is gone
// for good; Enter alone keeps it, and so does Ctrl-C. Nobody else is asked.
func TestAskedOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"a", "b", "c"} {
		h.must(t, 0, "repo", "create", name, "--url", "https://git.example.com/x.git")
	}
	going := func(name string) bool {
		return strings.Contains(h.must(t, 0, "repo", "show", name).out, "being deleted")
	}
	for _, answer := range []string{"\r", "n\r", "yo\r", "\x03"} {
		tt := h.terminal(t, "delete", "repository", "a")
		tt.shows(t, "This deletes repository default/a for good: the folders and dashboards that it has made are deleted too, its waiting jobs are deleted, one that runs is waited for. Go on? [y/N]")
		tt.press(t, answer)
		if code := exitOf(tt.end(t)); code != exitCancelled {
			t.Errorf("%q: exit %d\n%s", answer, code, tt.screen)
		}
		if answer != "\x03" && !strings.Contains(tt.screen.String(), "nothing was changed") {
			t.Errorf("%q: %s", answer, tt.screen)
		}
		if going("a") {
			t.Errorf("%q deletes", answer)
		}
	}
	tt := h.terminal(t, "delete", "repository", "a")
	tt.shows(t, "Go on? [y/N]")
	tt.press(t, "y\r")
	if err := tt.end(t); err != nil {
		t.Errorf("yes: %v\n%s", err, tt.screen)
	}
	tt = h.terminal(t, "delete", "repository", "b", "--yes")
	if err := tt.end(t); err != nil || strings.Contains(tt.screen.String(), "Go on?") {
		t.Errorf("--yes: %v\n%s", err, tt.screen)
	}
	h.must(t, 0, "delete", "repository", "c")
	for _, name := range []string{"a", "b", "c"} {
		if !going(name) {
			t.Errorf("%s is not deleted", name)
		}
	}
	for keep, asks := range map[string]string{"0": "This removes all records for good.", "1": "This removes all records but the newest for good.", "2": "This removes all records but the newest 2 for good."} {
		tt = h.terminal(t, "history", "prune", "--keep", keep)
		tt.shows(t, asks+" Go on? [y/N]")
		tt.press(t, "\r")
		if code := exitOf(tt.end(t)); code != exitCancelled || !strings.Contains(tt.screen.String(), "  try: limpet history prune --keep "+keep+" --yes    # does not ask") {
			t.Errorf("prune: exit %d\n%s", code, tt.screen)
		}
	}
}

// exitOf is the exit code of a process by the error of waiting for it.
func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// try is the command line that an error document names.
func try(t *testing.T, r result) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	var doc struct{ Error struct{ Try string } }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &doc); err != nil {
		t.Fatalf("%v: %q", err, r.err)
	}
	line, _, _ := strings.Cut(doc.Error.Try, "    #")
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	if len(words) < 2 || words[0] != "limpet" {
		t.Fatalf("no command line: %q", doc.Error.Try)
	}
	return words[1:]
}

// TestWhatIsNextCanBeRun: the command line that a failure names does as it is printed
// what it says, also for an object of another namespace, for one whose name two of them
// have, and for a state file that a flag names.
func TestWhatIsNextCanBeRun(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	other := filepath.Join(h.dir, "it's another.db")
	h.env = append(h.env, "LIMPET_STATE=")
	for _, namespace := range []string{"default", "edge"} {
		h.must(t, 0, "--state", other, "-n", namespace, "repo", "create", "boards", "--url", "https://127.0.0.1:1/x.git", "--disabled")
	}
	file := h.file(t, "flux.yaml", sourceYAML("near", "https://127.0.0.1:1/x.git", ""))
	for _, c := range []struct {
		code   int
		call   string
		then   string // what the next call is
		ends   int    // and how it ends
		prints string
	}{
		{2, "repo show boards", "--state STATE repo show boards -o json --namespace default", 0, `"namespace": "default"`},
		{1, "-n edge repo show no", "repo list -n edge --state STATE", 0, "boards"},
		{1, "-n edge repo create boards --url https://h/x.git", "repo show boards -n edge --state STATE", 0, "edge/boards"},
		{1, "-n default repo create boards --url https://h/x.git", "repo show boards -n default --state STATE", 0, "default/boards"},
		{1, "-n edge repo test boards", "repo test boards -n edge --state STATE", 1, "remote        failed"},
		{1, "source test -f " + file, "source test -f " + file + " --state STATE", 1, "remote        failed"},
		{1, "-n edge repo pull boards --wait", "--daemon --state STATE", -1, ""},
	} {
		args := append([]string{"--state", other}, strings.Fields(c.call)...)
		next := strings.Join(try(t, h.must(t, c.code, append(args, "-o", "json")...)), " ")
		if want := strings.Replace(c.then, "STATE", strings.Replace(other, "'", `\`, 1), 1); next != want {
			t.Errorf("%s: next is %q, want %q", c.call, next, want)
		}
		if c.ends < 0 {
			continue // it serves
		}
		var words []string
		for _, word := range strings.Fields(c.then) {
			words = append(words, strings.Replace(word, "STATE", other, 1))
		}
		if r := h.must(t, c.ends, words...); !strings.Contains(r.out, c.prints) {
			t.Errorf("%s: %s", next, r.out)
		}
	}
}

// shell runs a command line as a person does who copies it.
func (h *home) shell(t *testing.T, line string) result {
	t.Helper()
	var out, errs bytes.Buffer
	sh := tied(exec.CommandContext(t.Context(), "sh", "-c", line))
	sh.Env, sh.Dir, sh.Stdout, sh.Stderr = append(h.env, "PATH="+filepath.Dir(limpetBinary(t))+":"+os.Getenv("PATH")), h.dir, &out, &errs
	if err := sh.Run(); sh.ProcessState == nil {
		t.Fatal(err)
	}
	return result{sh.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestWhatIsNextIsForAShell: a path with a blank in it is one word, and what stands
// behind the pipe gets no flags.
func TestWhatIsNextIsForAShell(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	h.daemon(t)
	h.must(t, 0, "apply", "-f", h.file(t, "flux.yaml", sourceYAML("near", "https://127.0.0.1:1/x.git", "")))
	packed(t, h, "near")
	h.file(t, "a dir/bad.yaml", "a: [")
	dir := filepath.Join(h.dir, "a dir")
	for _, c := range []struct {
		call   []string
		code   int
		says   string
		then   string // what is there then
		within string
	}{
		{[]string{"source", "get", "near", "--file", dir}, 0, "verified", "FILE", "a dir"},
		{[]string{"store", "backup", dir}, 0, "written to", "FILE", "a dir"},
		{[]string{"history", "export", "--file", dir}, 0, "records written to", "FILE", "a dir"},
		{[]string{"store", "backup", filepath.Join(dir, "b c", "x")}, 0, "", "b c", "a dir"},
		{[]string{"apply", "-f", filepath.Join(dir, "bad.yaml")}, 2, "a dir/bad.yaml, document 1:", "", ""},
		{[]string{"status", "--config", filepath.Join(dir, "bad.yaml")}, 2, "a dir/bad.yaml: error converting YAML", "", ""},
	} {
		_ = os.Remove(filepath.Join(h.dir, c.within, c.then))
		_, line, _ := strings.Cut(h.must(t, 2, c.call...).err, "  try: ")
		if r := h.shell(t, line); r.code != c.code || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%v: %s: exit %d %s%s", c.call, line, r.code, r.out, r.err)
		}
		if _, err := os.Stat(filepath.Join(h.dir, c.within, c.then)); err != nil {
			t.Errorf("%v: %v", c.call, err)
		}
	}
	tt := h.terminal(t, "--state", h.state(), "source", "get", "near", "--file", "-")
	tt.shows(t, "limpet source get near --file - --state "+h.state()+" | tar tz")
	if code := exitOf(tt.end(t)); code != 2 {
		t.Errorf("exit %d", code)
	}
	tt = h.terminal(t, "--provisioning-server-url", "https://127.0.0.1:1")
	tt.shows(t, "limpet --provisioning-server-url ''    # shows that daemon")
	if code := exitOf(tt.end(t)); code != 2 {
		t.Errorf("exit %d", code)
	}
	if r := h.shell(t, "limpet status --provisioning-server-url ''"); r.code != 0 || !strings.Contains(r.out, "embedded ok") {
		t.Errorf("exit %d %s%s", r.code, r.out, r.err)
	}
}

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
	suite.Full(t)
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
