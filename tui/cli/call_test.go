package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// TestLostOutput: a reader that has gone is no news, a full disk is.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status"}, {"version"}, {"version", "-o", "json"}, {"crds"}, {"repo", "list"}, {"--help"},
		{"history", "list", "-o", "yaml"}, {"store", "info"}, {"doctor"}} {
		s := newSite(t)
		var errs bytes.Buffer
		if code := s.main(args, s.world("", clitest.FailingWriter{Err: syscall.EPIPE}, &errs)); code != command.ExitPipe || errs.Len() > 0 {
			t.Errorf("%v into a pipe without a reader: exit %d, %s", args, code, &errs)
		}
		if code := s.main(args, s.world("", clitest.FailingWriter{Err: syscall.ENOSPC}, &errs)); code != command.ExitError ||
			!strings.Contains(errs.String(), "write the result: no space left") {
			t.Errorf("%v onto a full disk: exit %d, %s", args, code, &errs)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, args := range [][]string{{"status"}, {"doctor"}, {"repo", "list"}, {"store", "check"}, {"demo", "--once"}, {"--daemon"},
		{"api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"}} {
		after := "1ns"
		if args[0] != "status" && args[0] != "doctor" && args[0] != "repo" && args[0] != "store" {
			after = "20ms" // they start, and end then
		}
		code, _, errs := s.Call(append(args, "--timeout", after)...)
		if code != command.ExitTimeout || !strings.Contains(errs, "gave up after "+after+" (--timeout)") || strings.Contains(errs, "network") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tests := []struct {
		args     []string
		has, not []string
	}{
		{[]string{"--help"}, []string{"--daemon", "Look\n", "Serve\n", "  repo ", "limpet help flags", "exit-codes"}, []string{"--drivers", "($LIMPET"}},
		{[]string{"help", "flags"}, []string{"--daemon", "--drivers", "--kubeconfig", "LIMPET_<NAME>"}, []string{"  repo "}},
		{[]string{"repo"}, []string{"  repo pull ", "  repo validate "}, []string{"--drivers"}},
		{[]string{"help"}, []string{"--daemon"}, nil},
		{[]string{"help", "job", "list"}, []string{"Usage: limpet job list", "--repository", "limpet job list -o json"}, []string{"--drivers", "--daemon"}},
		{[]string{"job", "list", "--help"}, []string{"Usage: limpet job list"}, []string{"--drivers"}},
		{[]string{"help", "exit-codes"}, []string{"- 10: `--timeout` passed", "- 0: ok"}, nil},
		{[]string{"help", "config"}, []string{"limpet config validate"}, []string{"Usage:"}},
	}
	for _, tt := range tests {
		out, errs := s.Must(t, 0, tt.args...)
		for _, word := range tt.has {
			if !strings.Contains(out, word) {
				t.Errorf("%v: no word of %q", tt.args, word)
			}
		}
		for _, word := range tt.not {
			if strings.Contains(out, word) {
				t.Errorf("%v: speaks of %q", tt.args, word)
			}
		}
		if errs != "" {
			t.Errorf("%v: stderr has %q", tt.args, errs)
		}
		if n := strings.Count(out, "\n"); len(tt.args) == 1 && n > 50 {
			t.Errorf("%v: %d lines", tt.args, n)
		}
	}
}

// TestHintsNameTheCommand: who called a command wrongly is sent to its help.
func TestHintsNameTheCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for call, hint := range map[string]string{
		"job lst":                   "limpet job --help",
		"job list extra":            "limpet job list --help",
		"job show":                  "limpet job show --help",
		"repo create":               "limpet repo create --help",
		"history list --limit=-1":   "limpet history list --help",
		"history list --status=odd": "limpet history list --help",
		"foo":                       "limpet --help",
		"":                          "",
	} {
		if call == "" {
			continue
		}
		_, errs := s.Must(t, command.ExitUsage, strings.Fields(call)...)
		if !strings.Contains(errs, "  try: "+hint+"\n") {
			t.Errorf("%s: %s", call, errs)
		}
	}
	_, errs := s.Must(t, command.ExitError, "repo", "create", "Bad_Name", "--url", "https://git.example.com/x.git")
	if !strings.Contains(errs, "metadata.name") || !strings.Contains(errs, "try: limpet repo create --help") {
		t.Errorf("a value that the API refuses: %s", errs)
	}
	_, errs = s.Must(t, command.ExitError, "repo", "create", "r", "--url", "https://user:canary@git.example.com/x.git")
	if !strings.Contains(errs, "spec.git.url: Invalid value: must not contain a user name") || strings.Contains(errs, "canary") {
		t.Errorf("a value that may hold a secret: %s", errs)
	}
}

// TestDemoWhateverTheConfigSays: settings of a site must not keep the demo from showing anything.
func TestDemoWhateverTheConfigSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delete(s.Env, "LIMPET_STATE")
	for name, value := range map[string]string{"PROVISIONING_SERVER_URL": "https://127.0.0.1:1", "TOKEN": "t", "NAMESPACE": "elsewhere",
		"REPOSITORY_SELECTOR": "site=east", "ACTIONS": "pull"} {
		s.Env["LIMPET_"+name] = value
	}
	out, errs := s.Must(t, 0, "demo", "--once", "--timeout", "60s")
	if !strings.Contains(out, " pull success: ") || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}
