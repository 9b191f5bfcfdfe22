package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

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
	list := map[string]string{"[pull push]": "pull,push", "[move delete]": "move,delete", "[pr]": "pr", "[/a,b]": "/a,b", "[/c]": "/c",
		"[/d]": "/d"}
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
					s.Env["LIMPET_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))] = text(v[2])
				}
				if level == 3 {
					args = append(args, "--"+flag+"="+text(v[3]))
				}
			}
			_, call, err := s.parse(append(args, "status")...)
			if err != nil {
				t.Fatal(err)
			}
			for flag, v := range values {
				if got := flagText(t, call.Model.Node.Flags, flag); got != v[level] {
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
		path := filepath.Join(s.Dir, dir, "limpet", "config.yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	drivers := func() int {
		e, _, err := s.parse("status")
		if err != nil {
			t.Fatal(err)
		}
		return e.Flags.Drivers
	}
	write(".config", "drivers: 11\n")
	if got := drivers(); got != 11 {
		t.Errorf("HOME: %d", got)
	}
	s.Env["XDG_CONFIG_HOME"] = filepath.Join(s.Dir, "xdg")
	write("xdg", "drivers: 12\n")
	if got := drivers(); got != 12 {
		t.Errorf("XDG_CONFIG_HOME: %d", got)
	}
	s.Env["LIMPET_CONFIG"] = filepath.Join(s.Dir, ".config", "limpet", "config.yaml")
	if got := drivers(); got != 11 {
		t.Errorf("LIMPET_CONFIG: %d", got)
	}
}

// TestBadValuesAreBlamed: who has set a variable months ago is told that it is
// that one.
func TestBadValuesAreBlamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "c.yaml")
	if err := os.WriteFile(path, []byte("drivers: many\noutput: xml\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"--drivers", "many"}, "", "got \"many\"\n"},
		{nil, "LIMPET_DRIVERS", "got \"bad\" (from LIMPET_DRIVERS)\n"},
		{nil, "LIMPET_CLEANUP", "got \"bad\" (from LIMPET_CLEANUP)\n"},
		{[]string{"--config", path}, "", "(from config file " + path + ":1)\n"},
		{[]string{"--config", path, "--drivers", "1"}, "", "got \"xml\" (from config file " + path + ":2)\n"},
	} {
		if tt.env != "" {
			s.Env[tt.env] = "bad"
		}
		_, errs := s.Must(t, ExitUsage, append(tt.args, "status")...)
		delete(s.Env, tt.env)
		if first, _, _ := strings.Cut(errs, "  try"); !strings.HasSuffix(first, tt.want) {
			t.Errorf("%v %s: %s", tt.args, tt.env, errs)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	commands := []string{"demo", "api", "status", "job", "repo", "history", "store", "apply", "get", "delete"}
	for word, want := range map[string]string{
		"stauts": "status", "hist": "history", "jbo": "job", "foo": "", "x": "", "": "", "appyl": "apply", "delte": "delete", "stor": "store",
		"reppo": "repo", "repositories": "",
	} {
		if got := Nearest(word, commands); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0": 0,
		"-1d": -24 * time.Hour, "1.5h": 90 * time.Minute} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "7", "7x", "1w", "7dd", "999999999d", "-999999999d", "9223372036854775807d", "d7"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"7d", "1d12h", "-5m", "999999999999d", "0xd", "1e9d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err == nil && (strings.HasPrefix(text, "-") && d > 0 || !strings.Contains(text, "-") && d < 0) {
			t.Errorf("%q became %s", text, d)
		}
	})
}

// flagText is the value of a flag after the parse, as text.
func flagText(t *testing.T, flags []*kong.Flag, name string) string {
	t.Helper()
	for _, f := range flags {
		if f.Name == name {
			return plainText(f.Target)
		}
	}
	t.Fatalf("no flag --%s", name)
	return ""
}

func plainText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return fmt.Sprint(v.Interface())
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"0": 0, "1": 1, "65536": 65536, "12B": 12, "512KiB": 512 << 10, "64MiB": 64 << 20,
		"2 GiB": 2 << 30, "500KB": 500e3, "1MB": 1e6, "3GB": 3e9} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "64 parsecs", "64mib", "9999999999GiB", "0x10"} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "is no size such as") {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}

// TestHistoryLimits are taken from the command line, the environment and the
// config file, and refused when they are none.
func TestHistoryLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	read := func(args ...string) (AgentFlags, error) {
		e, _, err := s.parse(append([]string{"status"}, args...)...)
		if err != nil {
			return AgentFlags{}, err
		}
		return e.Flags.AgentFlags, nil
	}
	if f, err := read(); err != nil || f.HistoryMaxRecords != 50_000 || f.HistoryMaxBytes != 64<<20 {
		t.Errorf("by default %d and %d, %v", f.HistoryMaxRecords, f.HistoryMaxBytes, err)
	}
	s.Env["LIMPET_HISTORY_MAX_BYTES"], s.Env["LIMPET_HISTORY_MAX_RECORDS"] = "1GiB", "7"
	if f, err := read("--history-max-records", "0"); err != nil || f.HistoryMaxRecords != 0 || f.HistoryMaxBytes != 1<<30 {
		t.Errorf("%d and %d, %v", f.HistoryMaxRecords, f.HistoryMaxBytes, err)
	}
	for _, bad := range [][]string{{"--history-max-bytes", "much"}, {"--history-max-records", "many"}} {
		if _, err := read(bad...); err == nil || !strings.Contains(err.Error(), bad[0]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if code, _, errs := s.Call("--daemon", "--history-max-records=-1"); code != ExitUsage {
		t.Errorf("-1 records: exit %d, %s", code, errs)
	}
}
