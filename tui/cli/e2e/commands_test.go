package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	host, dir := testenv.Git(t, testenv.GitOptions{}), testenv.Repo(t, 1, 2).Dir
	boards := host.Serve("boards.git", dir)
	for name, url := range map[string]string{"first": boards, "second": host.Serve("second.git", dir), "gated": gate.URL} {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch)
	}
	h.must(t, 0, "repo", "create", "off", "--url", boards, "--disabled")
	server, _ := serveAPI(t, newHome(t), &log{})
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html>the hotel network</html>")
	}))
	t.Cleanup(stranger.Close)
	locked := newHome(t)
	holder := locked.command(context.WithoutCancel(t.Context()), t, "api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0",
		"--state", locked.state())
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
		{exitVersion, h, []string{"--state", filepath.Join(h.dir, "none.db"), "--provisioning-server-url", stranger.URL, "get", "jobs"},
			"--provisioning-server-url"},
		{exitJobFailed, h, []string{"repo", "pull", "off", "--wait"}, "limpet history show "},
		{exitUnreachable, h, []string{"--state", filepath.Join(h.dir, "none.db"), "--provisioning-server-url", "https://127.0.0.1:1", "get",
			"jobs"}, "--provisioning-server-url"},
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
	waiting := h.runInBackground(t, "job", "watch", "gated-sync", "-o", "json", "-q")
	until(t, "somebody waits", func() bool { return h.daemonWorks(t) })
	h.must(t, 0, "job", "cancel", "gated-sync")
	r := waiting()
	seen[r.code] = true
	known.says(t, r, "limpet ")

	table := h.must(t, 0, "help", "exit-codes").out
	for code := range 11 {
		if !seen[code] {
			t.Errorf("exit code %d did not happen", code)
		}
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^- %d: `, code)).MatchString(table) {
			t.Errorf("limpet help exit-codes does not tell of %d:\n%s", code, table)
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
	if err := json.Unmarshal([]byte(last), &d); err != nil || d.Error.Code != r.code || !strings.Contains(d.Error.Try, try) ||
		strings.Count(r.err, `"type":"error"`) != 1 {
		t.Errorf("exit %d, %v, want a try with %q: %s", r.code, err, try, r.err)
	}
}

// shell runs a command line in sh.
func (h *home) shell(t *testing.T, line string) result {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	sh := tied(exec.CommandContext(ctx, "sh", "-c", line))
	if strings.Contains(line, "${fpath[1]}") {
		sh = tied(exec.CommandContext(ctx, "zsh", "-fc", line))
	}
	sh.Env, sh.Dir, sh.Stdout, sh.Stderr = append(h.env, "PATH="+filepath.Dir(limpetBinary(t))+":"+os.Getenv("PATH")), h.dir, &out, &errs
	if err := sh.Run(); sh.ProcessState == nil {
		t.Fatal(err)
	}
	return result{sh.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestCompletion asks real shells what they offer, beside a daemon, beside one that does not
// answer, and without one.
func TestCompletion(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"boards", "beta", "alpha"} {
		h.must(t, 0, "repo", "create", name, "--url", "https://127.0.0.1:1/"+name+".git")
	}
	d := h.daemon(t, "--controllers", "off")
	env := append(slices.Clone(h.env), "PATH="+filepath.Dir(limpetBinary(t))+":"+os.Getenv("PATH"))
	asks := map[string][]string{
		"bash": {"--norc", "-c", `source "$0"; complete=($(complete -p limpet)); for i in "${!complete[@]}"; do [ "${complete[i]}" = -F ] && fn=${complete[i+1]}; done
			COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=($1) COMPREPLY=(); case $1 in *" ") COMP_WORDS+=("");; esac; COMP_CWORD=$((${#COMP_WORDS[@]}-1))
			$fn limpet "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; printf '%s\n' "${COMPREPLY[@]}"`},
		"fish": {"--no-config", "-c", `source $argv[1]; complete -C $argv[2] | string replace -r '\t.*' ''; true`},
	}
	offers := func(shell, line string) []string {
		t.Helper()
		script := h.file(t, "complete."+shell, h.must(t, 0, "completion", shell).out)
		cmd := exec.CommandContext(t.Context(), shell, append(asks[shell], script, line)...)
		cmd.Env, cmd.Dir = env, h.dir
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s %q: %v", shell, line, err)
		}
		return strings.Fields(string(out))
	}
	for shell := range asks {
		for line, want := range map[string]string{
			"limpet j": "job", "limpet job ": "cancel create diff list logs retry show watch", "limpet job list --rep": "--repository",
			"limpet --cleanup ":  "fail off requeue",
			"limpet repo show b": "beta boards", "limpet get re": "repositories", "limpet completion ": "bash fish powershell zsh",
			"limpet status --dri": "",
		} {
			// On a busy machine the names come too late once.
			until(t, fmt.Sprintf("%s offers %q for %q", shell, want, line), func() bool {
				got := offers(shell, line)
				slices.Sort(got)
				return strings.Join(got, " ") == want
			})
		}
	}
	if out, err := exec.Command("zsh", "-n", h.file(t, "_limpet", h.must(t, 0, "completion", "zsh").out)).CombinedOutput(); err != nil {
		t.Errorf("zsh: %v: %s", err, out)
	}
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	offers("bash", "limpet repo show b")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a stopped daemon is waited for: %s", took)
	}
}
