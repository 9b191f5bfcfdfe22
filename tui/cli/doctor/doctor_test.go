package doctor

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/tui/cli/command"
)

// TestDoctorJudges: what each figure means, at its borders.
func TestDoctorJudges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	times := func(d ...time.Duration) []time.Duration { return d }
	jwt := func(exp int64) string {
		return "eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, exp)) + ".c2ln"
	}
	mixed := []snapshot.Repo{{Namespace: "a", Name: "good", Checked: now, Healthy: true}, {Namespace: "b", Name: "bad", Checked: now}}
	unsigned := []snapshot.Repo{mixed[0], {Namespace: "c", Name: "odd", Checked: now, Healthy: true,
		Conditions: []snapshot.Condition{{Type: "Ready", Status: "True"}, {Type: "limpet/Webhook", Status: "False", Message: "403"}}}}
	private := []snapshot.Repo{{Namespace: "b", Name: "bad", Checked: now,
		Health: `spec.git.url: Invalid value: "https://h/a": repository URL host must resolve to a public or allowed address`}}
	one := func(checked time.Time) []snapshot.Repo { return []snapshot.Repo{{Enabled: true, Checked: checked}} }
	controllers := func(c snapshot.Controllers, repos []snapshot.Repo) check {
		p := &examination{now: now, repos: repos, snap: &snapshot.Snapshot{Agent: snapshot.Agent{Controllers: c}}}
		return p.checkControllers(t.Context())
	}
	for _, tt := range []struct {
		what         string
		got          check
		result, says string
		next         string
	}{
		{"a full disk", judgeDisk("/d", noDisk-1, ""), checkFail, "32 MiB free at /d", "df -h /d"},
		{"little room", judgeDisk("/d", noDisk, ""), checkWarn, "free at /d", "df -h /d"},
		{"room", judgeDisk("/d", lowDisk, ""), checkOK, "256 MiB free", ""},
		{"a file system in memory", judgeDisk("/d", lowDisk, "tmpfs"+volatile), checkWarn,
			"all is gone after a restart", "limpet --state"},
		{"a network", judgeDisk("/d", lowDisk, "NFS"+remote), checkWarn, "NFS: locks", "limpet --state"},

		{"a good terminal", judgeTerminal(80, 24, env("TERM", "xterm", "LANG", "C.UTF-8")), checkOK, "80x24", ""},
		{"a dumb one", judgeTerminal(80, 24, env("TERM", "dumb", "LANG", "C.UTF-8")), checkWarn, "only print", "TERM="},
		{"a small one", judgeTerminal(39, 24, env("TERM", "xterm", "LANG", "C.UTF-8")), checkWarn, "40x10", ""},
		{"one without UTF-8", judgeTerminal(80, 24, env("TERM", "xterm", "LANG", "C")), checkWarn, "ASCII", "LC_ALL="},

		{"a quick disk", judgeWrites(times(ms(2), ms(3)), 10*time.Second), checkOK, "median 3.0ms, p99 3.0ms", ""},
		{"a slow disk", judgeWrites(times(ms(2), ms(100)), 10*time.Second), checkWarn, "p99 100.0ms", "--state"},
		{"one that loses leases", judgeWrites(times(ms(2), ms(3334)), 10*time.Second), checkFail, "leases may be lost",
			"--lease-renewal-interval"},
		{"one outlier in a hundred", judgeWrites(append(slices.Repeat(times(ms(2)), 99), ms(900)), 10*time.Second), checkOK, "median 2.0ms", ""},
		{"no time", judgeWrites(nil, 0), checkSkipped, "no time", ""},
		{"one whose LANG counts for nothing", judgeTerminal(80, 24, env("TERM", "xterm", "LC_ALL", "C", "LANG", "C.UTF-8")), checkWarn, "ASCII",
			"LC_ALL="},
		{"an opaque token", judgeToken("glsa_x", now), checkOK, "not known", ""},
		{"no token", judgeToken("", now), checkFail, "empty", "--token-file"},
		{"a token that ended", judgeToken(jwt(now.Unix()), now), checkFail, "it ended", "--token-file"},
		{"a token that ends", judgeToken(jwt(now.Unix()+7200), now), checkOK, "ends in 2h", ""},
		{"a JWT without an end", judgeToken("eyJhbGciOiJub25lIn0."+base64.RawURLEncoding.EncodeToString([]byte(`{}`))+".c2ln", now), checkOK, "not known", ""},

		{"a clock ahead", judgeClock(31*time.Second, time.Second/2, true), checkWarn, "31s ahead of this host's", "timedatectl"},
		{"a clock behind", judgeClock(-31*time.Second, time.Second/2, true), checkWarn, "31s behind", "timedatectl"},
		{"a clock that is right", judgeClock(30*time.Second, time.Second/2, true), checkOK, "30s ahead of", ""},
		{"no clock", judgeClock(0, 0, false), checkFail, "Date header", "curl"},

		{"a certificate that ended", judgeCertificate(now.Add(-time.Hour), nil, false, now), checkFail, "ended 1h ago", "date -u"},
		{"one that ends", judgeCertificate(now.Add(certificateWarning-1), nil, false, now), checkWarn, "ends in", "new one"},
		{"one that is good", judgeCertificate(now.Add(certificateWarning), nil, false, now), checkOK, "good for another", ""},
		{"one that is not checked", judgeCertificate(now.Add(certificateWarning), nil, true, now), checkWarn, "not checked", "--tls-ca-file"},
		{"one that is not seen", judgeCertificate(time.Time{}, errors.New("refused"), false, now), checkSkipped, "refused", ""},

		{"no repositories", judgeRepositories(nil), checkOK, "none", "repo create"},
		{"a failing one", judgeRepositories(mixed), checkWarn, "1 of 2 not healthy, the first is b/bad", "limpet repo test bad -n b"},
		{"a Git host that is not allowed", judgeRepositories(private), checkWarn, "1 of 1 not healthy", "allowed_git_urls"},
		{"one with an unmet condition", judgeRepositories(unsigned), checkWarn, "1 of 2 have an unmet condition, the first is c/odd: limpet/Webhook: 403",
			"limpet repo show odd -n c"},
		{"healthy ones", judgeRepositories(mixed[:1]), checkOK, "1, none", ""},

		{"nobody looked", controllers(snapshot.Controllers{}, one(time.Time{})), checkWarn, "ever checked", "limpet --daemon"},
		{"nobody looks any more", controllers(snapshot.Controllers{}, one(now.Add(-16*time.Minute))), checkWarn, "16m old", "limpet --daemon"},
		{"somebody looks", controllers(snapshot.Controllers{}, append(one(now.Add(-time.Hour)), one(now.Add(-time.Minute))...)), checkOK,
			"1m ago", ""},
		{"nothing to look after", controllers(snapshot.Controllers{}, []snapshot.Repo{{}}), checkOK, "no repository has sync enabled", ""},
		{"another agent is active", controllers(snapshot.Controllers{Mode: "on", State: snapshot.ControllersStandby, Holder: "lab_X"}, one(now)),
			checkOK, "standby; active: lab", ""},
		{"it is off, and nobody looks", controllers(snapshot.Controllers{Mode: "off", State: "off"}, one(time.Time{})), checkWarn,
			"--controllers off", "--controllers on"},
	} {
		if tt.got.Result != tt.result || !strings.Contains(tt.got.Found, tt.says) || !strings.Contains(tt.got.Next, tt.next) ||
			(tt.next == "") != (tt.got.Next == "") {
			t.Errorf("%s: %+v, want %s %q %q", tt.what, tt.got, tt.result, tt.says, tt.next)
		}
	}
}

