package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/apiserver"
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
		if code := s.main(args, s.streams("", clitest.FailingWriter{Err: syscall.EPIPE}, &errs)); code != command.ExitPipe || errs.Len() > 0 {
			t.Errorf("%v into a pipe without a reader: exit %d, %s", args, code, &errs)
		}
		if code := s.main(args, s.streams("", clitest.FailingWriter{Err: syscall.ENOSPC}, &errs)); code != command.ExitError ||
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
		if n := strings.Count(out, "\n"); len(tt.args) == 1 && n > 52 {
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
	for call, says := range map[string]string{"repo create": "missing NAME", "repo create x": "missing --url", "job show": "missing JOB",
		"--namespace": "--namespace needs a value", "repo list -o": "--output needs a value", "repo list --limit": "--limit needs a value"} {
		if _, errs := s.Must(t, command.ExitUsage, strings.Fields(call)...); !strings.Contains(errs, "limpet: "+says+"\n") {
			t.Errorf("%s: %s", call, errs)
		}
	}
	_, errs := s.Must(t, command.ExitError, "repo", "create", "r", "--url", "/srv/dash.git")
	if !strings.Contains(errs, "use file:///srv/dash.git") {
		t.Errorf("a path: %s", errs)
	}
	_, errs = s.Must(t, command.ExitError, "repo", "create", "Bad_Name", "--url", "https://git.example.com/x.git")
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

// TestSettingsNobodyMeans: the agent does not start with them, and the flag is named.
func TestSettingsNobodyMeans(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for flag, want := range map[string]string{
		"drivers=0": "0 is less than 1", "drivers=-5": "-5 is less", "max-sync-workers=0": "less than 1", "max-attempts=0": "less than 1",
		"token-cache-max-size=-1": "less than 1",
		"job-interval=0s":         "0s is not more than 0", "max-job-timeout=-1m": "-1m0s is not", "resync-interval=0s": "not more",
		"claim-expiry=0s": "not more", "lease-renewal-interval=0s": "not more",
		"namespace=a b": "no name of a namespace", "sink-prefix=srv": "absolute path",
		"telemetry-listen=nonsense": "missing port", "telemetry-listen=:99999": `"99999" is no port`, "webhook-listen=:x": `"x" is no port`,
		"dashboards-server-url=:::": "https://HOST", "folders-server-url=u:hunter22@h": "https://HOST",
	} {
		name, _, _ := strings.Cut(flag, "=")
		_, errs := s.Must(t, command.ExitUsage, "--daemon", "--"+flag, "--timeout=20s")
		if !strings.HasPrefix(errs, "limpet: --"+name+": ") || !strings.Contains(errs, want) || !strings.Contains(errs, "\n  try: limpet ") ||
			strings.Contains(errs, "hunter22") {
			t.Errorf("--%s: %s", flag, errs)
		}
	}
}

// looks are the commands that change nothing at the API or in the state file. A
// new command is either here or has the tag "writes".
var looks = []string{
	"completion", "config path", "config show", "config validate", "connection list", "connection show", "connection test", "crds",
	"dashboard", "doctor", "get", "history export", "history list", "history show",
	"job diff", "job list", "job logs", "job show", "job watch", "logs", "man", "repo diff", "repo export", "repo files", "repo list", "repo open", "repo show", "repo test",
	"repo validate",
	"service print", "source diff", "source export", "source get", "source list", "source show", "source test", "status",
	"store backup", "store check",
	"store info", "validate", "version",
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	commands, err := Commands()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		if commands[name] == slices.Contains(looks, name) {
			t.Errorf("limpet %s: the tag \"writes\" says %v, and the list of this test %v", name, commands[name], !slices.Contains(looks, name))
		}
	}
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git")
	for _, call := range []string{"repo pull boards", "delete repository boards", "repo suspend boards", "history prune --keep 0",
		"store compact", "apply -f x", "job cancel x", "--daemon", "demo --once", "drain"} {
		if _, errs := s.Must(t, command.ExitUsage, append(strings.Fields(call), "--read-only")...); !strings.Contains(errs,
			"--read-only refuses that\n  try: limpet "+call+"    # without --read-only\n") {
			t.Errorf("%s: %s", call, errs)
		}
	}
	s.Must(t, 0, "repo", "show", "boards", "--read-only")
	s.Env["LIMPET_READ_ONLY"] = "true"
	s.Must(t, command.ExitUsage, "delete", "repository", "boards")
	if out, _ := s.Must(t, 0, "job", "list", "-o", "name"); out != "" {
		t.Errorf("jobs: %s", out)
	}
}

// TestPullDefaults: every way to ask for a pull asks for what changed, unless --full is given.
func TestPullDefaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, tt := range []struct {
		call, incremental string
	}{
		{"job create %s", "true"}, {"job create %s --incremental", "true"}, {"job create %s --full", "false"},
		{"repo pull %s", "true"}, {"repo pull %s --full", "false"},
	} {
		name := fmt.Sprintf("boards-%d", i)
		s.Must(t, 0, "repo", "create", name, "--url", "https://git.example.com/"+name+".git")
		s.Must(t, 0, strings.Fields(fmt.Sprintf(tt.call, name))...)
		if out, _ := s.Must(t, 0, "job", "list", "--repository", name, "-o", "json"); !strings.Contains(out, `"incremental": `+tt.incremental) {
			t.Errorf("%s: %s", tt.call, out)
		}
	}
}

