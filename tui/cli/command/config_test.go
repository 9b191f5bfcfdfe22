package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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

// TestBadValuesAreBlamed: the error of a bad value names the variable or the file that it
// comes from.
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
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "is not a size") {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}

// TestUnderscoredKeys: a key may be spelled as in Grafana's settings, but not twice.
func TestUnderscoredKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	for _, flow := range []string{`{"drivers": 3}`, "{drivers: 3}\n"} {
		if c, err := parseConfig(path, []byte(flow)); err != nil || c.Values["drivers"] != float64(3) {
			t.Errorf("%s: %+v, %v", flow, c, err)
		}
	}
	c, err := parseConfig(path, []byte("drivers: 2\nmax_sync_workers: 4\n"))
	if err != nil || c.Values["max-sync-workers"] != float64(4) || c.Where("max-sync-workers").Line != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := parseConfig(path, []byte("max_sync_workers: 4\nmax-sync-workers: 5\n")); err == nil {
		t.Error("two spellings are taken")
	}
}

// TestOperatorINI: the ini file of Grafana's operator is read; each value has its line, what does
// not concern a sync agent is ignored, and what is wrong is refused with its line.
func TestOperatorINI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	write := func(name, text string) string {
		path := filepath.Join(s.Dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const good = "\ufeff; of Grafana\napp_mode = production\n[environment]\nstack_id = 1\n[operator]\nname = x\n" +
		"provisioning_server_url = https://grafana.example.com # prod\nconcurrent_drivers=5\n" +
		"tls_insecure = false\nworker_count = 2\nlease_renewal_interval = 30s\ncleanup_interval = 1m\n[unified_storage]\ngrpc_address = x:1\n" +
		"[grpc_client_authentication]\ntoken = \"a#b\"\ntoken_exchange_url = https://sign.example.com\n[operators.provisioning.jobs]\njob_interval = 45s\n"
	for _, name := range []string{"operator.ini", "operator.conf"} {
		path := write(name, good)
		e, _, err := s.parse("--config", path, "status")
		if err != nil {
			t.Fatal(err)
		}
		f := e.Flags
		if f.ProvisioningServerURL != "https://grafana.example.com" || f.Drivers != 5 || f.TLSInsecure == nil || *f.TLSInsecure ||
			f.ClaimExpiry != time.Minute || f.Token != "a#b" || f.JobInterval != 45*time.Second || f.TokenExchangeURL == "" {
			t.Errorf("%+v", f)
		}
		if at := e.Config.From["drivers"]; at.Name != path || at.Line != 8 {
			t.Errorf("drivers from %+v", at)
		}
		if got := strings.Join(e.Config.Ignored, " "); got !=
			"app_mode environment.stack_id operator.name operator.worker_count unified_storage.grpc_address" {
			t.Errorf("ignored: %s", got)
		}
		if cfg, err := e.AgentConfig(nil, path, e.Log); err != nil || cfg.Jobs.Renew != 20*time.Second {
			t.Errorf("renewed every %s, %v", cfg.Jobs.Renew, err)
		}
	}
	for _, tt := range []struct{ name, text, want string }{
		{"a.ini", "[operator]\nconcurrent_driver = 3\n", `a.ini:2: unknown key "concurrent-driver"`},
		{"b.ini", "\n[operatr]\n", `did you mean "operator"?`},
		{"c.ini", "[operator]\nmax_sync_workers\n", "c.ini:2: "},
		{"d.ini", "[operator]\nconcurrent_drivers = many\n", "d.ini:2)"},
		{"e.ini", "[grpc_client_authentication]\ntoken = ${TOKEN}\n", "LIMPET_TOKEN"},
		{"f.ini", "[operator]\njob_interval = 1m\n[provisioning]\njob_interval = 1m\n", "f.ini:4: "},
		{"g.toml", "drivers = 3\n", "TOML"},
		{"g.yaml", "drivers = 3\n", "TOML"},
		{"h.toml", "[operator]\nconcurrent_drivers = 3\n", "TOML"},
		{"i.yaml", "# date=2026\ndrivers: [\n", "yaml: line 2"},
		{"j.ini", "drivers = 3\n", "j.ini:1: "},
		{"k.ini", "[operator]\ntoken: c2VjcmV0==\n", "k.ini:2: "},
		{"l.ini", "[provisioning]\nloki_password = c2VjcmV0\n", "l.ini:2: "},
	} {
		_, errs := s.Must(t, ExitUsage, "--config", write(tt.name, tt.text), "status")
		if !strings.Contains(errs, tt.want) || strings.Contains(errs, "c2Vj") {
			t.Errorf("%s: %s", tt.name, errs)
		}
	}
	token := write("token", "secret")
	path := write("file.ini", "[grpc_client_authentication]\ntoken = $__file{"+token+"}\n"+
		"[provisioning]\nloki_url = https://logs.example.com\nloki_user = 7\nloki_password = $__file{"+token+"}\n")
	if e, _, err := s.parse("--config", path, "status"); err != nil || e.Flags.TokenFile != token || e.Flags.LokiPasswordFile != token {
		t.Errorf("%v", err)
	}
}
