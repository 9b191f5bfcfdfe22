package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
	"limpet/tui/cli/config"
)

// someValues are four values of a flag that differ where its kind allows it: of
// the default, the file, the variable and the flag.
func someValues(flag *kong.Flag) (values [4]string, ok bool) {
	values[0] = flag.Default
	switch words := flag.EnumSlice(); {
	case flag.Enum != "":
		for i := 1; i < 4; i++ {
			values[i] = words[(i+1)%len(words)]
		}
	case flag.IsBool():
		values = [4]string{"false", "true", "false", "true"}
	default:
		form := map[string]string{"int": "%d", "uint": "%d", "int64": "%d", "*int64": "%d", "time.Duration": "%dm", "*time.Duration": "%dm",
			"command.Size": "%d", "string": "v%d", "*string": "v%d", "[]string": "v%d", "bool": ""}[flag.Target.Type().String()]
		if form == "" {
			return values, false
		}
		for i := 1; i < 4; i++ {
			values[i] = fmt.Sprintf(form, 1_000_000*i)
		}
	}
	return values, true
}

// fileless are the commands that do not read the config file.
var fileless = []string{"limpet config path", "limpet config init", "limpet config validate", "limpet completion", "limpet man",
	"limpet version"}

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

// verdict is what 'config validate -o json' prints.
type verdict struct {
	File     string
	OK       bool
	Problems []struct{ Key, Problem, Next string }
}

