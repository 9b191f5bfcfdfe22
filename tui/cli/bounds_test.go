package cli

import (
	"strings"
	"testing"

	"limpet/tui/cli/command"
)

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
