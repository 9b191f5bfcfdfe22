package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/socket"
)

// These tests call commands in this process, on the embedded API of a state
// file of their own. What needs a process, a terminal or a real server is in
// the tests of the built binary.

// site is an empty place with a state file.
type site struct {
	dir string
	env map[string]string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	return &site{dir: dir, env: map[string]string{"HOME": dir, "LIMPET_STATE": filepath.Join(dir, "limpet.db"), "LIMPET_TELEMETRY_LISTEN": ""}}
}

func (s *site) world(in string, out, errs io.Writer) World {
	return World{In: strings.NewReader(in), Out: out, Err: errs, Lookup: s.lookup}
}

func (s *site) lookup(name string) (string, bool) {
	v, ok := s.env[name]
	return v, ok
}

// call runs one command.
func (s *site) call(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = Main(args, s.world("", &o, &e))
	return code, o.String(), e.String()
}

// must fails the test unless the command ends with code.
func (s *site) must(t *testing.T, code int, args ...string) (out, errs string) {
	t.Helper()
	got, out, errs := s.call(args...)
	if got != code {
		t.Fatalf("limpet %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out, errs
}

// store lets fn work on the state file.
func (s *site) store(t *testing.T, fn func(*state.Store)) {
	t.Helper()
	store, _, err := state.Open(context.Background(), state.Options{Path: s.env["LIMPET_STATE"], Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fn(store)
	if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("state file: %v %v", err, rep.Problems)
	}
}

func (s *site) record(t *testing.T, records ...state.Record) {
	t.Helper()
	s.store(t, func(store *state.Store) {
		for _, rec := range records {
			if err := store.PutRecord(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestPrecedence: a flag beats the variable, the variable beats the file, the
// file beats the default. Each kind of value is tried at each level.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	values := map[string][4]string{ // default, file, variable, flag
		"drivers":             {"3", "4", "5", "6"},
		"namespace":           {"*", "file", "env", "flag"},
		"job-interval":        {"30s", "1m0s", "2m0s", "168h0m0s"},
		"tls-insecure":        {"<nil>", "true", "false", "true"},
		"quiet":               {"false", "true", "false", "true"},
		"actions":             {"[]", "[pull push]", "[move delete]", "[pr]"},
		"sink-prefix":         {"[]", "[/a,b]", "[/c]", "[/d]"},
		"cleanup":             {"requeue", "fail", "off", "requeue"},
		"claim-expiry":        {"1m0s", "2m0s", "3m0s", "4m0s"},
		"token-file":          {"", "f", "e", "x"},
		"repository-selector": {"", "a=file", "a=env", "a=flag"},
	}
	list := map[string]string{"[pull push]": "pull,push", "[move delete]": "move,delete", "[pr]": "pr", "[/a,b]": "/a,b", "[/c]": "/c", "[/d]": "/d"}
	text := func(v string) string {
		if l, ok := list[v]; ok {
			return l
		}
		return v
	}
	var file strings.Builder
	for name, v := range values {
		key := name
		if name == "job-interval" {
			key = "job_interval" // both forms of a key are taken
		}
		switch name {
		case "actions":
			file.WriteString(key + ": [pull, push]\n")
		case "sink-prefix":
			file.WriteString(key + ": \"/a,b\"\n")
		default:
			file.WriteString(key + ": " + strings.ReplaceAll(v[1], "1m0s", "1m") + "\n")
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for level, name := range []string{"default", "file", "variable", "flag"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var args []string
			if level >= 1 {
				args = append(args, "--config", path)
			}
			for flag, v := range values {
				if level >= 2 {
					s.env["LIMPET_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))] = text(v[2])
				}
				if level == 3 {
					args = append(args, "--"+flag+"="+text(v[3]))
				}
			}
			c, _, call, err := parse(append(args, "status"), s.world("", io.Discard, io.Discard))
			if err != nil {
				t.Fatal(err)
			}
			for flag, v := range values {
				if got := flagText(t, c, call.Model.Node.Flags, flag); got != v[level] {
					t.Errorf("--%s is %s, want %s", flag, got, v[level])
				}
			}
		})
	}
}

func TestConfigPlaces(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	write := func(dir, text string) {
		path := filepath.Join(s.dir, dir, "limpet", "config.yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	drivers := func() int {
		c, _, _, err := parse([]string{"status"}, s.world("", io.Discard, io.Discard))
		if err != nil {
			t.Fatal(err)
		}
		return c.Drivers
	}
	write(".config", "drivers: 11\n")
	if got := drivers(); got != 11 {
		t.Errorf("HOME: %d", got)
	}
	s.env["XDG_CONFIG_HOME"] = filepath.Join(s.dir, "xdg")
	write("xdg", "drivers: 12\n")
	if got := drivers(); got != 12 {
		t.Errorf("XDG_CONFIG_HOME: %d", got)
	}
	s.env["LIMPET_CONFIG"] = filepath.Join(s.dir, ".config", "limpet", "config.yaml")
	if got := drivers(); got != 11 {
		t.Errorf("LIMPET_CONFIG: %d", got)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	commands := []string{"demo", "api", "status", "job", "repo", "history", "store", "apply", "get", "delete"}
	for word, want := range map[string]string{
		"stauts": "status", "hist": "history", "jbo": "", "foo": "", "x": "", "": "", "appyl": "", "delte": "delete", "stor": "store", "reppo": "repo", "repositories": "",
	} {
		if got := nearest(word, commands); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0": 0, "-1d": -24 * time.Hour, "1.5h": 90 * time.Minute} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "7", "7x", "1w", "7dd", "999999999d", "-999999999d", "9223372036854775807d", "d7"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"7d", "1d12h", "-5m", "999999999999d", "0xd", "1e9d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDuration(text)
		if err == nil && (strings.HasPrefix(text, "-") && d > 0 || !strings.Contains(text, "-") && d < 0) {
			t.Errorf("%q became %s", text, d)
		}
	})
}

// brokenPipe refuses every write.
type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// TestLostOutput: a reader that has gone is no news, a full disk is.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status"}, {"version"}, {"version", "-o", "json"}, {"crds"}, {"repo", "list"}, {"--help"}, {"history", "list", "-o", "yaml"}, {"store", "info"}} {
		s := newSite(t)
		var errs bytes.Buffer
		if code := Main(args, s.world("", refusing{syscall.EPIPE}, &errs)); code != exitPipe || errs.Len() > 0 {
			t.Errorf("%v into a pipe without a reader: exit %d, %s", args, code, &errs)
		}
		if code := Main(args, s.world("", refusing{syscall.ENOSPC}, &errs)); code != ExitError || !strings.Contains(errs.String(), "write the result: no space left") {
			t.Errorf("%v onto a full disk: exit %d, %s", args, code, &errs)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, args := range [][]string{{"status"}, {"repo", "list"}, {"store", "check"}, {"demo", "--once"}, {"--daemon"}, {"api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"}} {
		after := "1ns"
		if args[0] != "status" && args[0] != "repo" && args[0] != "store" {
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
}

func TestStatePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	file := filepath.Join(dir, "real.db")
	link := filepath.Join(dir, "link.db")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("real.db", link), os.Symlink("nowhere/x.db", filepath.Join(dir, "dangling.db"))); err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, flag string
		env        map[string]string
		want       string // "" = refused
	}{
		{"systemd first", "", map[string]string{"STATE_DIRECTORY": "/var/lib/limpet", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/var/lib/limpet/limpet.db"},
		{"then XDG", "", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/limpet/limpet.db"},
		{"then HOME", "", map[string]string{"HOME": "/h"}, "/h/.local/state/limpet/limpet.db"},
		{"a relative place does not count", "", map[string]string{"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/limpet/limpet.db"},
		{"no place at all", "", map[string]string{"HOME": "relative"}, ""},
		{"relative flag", "a/b.db", nil, filepath.Join(wd, "a/b.db")},
		{"link", link, nil, file},
		{"dangling link", filepath.Join(dir, "dangling.db"), nil, filepath.Join(dir, "dangling.db")},
		{"directory", dir, nil, ""},
	}
	for _, tt := range tests {
		r := &run{g: &Globals{State: tt.flag}, world: World{Lookup: (&site{env: tt.env}).lookup}}
		got, err := r.statePath()
		var f *Failure
		if got != tt.want || (err != nil) != (tt.want == "") || err != nil && (!errors.As(err, &f) || f.Code != ExitUsage || f.Hint == "") {
			t.Errorf("%s: %q %v", tt.name, got, err)
		}
	}
}

// TestUnusableStateFiles: each is exit code 9 with a hint, and nothing is left.
func TestUnusableStateFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := filepath.Join(s.dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("nowhere/x.db", filepath.Join(s.dir, "dangling.db"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "limpet.db"), filepath.Join(s.dir, "dangling.db"), "/proc/limpet.db", os.DevNull} {
		code, out, errs := s.call("--state", path, "repo", "list")
		if code != ExitStore || out != "" || !strings.Contains(errs, path) && !strings.Contains(errs, filepath.Dir(path)) || !strings.Contains(errs, "--state FILE") {
			t.Errorf("%s: exit %d: %s%s", path, code, out, errs)
		}
	}
}

func TestLockedByACommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.store(t, func(*state.Store) {
		_, errs := s.must(t, ExitStore, "repo", "list")
		if !strings.Contains(errs, "wait until process") {
			t.Errorf("a holder without a socket cannot be asked: %s", errs)
		}
	})
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
		{&api.ExchangeError{Status: 401, Err: errors.New("no")}, ExitAuth, "--token"},
		{&api.NotKubernetesError{URL: "u", Got: "a web page"}, ExitVersion, "--provisioning-server-url"},
		{&state.SchemaError{Have: 9, Want: 1}, ExitVersion, "newer"},
		{&url.Error{Op: "Get", URL: "https://h/x", Err: syscall.ECONNREFUSED}, ExitUnreachable, "--provisioning-server-url"},
		{apierrors.NewServiceUnavailable("away"), ExitUnreachable, "limpet status"},
		{fmt.Errorf("%w: gone", socket.ErrNoDaemon), ExitUnreachable, ""},
		{&state.LockedError{Path: "p", PID: 7}, ExitStore, "process 7"},
		{&state.LockedError{Path: "p", PID: 7, Socket: "s"}, ExitStore, "limpet --state p status"},
		{fmt.Errorf("write: %w", state.ErrFull), ExitStore, "history prune"},
		{fmt.Errorf("write: %w", syscall.ENOSPC), ExitStore, "free space"},
		{fmt.Errorf("write: %w", state.ErrReadOnly), ExitStore, "--state FILE"},
		{fmt.Errorf("read: %w", state.ErrCorrupt), ExitStore, "store check"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 507, Message: "the disk is full"}}, ExitStore, "store info"},
		{context.DeadlineExceeded, ExitTimeout, ""},
		{context.Canceled, ExitCancelled, ""},
	} {
		var b bytes.Buffer
		if code := report(&b, tt.err); code != tt.code || !strings.Contains(b.String(), tt.hint) {
			t.Errorf("%v: exit %d, want %d and a hint with %q: %s", tt.err, code, tt.code, tt.hint, &b)
		}
	}
	var b bytes.Buffer
	report(&b, &url.Error{Op: "Get", URL: "https://grafana.example:6446/apis/x?limit=500", Err: syscall.ECONNREFUSED})
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

func TestBackup(t *testing.T) {
	t.Parallel()
	s := seeded(t)
	file := filepath.Join(s.dir, "copy")
	for range 2 { // the second replaces the first
		s.must(t, 0, "store", "backup", file)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, errs := s.must(t, ExitError, "store", "backup", filepath.Join(s.dir, "no", "such", "place")); !strings.Contains(errs, "no such file or directory") {
		t.Errorf("%s", errs)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, ".limpet-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if out, _ := s.must(t, 0, "--state", file, "history", "list", "-o", "name"); out != "u1\nu2\n" {
		t.Errorf("the copy: %s", out)
	}
}