// TestPrecedenceOfEveryFlag: a flag beats the variable, the variable beats the
// file, the file beats the default, whatever the flag and its command.
func TestPrecedenceOfEveryFlag(t *testing.T) {
	t.Parallel()
	_, call, err := newSite(t).parse("status")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	path := filepath.Join(t.TempDir(), "config.yaml")
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, child := range n.Children {
			walk(child)
		}
		if len(n.Children) > 0 && n.Type != kong.ApplicationNode || slices.Contains(fileless, command.CallText(n)) {
			return
		}
		words := strings.Fields(strings.TrimPrefix(command.CallText(n), "limpet"))
		if n.Type == kong.ApplicationNode {
			words = []string{"status"}
		}
		for range n.Positional {
			words = append(words, "x")
		}
		for _, flag := range n.Flags {
			if flag.Name == "help" || flag.Name == "config" {
				continue
			}
			values, ok := someValues(flag)
			if !ok {
				t.Errorf("--%s: no values for a %s", flag.Name, flag.Target.Type())
				continue
			}
			args := append([]string{}, words...)
			for _, other := range n.Flags {
				if other.Required && other != flag {
					v, _ := someValues(other)
					args = append(args, "--"+other.Name+"="+v[1])
				}
			}
			for level := range 4 {
				if level == 0 && flag.Required {
					continue
				}
				s := newSite(t)
				delete(s.Env, command.Variable(flag.Name))
				call, source := append([]string{}, args...), command.Origin{Kind: command.FromDefault}
				if level >= 1 {
					// A number of seven digits among them: YAML makes it a float.
					if err := os.WriteFile(path, []byte("\n\""+flag.Name+"\": "+values[1]+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					call, source = append(call, "--config="+path), command.Origin{Kind: "file", Name: path, Line: 2}
				}
				if level >= 2 {
					s.Env[command.Variable(flag.Name)] = values[2]
					source = command.Origin{Kind: command.FromEnv, Name: command.Variable(flag.Name)}
				}
				if level == 3 {
					call = append(call, "--"+flag.Name+"="+values[3])
					if flag.IsBool() {
						call[len(call)-1] = "--" + flag.Name
					}
				}
				e, made, err := s.parse(call...)
				if err != nil {
					t.Errorf("%v: %v", call, err)
					continue
				}
				got := flagText(t, append(made.Model.Node.Flags, made.Selected().Flags...), flag.Name)
				want := reflect.New(flag.Target.Type()).Elem()
				if values[level] != "" && (level > 0 || flag.HasDefault) {
					if err := flag.Parse(kong.Scan().PushTyped(values[level], kong.FlagValueToken), want); err != nil {
						t.Fatal(err)
					}
				}
				if want := plainText(want); got != want {
					t.Errorf("%v at level %d: --%s is %s, want %s", words, level, flag.Name, got, want)
				}
				if o, ok := e.Config.From[flag.Name]; level < 3 && (ok != (level > 0) || ok && o != source) {
					t.Errorf("--%s at level %d comes from %v, want %v", flag.Name, level, o, source)
				}
				tried++
			}
		}
	}
	walk(call.Model.Node)
	if tried < 300 {
		t.Errorf("only %d values were tried", tried)
	}
}

// TestBadConfigFiles: each is refused by every command that needs it, with the
// line and what to do, and judged by 'config validate'.
func TestBadConfigFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "c.yaml")
	for text, want := range map[string]string{
		"# x\ndrivrs: 4\n":                            path + ":2: unknown key \"drivrs\", did you mean \"drivers\"?",
		"  quiet: true\n  drivers: many\n":            path + ":2: drivers: expected a valid 64 bit int but got \"many\"",
		"output: xml\n":                               path + ":1: output: must be one of ",
		"limit: many\n":                               path + ":1: limit: expected a valid 64 bit uint",
		"claim-expiry: 1x\n":                          "1x\" is no duration such as 90s",
		"drivers:\n":                                  path + ":1: drivers has no value",
		"drivers: {a: 1}\n":                           path + ":1: drivers takes one value",
		"namespace: [a, b]\n":                         path + ":1: namespace takes one value",
		"job-interval: 1s\njob_interval: 2s\n":        path + ":2: job_interval stands there as job-interval too",
		"drivers: 1\ndrivers: 2\n":                    "already set",
		"[]\n":                                        "cannot unmarshal",
		"claim-expiry: 15s\n":                         "claim expiry 15s must be at least 3 times",
		"git-credentials: [{uri: x}]\n":               path + ":1: git-credentials: ",
		"token-file: /x\ntoken: y\n":                  "--token and --token-file are given both",
		"git-private-networks: [10.0.0.0/99]\n":       "git-private-networks",
		"manifests: /m\nkubeconfig: /k\n":             "--manifests fills the embedded API",
		"webhook-url: https://x\nwebhook-listen: 1\n": "webhook-listen",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs := s.Must(t, command.ExitUsage, "config", "validate", path)
		if !strings.Contains(out, want) || !strings.Contains(errs, "limpet: 1 problem in config file "+path+"\n  try: ") {
			t.Errorf("%q, want %q:\n%s%s", text, want, out, errs)
		}
		out, _ = s.Must(t, command.ExitUsage, "config", "validate", path, "-o", "json")
		var v verdict
		if err := json.Unmarshal([]byte(out), &v); err != nil || v.OK || v.File != path || len(v.Problems) != 1 || v.Problems[0].Next == "" {
			t.Errorf("%q: %v\n%s", text, err, out)
		}
	}
	// All that is wrong comes at once; and the repair of a bad file needs no good one.
	if err := os.WriteFile(path, []byte("drivers: a\nlog-level: b\nquiet: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Env["LIMPET_CONFIG"] = path
	if out, errs := s.Must(t, command.ExitUsage, "config", "validate"); strings.Count(out, "\n") != 3 ||
		!strings.Contains(errs, "3 problems") {
		t.Errorf("%s%s", out, errs)
	}
	if out, _ := s.Must(t, 0, "config", "path"); out != path+"\n" {
		t.Errorf("%s", out)
	}
	s.Must(t, command.ExitUsage, "status")
	s.Must(t, command.ExitUsage, "config", "init")
	s.Must(t, 0, "config", "init", "--force")
	s.Must(t, 0, "status")
}

// TestConfigThatOthersRead: a secret in a file that others can read is refused by
// all commands, and in one of its owner it is taken.
func TestConfigThatOthersRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "c.yaml")
	for _, text := range []string{"token: a-long-secret-token\n",
		"git-credentials:\n- url: https://h.example\n  values: {token: a-long-secret-token}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []os.FileMode{0o604, 0o660, 0o644} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			_, errs := s.Must(t, command.ExitUsage, "--config", path, "status")
			if !strings.Contains(errs, "may be read by others") || !strings.Contains(errs, "try: chmod 600 "+path) {
				t.Errorf("mode %o: %s", mode, errs)
			}
			s.Must(t, command.ExitUsage, "config", "validate", path)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"table", "wide", "json", "jsonl", "yaml"} {
			out, errs := s.Must(t, 0, "--config", path, "config", "show", "-o", format)
			if strings.Contains(out+errs, "a-long-secret-token") || !strings.Contains(out, "*****") && !strings.Contains(out, "https://h.example") {
				t.Errorf("%s of %q:\n%s%s", format, text, out, errs)
			}
		}
	}
}