// TestCreateOfALocalRepository: what has to be there for it is said at once, where
// nothing tells of an agent that has it.
func TestCreateOfALocalRepository(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url, flag string
		says      bool
	}{{"file:///srv/git/a.git", "", true}, {"file:///srv/git/a.git", "--local-git-prefix=/srv/git", false},
		{"https://git.example.com/a.git", "", false}} {
		s := newSite(t)
		args := []string{"repo", "create", "a", "--url", tt.url}
		if tt.flag != "" {
			args = append(args, tt.flag)
		}
		_, errs := s.Must(t, command.ExitOK, args...)
		if strings.Contains(errs, "--local-git-prefix") != tt.says {
			t.Errorf("%s %s: %s", tt.url, tt.flag, errs)
		}
	}
}

// server is an embedded API behind a URL, with one repository of that name.
func server(t *testing.T, repository string) string {
	t.Helper()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", repository, "--url", "https://git.example.com/x.git", "--disabled")
	store, _, err := state.Open(t.Context(), state.Options{Path: s.Env["LIMPET_STATE"], Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close()
		h.CloseClientConnections()
		h.Close()
		store.Close()
	})
	return h.URL
}

// TestWhoIsAsked: without a server a command asks the daemon, with one it asks
// that server, by the daemon only if the daemon works on it.
func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	a, b := server(t, "of-a"), server(t, "of-b")
	local, onA := newSite(t), newSite(t)
	local.Must(t, 0, "repo", "create", "local", "--url", "https://git.example.com/x.git", "--disabled")
	local.Daemon(t, nil)
	onA.Daemon(t, func(c *agent.Config) { c.API.Server = a })
	for _, tt := range []struct {
		site *site
		args []string
		want string
	}{
		{local, nil, "local"},
		{local, []string{"--provisioning-server-url", a}, "of-a"},
		{onA, nil, "of-a"},
		{onA, []string{"--provisioning-server-url", a}, "of-a"},
		{onA, []string{"--provisioning-server-url", b}, "of-b"},
	} {
		for _, call := range []string{"repo list", "get repositories"} {
			if out, _ := tt.site.Must(t, 0, append(append(strings.Fields(call), "-o", "name"), tt.args...)...); out != "repository/"+tt.want+"\n" {
				t.Errorf("%s %v: %s", call, tt.args, out)
			}
		}
	}
	// Another state file in the same directory is another site.
	copied := filepath.Join(filepath.Dir(local.Env["LIMPET_STATE"]), "copy.db")
	local.Must(t, 0, "store", "backup", copied)
	local.Must(t, 0, "delete", "repository", "local")
	if out, _ := local.Must(t, 0, "--state", copied, "repo", "list", "-o", "name"); out != "repository/local\n" {
		t.Errorf("the copy: %s", out)
	}
	if out, _ := local.Must(t, 0, "repo", "list", "-o", "name"); out != "" {
		t.Errorf("the file itself: %s", out)
	}
}

// TestDaemonWhoseServerIsAway: a command says so and ends with the code for it.
// The list of jobs, which has none here, shows what the daemon knows.
func TestDaemonWhoseServerIsAway(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	s := newSite(t)
	s.Daemon(t, func(c *agent.Config) { c.API.Server = away.URL })
	for _, args := range [][]string{{"repo", "list"}, {"job", "list"}, {"repo", "pull", "x"}, {"get", "jobs", "x"}} {
		code, out, errs := s.Call(args...)
		if code != command.ExitUnreachable || strings.Count(out, "\n") > strings.Count(strings.Join(args, " "), "job list") ||
			!strings.Contains(errs, "refused") {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	if out, _ := s.Must(t, 0, "history", "list", "-o", "name"); out != "" {
		t.Errorf("the history is on this host: %s", out)
	}
}

func TestApplyPrintsOneDocument(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	objects := "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: v}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n"
	for i, format := range []string{"table", "name", "json", "yaml"} {
		var out, errs bytes.Buffer
		if code := s.main([]string{"apply", "-f", "-", "-o", format}, s.streams(objects, &out, &errs)); code != 0 {
			t.Fatalf("-o %s: exit %d: %s", format, code, &errs)
		}
		verb := [...]string{" created", "", "", ""}[i]
		switch format {
		case "table", "name":
			if want := fmt.Sprintf("secret/a%s\nsecret/b%s\n", verb, verb); out.String() != want {
				t.Errorf("-o %s: %q, want %q", format, &out, want)
			}
		case "json":
			if !strings.HasPrefix(out.String(), "{\n  \"items\": [") || strings.Contains(out.String(), "managedFields") {
				t.Errorf("-o json: %s", &out)
			}
		case "yaml":
			if !strings.HasPrefix(out.String(), "items:\n- apiVersion: v1\n") {
				t.Errorf("-o yaml: %s", &out)
			}
		}
	}
}

// TestJobThatNobodyTakes: who waits for it is told why, and so is who asks.
func TestJobThatNobodyTakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Daemon(t, func(c *agent.Config) { c.Controllers = "off" })
	s.Must(t, 0, "repo", "create", "out", "--url", "https://git.example.com/x.git", "--sink-dir", "/nowhere/out")
	s.Must(t, 0, "repo", "pull", "out")
	_, errs := s.Must(t, command.ExitTimeout, "job", "watch", "out-sync", "--timeout", "5s")
	if !strings.Contains(errs, "out-sync is not claimed by this agent: ") || strings.Count(errs, "not claimed") != 1 || !strings.Contains(errs, "sink") {
		t.Errorf("who waits is told: %s", errs)
	}
	if out, _ := s.Must(t, command.ExitError, "status"); !strings.Contains(out, "job out-sync waits: ") {
		t.Errorf("who asks is told: %s", out)
	}
	for _, args := range [][]string{{"job", "list"}, {"job", "show", "out-sync"}, {"repo", "show", "out"}} {
		if out, _ := s.Must(t, 0, args...); !strings.Contains(out, "prefix") {
			t.Errorf("%q: %s", args, out)
		}
	}
}
