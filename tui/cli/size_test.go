package cli

import (
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]size{"0": 0, "1": 1, "65536": 65536, "12B": 12, "512KiB": 512 << 10, "64MiB": 64 << 20, "2 GiB": 2 << 30, "500KB": 500e3, "1MB": 1e6, "3GB": 3e9} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "64 parsecs", "64mib", "9999999999GiB", "0x10"} {
		var got size
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
		r, _, err := s.parse(append([]string{"status"}, args...)...)
		if err != nil {
			return AgentFlags{}, err
		}
		return r.g.AgentFlags, nil
	}
	if f, err := read(); err != nil || f.HistoryMaxRecords != 50_000 || f.HistoryMaxBytes != 64<<20 {
		t.Errorf("by default %d and %d, %v", f.HistoryMaxRecords, f.HistoryMaxBytes, err)
	}
	s.env["LIMPET_HISTORY_MAX_BYTES"], s.env["LIMPET_HISTORY_MAX_RECORDS"] = "1GiB", "7"
	if f, err := read("--history-max-records", "0"); err != nil || f.HistoryMaxRecords != 0 || f.HistoryMaxBytes != 1<<30 {
		t.Errorf("%d and %d, %v", f.HistoryMaxRecords, f.HistoryMaxBytes, err)
	}
	for _, bad := range [][]string{{"--history-max-bytes", "much"}, {"--history-max-records", "many"}} {
		if _, err := read(bad...); err == nil || !strings.Contains(err.Error(), bad[0]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if code, _, errs := s.call("--daemon", "--history-max-records=-1"); code != ExitUsage {
		t.Errorf("-1 records: exit %d, %s", code, errs)
	}
}