// TestConfigShow: each setting says where it comes from.
func TestConfigShow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delete(s.Env, "LIMPET_STATE")
	path := filepath.Join(s.Dir, "c.yaml")
	if err := os.WriteFile(path, []byte(
		"# mine\ndrivers: 4\nlimit: 7\nsink-prefix: [/a, /b]\ntoken: a-secret-token\ntoken-exchange-url: https://u:hunter22@h/x\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s.Env["LIMPET_CONFIG"], s.Env["LIMPET_CLEANUP"], s.Env["CREDENTIALS_DIRECTORY"] = path, "fail", "/run/c"
	args := []string{"config", "show", "--claim-expiry", "2d"}
	out, _ := s.Must(t, 0, args...)
	for _, line := range []string{
		`drivers +4 +config file .*c\.yaml:2`, `cleanup +fail +LIMPET_CLEANUP`, `claim-expiry +48h0m0s +--claim-expiry`,
		`job-interval +30s +default`,
		`limit +7 +config file .*c\.yaml:3`, `sink-prefix +/a,/b +config file`, `token +\*{8} +config file .*:5`,
		`config +.*c\.yaml +LIMPET_CONFIG`,
		`state +` + s.Dir + `/\.local/state/limpet/limpet\.db +default, from \$HOME`, `credentials-dir +/run/c +CREDENTIALS_DIRECTORY`,
		`tls-insecure +- +default`,
	} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(out) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	if strings.Contains(out, "hunter22") {
		t.Errorf("a password in a URL is shown:\n%s", out)
	}
	out, _ = s.Must(t, 0, append(args, "-o", "json")...)
	var got struct{ Items []config.Setting }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	byName := map[string]config.Setting{}
	for _, item := range got.Items {
		byName[item.Name] = item
	}
	for name, want := range map[string]config.Setting{
		"drivers":      {Name: "drivers", Value: 4.0, Origin: command.Origin{Kind: "file", Name: path, Line: 2}},
		"cleanup":      {Name: "cleanup", Value: "fail", Origin: command.Origin{Kind: "environment", Name: "LIMPET_CLEANUP"}},
		"claim-expiry": {Name: "claim-expiry", Value: "48h0m0s", Origin: command.Origin{Kind: "flag", Name: "--claim-expiry"}},
		"quiet":        {Name: "quiet", Value: false, Origin: command.Origin{Kind: "default"}},
	} {
		if byName[name] != want {
			t.Errorf("%v, want %v", byName[name], want)
		}
	}
	if len(got.Items) < 50 {
		t.Errorf("%d settings", len(got.Items))
	}
	// The setting of a single command, from a variable, which beats the file.
	s.Env["LIMPET_LIMIT"] = "9"
	if out, _ = s.Must(t, 0, args...); !regexp.MustCompile(`(?m)^limit +9 +LIMPET_LIMIT$`).MatchString(out) ||
		strings.Count(out, "\nlimit ") != 1 {
		t.Errorf("a variable of one command:\n%s", out)
	}
	s.Env["LIMPET_LIMIT"] = "" // no number is empty
	if out, _ = s.Must(t, 0, args...); !regexp.MustCompile(`(?m)^limit +7 +config file `).MatchString(out) {
		t.Errorf("an empty variable:\n%s", out)
	}
}

// TestConfigValidateAlone: a file is judged by what stands in it. It is for a service,
// which has not the environment of who writes it.
func TestConfigValidateAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "c.yaml")
	for _, c := range []struct {
		text, name, value string
		good              bool
	}{
		{"claim-expiry: 15s\n", "LIMPET_CLAIM_EXPIRY", "60s", false},
		{"claim-expiry: 15s\n", "LIMPET_LEASE_RENEWAL_INTERVAL", "5s", false},
		{"drivers: 4\n", "LIMPET_CLAIM_EXPIRY", "15s", true},
		{"drivers: 4\n", "LIMPET_GIT_PRIVATE_NETWORKS", "10.0.0.0/99", true},
		{"drivers: 4\n", "GRAFANA_TLS_CERT_FILE", "/nowhere", true},
		{"git-private-networks: [127.0.0.0/8]\n", "LIMPET_MANIFESTS", "/nowhere", true},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Env[c.name] = c.value
		code, out, errs := s.Call("config", "validate", path, "-o", "json")
		delete(s.Env, c.name)
		var v verdict
		if err := json.Unmarshal([]byte(out), &v); err != nil || v.OK != c.good {
			t.Errorf("%q with %s=%s: exit %d, %v\n%s%s", c.text, c.name, c.value, code, err, out, errs)
		}
	}
}

