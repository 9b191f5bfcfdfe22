package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
)

// brokenPipe refuses every write.
type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// TestLostOutput: a reader that has gone is no news, a full disk is.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status"}, {"version"}, {"version", "-o", "json"}, {"crds"}, {"repo", "list"}, {"--help"}, {"history", "list", "-o", "yaml"}, {"store", "info"}, {"doctor"}} {
		s := newSite(t)
		var errs bytes.Buffer
		if code := s.main(args, s.world("", refusing{syscall.EPIPE}, &errs)); code != exitPipe || errs.Len() > 0 {
			t.Errorf("%v into a pipe without a reader: exit %d, %s", args, code, &errs)
		}
		if code := s.main(args, s.world("", refusing{syscall.ENOSPC}, &errs)); code != ExitError || !strings.Contains(errs.String(), "write the result: no space left") {
			t.Errorf("%v onto a full disk: exit %d, %s", args, code, &errs)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, args := range [][]string{{"status"}, {"doctor"}, {"repo", "list"}, {"store", "check"}, {"demo", "--once"}, {"--daemon"}, {"api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"}} {
		after := "1ns"
		if args[0] != "status" && args[0] != "doctor" && args[0] != "repo" && args[0] != "store" {
			after = "20ms" // they start, and end then
		}
		code, _, errs := s.call(append(args, "--timeout", after)...)
		if code != ExitTimeout || !strings.Contains(errs, "gave up after "+after+" (--timeout)") || strings.Contains(errs, "network") {
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
		{[]string{"--help"}, []string{"--daemon", "--drivers", "--kubeconfig", "limpet help exit-codes", "job watch"}, []string{"($LIMPET"}},
		{[]string{"help"}, []string{"--daemon"}, nil},
		{[]string{"help", "job", "list"}, []string{"Usage: limpet job list", "--limit"}, []string{"--drivers", "--daemon"}},
		{[]string{"job", "list", "--help"}, []string{"Usage: limpet job list"}, []string{"--drivers"}},
		{[]string{"demo", "--help"}, []string{"--drivers"}, nil},
		{[]string{"help", "exit-codes"}, []string{"10  --timeout passed", " 0  ok"}, nil},
	}
	for _, tt := range tests {
		out, errs := s.must(t, 0, tt.args...)
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
		_, errs := s.must(t, ExitUsage, strings.Fields(call)...)
		if !strings.Contains(errs, "  try: "+hint+"\n") {
			t.Errorf("%s: %s", call, errs)
		}
	}
	_, errs := s.must(t, ExitError, "repo", "create", "Bad_Name", "--url", "https://git.example.com/x.git")
	if !strings.Contains(errs, "metadata.name") || !strings.Contains(errs, "try: limpet repo create --help") {
		t.Errorf("a value that the API refuses: %s", errs)
	}
	_, errs = s.must(t, ExitError, "repo", "create", "r", "--url", "https://user:canary@git.example.com/x.git")
	if !strings.Contains(errs, "spec.git.url: Invalid value: must not contain a user name") || strings.Contains(errs, "canary") {
		t.Errorf("a value that may hold a secret: %s", errs)
	}
}

func TestPersonLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := newLogger(&Globals{LogLevel: "info"}, &b, false)
	log.With("room", "api").Warn("the certificate is not\nchecked", "server", "127.0.0.1", "kept_as", "a\x1b[2Jb")
	log.Debug("not shown")
	log.Info("done")
	if want := "limpet: warning: the certificate is not checked (server 127.0.0.1, kept as a[2Jb)\nlimpet: done\n"; b.String() != want {
		t.Errorf("got %q\nwant %q", b.String(), want)
	}
	b.Reset()
	newLogger(&Globals{LogLevel: "warn", LogFormat: "json"}, &b, false).Warn("x")
	var line map[string]any
	if json.Unmarshal(b.Bytes(), &line) != nil || line["msg"] != "x" {
		t.Errorf("--log-format json: %s", &b)
	}
}

