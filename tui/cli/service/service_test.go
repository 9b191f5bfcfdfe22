package service

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// unitOf is the unit that a call of 'service print' makes.
func unitOf(t *testing.T, s *site, args ...string) unit {
	t.Helper()
	e, call, err := s.parse(append([]string{"service", "print"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var o unitOptions
	for _, p := range call.Path {
		if p.Flag != nil && p.Flag.Name == "user" {
			o.User = true
		}
		if p.Flag != nil && p.Flag.Name == "run-as" {
			o.RunAs = p.Flag.Target.String()
		}
	}
	u, err := newUnit(e, call, o)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUnitsAreGood has systemd itself judge the units.
func TestUnitsAreGood(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delete(s.Env, "LIMPET_STATE")
	token := filepath.Join(s.Dir, "tok en")
	for name, args := range map[string][]string{
		"plain": nil, "user": {"--user"}, "run as": {"--run-as", "limpet"},
		"strange words": {"--sink-prefix", "/srv/a b", "--sink-prefix", `/srv/"q"`, "--repository-selector", "a=$b,c=%d",
			"--token-file", token, "--telemetry-listen", "", "--drain", "--tls-insecure=false"},
		"strange words of a user": {"--user", "--token-file", token, "--repository-selector", `x in (a\b;c)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _ := s.Must(t, 0, append([]string{"service", "print"}, args...)...)
			path := filepath.Join(t.TempDir(), unitName)
			if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
			judge := []string{"verify", path}
			if slices.Contains(args, "--user") {
				judge = []string{"--user", "verify", path}
			}
			tool, err := exec.LookPath("systemd-analyze")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(tool, judge...)
			cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
			if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("systemd-analyze: %v\n%s\n%s", err, said, out)
			}
		})
	}
}

// TestUnitText: each line of the units is there, with names that systemd would read
// otherwise than they are written.
func TestUnitText(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]unit{
		"host": {binary: "/usr/local/bin/limpet", args: []string{"--sink-prefix=/srv/a b", "--config=${CREDENTIALS_DIRECTORY}/config"},
			credentials: map[string]string{"token-file": "/etc/limpet/100%", "config": "/etc/limpet/config.yaml"},
			writable:    []string{"/srv/a b", "/srv/c"}},
		"run-as": {binary: "/opt/limpet", runAs: "site"}, "user": {user: true, binary: "/home/ann/bin/limpet",
			args: []string{"--state=/home/ann/limpet.db"}, writable: []string{"/srv/c"}},
	} {
		golden := filepath.Join("..", "..", "..", "testdata", "golden", "unit-"+name+".service")
		text := u.text()
		if *update {
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || text != string(want) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

var hiddenNote = regexp.MustCompile(`the service does not see [^\n]*\n`)

// TestUnitUsers: a user who exists while the service runs reads no directory of
// credentials, which is said; named files are handed over.
func TestUnitUsers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delete(s.Env, "LIMPET_STATE")
	for call, want := range map[string]bool{
		"service print --credentials-dir /etc/limpet/git": true, "service print": false, "service print --kubeconfig /etc/limpet/kube": false,
		"service print --credentials-dir /etc/limpet/git --run-as limpet": false, "service print --credentials-dir /etc/limpet/git --user": false,
	} {
		out, errs := s.Must(t, 0, strings.Fields(call)...)
		errs = hiddenNote.ReplaceAllString(errs, "") // of the program of the test
		if told := strings.Contains(errs, "the service's own user cannot read /etc/limpet/git: name one who can with --run-as"); told != want ||
			!want && errs != "" {
			t.Errorf("%s: %q", call, errs)
		}
		if strings.Contains(call, "kube") && (!strings.Contains(out, "LoadCredential=kubeconfig:/etc/limpet/kube\n") ||
			!strings.Contains(out, " --kubeconfig=${CREDENTIALS_DIRECTORY}/kubeconfig")) {
			t.Errorf("the kubeconfig is not handed over:\n%s", out)
		}
	}
	manager := &systemd{}
	for place, fits := range map[string]bool{"/root/bin/limpet": false, "/home/ann/limpet": false, "/tmp/limpet": false,
		"/usr/local/bin/limpet": true} {
		err := unit{binary: place}.checkVisible(manager)
		if hidden := err != nil && strings.Contains(err.Error(), "the service does not see"); hidden == fits {
			t.Errorf("%s: %v", place, err)
		}
		if err := (unit{binary: place, user: true}).checkVisible(manager); err != nil {
			t.Errorf("%s of a user: %v", place, err)
		}
	}
}

// TestUnitRefuses what a unit cannot do, and shapes no call.
func TestUnitRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delete(s.Env, "LIMPET_STATE")
	config := filepath.Join(s.Dir, "c.yaml")
	if err := os.WriteFile(config, []byte("drivers: 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := unitOf(t, s, "--config", config, "-o", "json").text()
	if !strings.Contains(text, "LoadCredential=config:"+config) || strings.Contains(text, "--drivers") || strings.Contains(text, "--output") {
		t.Errorf("what is in the file, or shapes the call, is no argument:\n%s", text)
	}
}

// TestUnitKeepsSettings: what is given when the unit is made is what the daemon gets.
func TestUnitKeepsSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	given := []string{"--drivers=5", "--tls-insecure=false", "--no-headers", "--sink-prefix=/a,b", "--sink-prefix=/c d",
		"--actions=pull,push", "--telemetry-listen=", "--history-expiration=2d", "--history-max-bytes=1MiB", "--max-repositories=0",
		"--controllers=off", "--allow-insecure-git", "--provisioning-server-url=https://h", "--tls-ca-file=/x/ca.pem"}
	u := unitOf(t, s, append([]string{"--user"}, given...)...)
	want, _, err := s.parse(append([]string{"--daemon"}, given...)...)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := s.parse(append([]string{"--daemon"}, u.args...)...)
	if err != nil {
		t.Fatal(err)
	}
	want.Flags.NoHeaders = false // shapes a call
	if a, b := printed(t, got.Flags), printed(t, want.Flags); a != b {
		t.Errorf("the daemon gets\n%s\nwant\n%s", a, b)
	}
}

func printed(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSystemctl: systemd itself cannot run here, so a program that prints what
// systemctl prints stands in its place.
func TestSystemctl(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := (&systemd{booted: filepath.Join(dir, "none"), ctl: "sh"}).available(); err == nil ||
		!strings.HasPrefix(err.Error(), "this host does not run systemd") {
		t.Errorf("without systemd: %v", err)
	}
	if err := (&systemd{booted: dir, ctl: "no-such-program"}).available(); err == nil {
		t.Error("without systemctl all is well")
	}
	ctl := filepath.Join(dir, "systemctl")
	script := `#!/bin/sh
case "$*" in
*ActiveState*) printf 'ActiveState=%s\nMainPID=%s\nResult=exit-code\n' "$(cat "$0.state")" "$(cat "$0.pid")";;
*) echo "no such unit" >&2; exit 5;;
esac
`
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(ctl, script, 0o700)
	write(ctl+".pid", fmt.Sprint(os.Getpid()), 0o600)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	manager := &systemd{booted: dir, ctl: ctl}
	other := filepath.Join(dir, "limp et")
	write(other, "another", 0o700)
	for _, tt := range []struct{ active, binary, fault, next string }{
		{"active", self, "", ""},
		{"inactive", self, "the service does not run: it is inactive", "sudo limpet service install --now"},
		{"failed", self, "the service has failed: exit-code", "journalctl -u limpet.service"},
		{"active", other, "which is another program than this", "sudo limpet service install --now"},
		{"active", filepath.Join(dir, "gone"), "which is not there", "sudo limpet service install --now"},
	} {
		write(ctl+".state", tt.active, 0o600)
		fault, next := examine(t.Context(), unit{binary: tt.binary}.text(), false, manager)
		if !strings.Contains(fault, tt.fault) || (fault == "") != (tt.fault == "") || !strings.HasPrefix(next, tt.next) {
			t.Errorf("%+v: %q, %q", tt, fault, next)
		}
	}
	if _, err := manager.run(t.Context(), "enable", unitName); err == nil ||
		!strings.Contains(err.Error(), "enable limpet.service: exit status 5: no such unit") {
		t.Errorf("%v", err)
	}
	for want, got := range map[string][][]string{
		"[[] [daemon-reload] [enable limpet.service]]":                          installSteps(true, false),
		"[[enable limpet.service]]":                                             installSteps(false, false),
		"[[] [daemon-reload] [enable limpet.service] [restart limpet.service]]": installSteps(true, true),
		"[[enable limpet.service] [start limpet.service]]":                      installSteps(false, true),
	} {
		if fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if words := (&systemd{user: true, ctl: "systemctl"}).call("start"); strings.Join(words, " ") != "systemctl --user start" {
		t.Errorf("%v", words)
	}
}