// TestExampleConfig: the file that 'config init' writes is good as it stands, and
// with each of its settings taken in.
func TestExampleConfig(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "a", "b", "config.yaml")
	if out, _ := s.Must(t, 0, "config", "init", path); !strings.HasSuffix(out, "with: limpet config show --config "+path+"\n") {
		t.Errorf("%s", out)
	}
	info, err := os.Stat(path)
	dir, dirErr := os.Stat(filepath.Dir(path))
	if err != nil || dirErr != nil || info.Mode().Perm() != 0o600 || dir.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v %v %v", info, dir, err, dirErr)
	}
	if out, _ := s.Must(t, 0, "config", "validate", path); out != path+" is good\n" {
		t.Errorf("%s", out)
	}
	if err := os.WriteFile(path, []byte("mine: keep\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs := s.Must(t, command.ExitUsage, "config", "init", path); !strings.Contains(errs,
		"is there already\n  try: limpet config init "+path+" --force    # or see it: limpet config show\n") {
		t.Errorf("%s", errs)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine: keep\n" {
		t.Fatalf("what was there is gone: %s %v", data, err)
	}
	s.Must(t, 0, "config", "init", "--force", path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`(?m)^#[a-z][a-z-]*:.*\n(#.*\n)*`).FindAllString(string(text), -1)
	if len(settings) < 45 {
		t.Errorf("only %d settings in\n%s", len(settings), text)
	}
	for _, one := range settings {
		one = strings.TrimPrefix(strings.ReplaceAll(one, "\n#", "\n"), "#")
		if strings.HasPrefix(one, "webhook-") && !strings.HasPrefix(one, "webhook-listen") {
			one += "webhook-listen: 127.0.0.1:9441\n" // they go with it
		}
		if err := os.WriteFile(path, []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := s.Call("config", "validate", path)
		if strings.HasPrefix(one, "webhook-cert-file") || strings.HasPrefix(one, "webhook-key-file") {
			// Of two files that go together, neither is good alone.
			if code != command.ExitUsage || !strings.Contains(out, "go together") {
				t.Errorf("%q: exit %d: %s", one, code, out)
			}
			continue
		}
		if strings.HasPrefix(one, "git-credentials") && strings.Contains(out, "open /etc/limpet/acme.token: no such file") {
			continue
		}
		if code != 0 {
			t.Errorf("%q: exit %d: %s%s", one, code, out, errs)
		}
	}
	for _, line := range strings.Split(string(text), "\n") {
		if len(line) > 84 {
			t.Errorf("a line of %d: %s", len(line), line)
		}
	}
}