func TestGitAddress(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://git.lab/a.git": "git.lab:443", "https://git.lab:8443/a": "git.lab:8443", "http://127.0.0.1/a": "127.0.0.1:80",
		"ssh://git@git.lab/a.git": "git.lab:22", "git@git.lab:ops/a.git": "git.lab:22", "https://[::1]:3000/a": "[::1]:3000",
		"file:///srv/a.git": "", "": "", "nonsense": "",
	} {
		if got, ok := gitAddress(url); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", url, got, ok, want)
		}
	}
}

// doctor runs it, and gives its checks by name.
func doctor(s *site, t *testing.T, code int, args ...string) map[string]check {
	t.Helper()
	out, _ := s.Must(t, code, append([]string{"doctor", "-o", "json"}, args...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.OK != (code == 0) {
		t.Fatalf("%v, ok %v\n%s", err, d.OK, out)
	}
	byName := map[string]check{}
	for _, c := range d.Checks {
		byName[c.Name] = c
		if c.Result == "" || c.Found == "" || c.Result == checkFail && c.Next == "" {
			t.Errorf("says too little: %+v", c)
		}
	}
	if len(byName) != 21 {
		t.Errorf("%d checks", len(byName))
	}
	return byName
}

// TestDoctorOfAFileInUse: a process without a socket holds the file, so nothing can be asked.
func TestDoctorOfAFileInUse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Store(t, func(*state.Store) {
		if got := doctor(s, t, 0); got["state"].Result != checkWarn || !strings.Contains(got["state"].Found, "in use by process") ||
			got["api"].Result != checkSkipped {
			t.Errorf("a file that another holds: %+v", got)
		}
	})
}

// TestDoctorLooksForTargets: a target of notifications that does not answer, or whose certificate
// is not trusted, and a program that cannot be run are found; nothing is sent to the others.
func TestDoctorLooksForTargets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	asked := func(w http.ResponseWriter, r *http.Request) { t.Errorf("sent %s %s", r.Method, r.URL) }
	plain, secret := httptest.NewServer(http.HandlerFunc(asked)), httptest.NewTLSServer(http.HandlerFunc(asked))
	defer plain.Close()
	defer secret.Close()
	secret.Config.ErrorLog = log.New(io.Discard, "", 0)
	text, dir := filepath.Join(s.Dir, "text"), filepath.Join(s.Dir, "none")
	if err := os.WriteFile(text, []byte("#!/bin/sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]struct{ name, result, found string }{
		"":                                       {"notifications", checkOK, "none"},
		"--notify " + plain.URL + "/hook":        {"notifications", checkOK, plain.URL},
		"--heartbeat http://127.0.0.1:1/x":       {"notifications", checkFail, "connection refused"},
		"--notify slack+" + secret.URL + "/hook": {"notifications", checkFail, "certificate"},
		"--notify exec:/bin/sh":                  {"notifications", checkOK, "exec:/bin/sh"},
		"--notify exec:" + dir:                   {"notifications", checkFail, "no such file"},
		"--sink-exec /bin/sh":                    {"programs", checkOK, "/bin/sh"},
		"--sink-exec " + text:                    {"programs", checkWarn, "permission denied"},
	} {
		code := map[string]int{checkFail: command.ExitError}[want.result]
		if got := doctor(s, t, code, strings.Fields(flags)...)[want.name]; got.Result != want.result || !strings.Contains(got.Found, want.found) {
			t.Errorf("%s: %+v", flags, got)
		}
	}
	s.Apply(t, `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","metadata":{"name":"site","namespace":"default",`+
		`"annotations":{"limpet/sink-exec":"[\"`+dir+`\"]"}},"spec":{"url":"https://git.example.com/x.git","interval":"1h"}}`)
	if got := doctor(s, t, command.ExitError)["programs"]; got.Result != checkWarn || !strings.Contains(got.Found, dir) {
		t.Errorf("of an annotation: %+v", got)
	}
}

// TestDoctorOnDeadNetwork: a server that takes connections and never answers, and
// tokens and certificates that cannot be asked for, hold it up for a while only.
func TestDoctorOnDeadNetwork(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // the kernel takes connections; no process reads them
	s := newSite(t)
	began := time.Now()
	got := doctor(s, t, command.ExitError, "--provisioning-server-url", "https://"+ln.Addr().String(), "--token", "t")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if got["api"].Result != checkFail || !strings.HasSuffix(got["api"].Found, ": no answer within 6s") ||
		got["repositories"].Result != checkSkipped || got["tls"].Result != checkSkipped || got["git hosts"].Result != checkSkipped ||
		got["disk"].Result == "" {
		t.Errorf("%+v", got)
	}
	if refused := doctor(s, t, command.ExitError, "--provisioning-server-url", "https://127.0.0.1:1", "--token",
		"t")["api"]; !strings.Contains(refused.Next, "check the port") {
		t.Errorf("nobody there: %+v", refused)
	}
}

// TestDoctorKnowsRepositoriesWithoutTheAPI: what the daemon has seen last serves
// where the API is away, and what it has not seen yet is not taken for nothing.
func TestDoctorKnowsRepositoriesWithoutTheAPI(t *testing.T) {
	t.Parallel()
	seen := []snapshot.Repo{{Namespace: "a", Name: "boards", URL: "https://git.lab/boards.git", Enabled: true, Checked: time.Now(),
		Health: "401", Webhook: &snapshot.Webhook{ID: "7", LastEvent: time.Now()}}}
	for name, tt := range map[string]struct {
		snap  *snapshot.Snapshot
		known int // -1 = not known
	}{
		"no daemon":               {nil, -1},
		"never read":              {&snapshot.Snapshot{}, -1},
		"read":                    {&snapshot.Snapshot{API: snapshot.API{Synced: true}, Repos: seen}, 1},
		"kept from before":        {&snapshot.Snapshot{AsOf: time.Now(), Repos: seen}, 1},
		"read, and there is none": {&snapshot.Snapshot{API: snapshot.API{Synced: true}}, 0},
	} {
		p := &examination{snap: tt.snap, api: failed("", "away")}
		repos, c := p.repositories(t.Context())
		if (repos == nil) != (tt.known < 0) || repos != nil && len(repos) != tt.known || (c.Result == checkSkipped) != (tt.known < 0) {
			t.Errorf("%s: %+v %+v", name, repos, c)
		}
		if tt.known == 1 && (!repos[0].Failing() || repos[0].Webhook == nil || repos[0].URL == "" || !repos[0].Enabled) {
			t.Errorf("%s: %+v", name, repos[0])
		}
	}
	p := &examination{env: &command.Env{Flags: &command.Flags{}}, snap: &snapshot.Snapshot{API: snapshot.API{Synced: true},
		Repos: []snapshot.Repo{{Namespace: "a", Name: "files", Sink: "/srv/boards", Healthy: true, Checked: time.Now()}}}, api: failed("", "away")}
	if _, c := p.repositories(t.Context()); c.Result != checkWarn || !strings.Contains(c.Found+c.Next, "--sink-prefix") {
		t.Errorf("a directory that no prefix permits: %+v", c)
	}
}