// TestExitCodes keeps what each kind of error means to a script.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	group := api.Jobs.GroupResource()
	for _, tt := range []struct {
		err  error
		code int
		hint string
	}{
		{nil, ExitOK, ""},
		{errors.New("odd"), ExitError, ""},
		{usage("h", "bad"), ExitUsage, "h"},
		{fmt.Errorf("wrapped: %w", usage("h", "bad")), ExitUsage, "h"},
		{hinted(apierrors.NewUnauthorized("no"), "h"), ExitAuth, "h"},
		{apierrors.NewForbidden(group, "x", errors.New("no")), ExitAuth, "--namespace"},
		{&kube.ExchangeError{Status: 401, Err: errors.New("no")}, ExitAuth, "--token"},
		{&kube.NotKubernetesError{URL: "u", Got: "a web page"}, ExitVersion, "--provisioning-server-url"},
		{&state.SchemaError{Have: 9, Want: 1}, ExitVersion, "newer"},
		{&url.Error{Op: "Get", URL: "https://h/x", Err: syscall.ECONNREFUSED}, ExitUnreachable, "--provisioning-server-url"},
		{apierrors.NewServiceUnavailable("away"), ExitUnreachable, "limpet status"},
		{fmt.Errorf("%w: gone", control.ErrNoDaemon), ExitUnreachable, ""},
		{&state.LockedError{Path: "p", PID: 7}, ExitStore, "process 7"},
		{&state.LockedError{Path: "p", PID: 7, Socket: "s"}, ExitStore, "limpet --state p status"},
		{fmt.Errorf("write: %w", state.ErrFull), ExitStore, "history prune"},
		{fmt.Errorf("write: %w", syscall.ENOSPC), ExitStore, "free space"},
		{fmt.Errorf("write: %w", state.ErrReadOnly), ExitStore, "give a file in a directory that can be written: --state FILE"},
		{fmt.Errorf("open: %w: %w", state.ErrReadOnly, syscall.EACCES), ExitStore, "sudo -u USER; or give another: --state FILE"},
		{fmt.Errorf("open: %w: %w", state.ErrReadOnly, &fs.PathError{Op: "chmod", Path: "x", Err: syscall.EPERM}), ExitStore, "sudo -u USER"},
		{fmt.Errorf("read: %w", state.ErrCorrupt), ExitStore, "store check"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 507, Message: "the disk is full"}}, ExitStore, "store info"},
		{context.DeadlineExceeded, ExitTimeout, ""},
		{context.Canceled, ExitCancelled, ""},
	} {
		var b bytes.Buffer
		if code := new(run).report(&b, "table", tt.err); code != tt.code || !strings.Contains(b.String(), tt.hint) {
			t.Errorf("%v: exit %d, want %d and a hint with %q: %s", tt.err, code, tt.code, tt.hint, &b)
		}
	}
	var b bytes.Buffer
	new(run).report(&b, "table", &url.Error{Op: "Get", URL: "https://grafana.example:6446/apis/x?limit=500", Err: syscall.ECONNREFUSED})
	if !strings.HasPrefix(b.String(), "limpet: https://grafana.example:6446 does not answer: connection refused\n") {
		t.Errorf("an unreachable server is told so: %s", &b)
	}
}

// TestDemoWhateverTheConfigSays: settings of a site must not keep the demo from
// showing anything.
func TestDemoWhateverTheConfigSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delete(s.env, "LIMPET_STATE")
	for name, value := range map[string]string{"PROVISIONING_SERVER_URL": "https://127.0.0.1:1", "TOKEN": "t", "NAMESPACE": "elsewhere", "REPOSITORY_SELECTOR": "site=east", "ACTIONS": "pull"} {
		s.env["LIMPET_"+name] = value
	}
	out, errs := s.must(t, 0, "demo", "--once", "--timeout", "60s")
	if !strings.Contains(out, " pull success: ") || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}
