package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// TestFields: --json gives the fields that it names, in every form of data, and null for what an object lacks.
func TestFields(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git")
	s.Must(t, 0, "repo", "pull", "boards", "-q")
	s.Record(t, clitest.Record("u1", "default", "boards", "success", 0))
	for _, tt := range []struct{ call, want string }{
		{"job list --json metadata.name,spec.pull.incremental", `{"items":[{"metadata.name":"boards-sync","spec.pull.incremental":true}]}`},
		{"job list --json metadata.labels.provisioning.grafana.app/repository -o jsonl",
			`{"metadata.labels.provisioning.grafana.app/repository":"boards"}`},
		{"job list --json status.finished -q", `{"items":[{"status.finished":null}]}`},
		{"job list -r nowhere --json metadata.name", `{"items":[]}`},
		{"repo show boards --json spec.title", `{"spec.title":"boards"}`},
		{"repo show boards --json spec.sync.enabled -o yaml", `spec.sync.enabled:true`},
		{"history list --json uid,attempts.1.agent,attempts.7", `{"items":[{"attempts.1.agent":"edge-07","attempts.7":null,"uid":"u1"}]}`},
		{"history export --json uid", `{"items":[{"uid":"u1"}]}`},
		{"history export --json uid -o jsonl", `{"uid":"u1"}`},
		{"version --json version", `{"version":"dev"}`},
	} {
		out, _ := s.Must(t, 0, strings.Fields(tt.call)...)
		if got := strings.Join(strings.Fields(out), ""); got != tt.want {
			t.Errorf("%s:\n%s\nwant %s", tt.call, got, tt.want)
		}
	}
	s.Must(t, command.ExitUsage, "job", "list", "--json", "metadata.name", "-o", "name")
}

// TestErrorDocuments: with an output for programs an error is one document on
// stderr, whose code is the exit code, also when the call cannot be read at all.
func TestErrorDocuments(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, tt := range []struct {
		call    string
		code    int
		reason  string
		message string
		try     string
	}{
		{"job show nothing -o json", command.ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"-ojson job show nothing", command.ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"job show nothing --json uid", command.ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"job show nothing --output=jsonl", command.ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"job lisst -o json", command.ExitUsage, "usage", "lisst", "limpet job --help"},
		{"-o json --drivers many status", command.ExitUsage, "usage", "--drivers", "limpet"},
		{"get repositoris -o json", command.ExitUsage, "usage", `did you mean "repositories"?`, "limpet get --help"},
		{"apply -f /no/such/file -o json", command.ExitUsage, "usage", "open /no/such/file", "limpet apply"},
		{"job list --provisioning-server-url https://127.0.0.1:1 -q -o json --log-level error", command.ExitUnreachable, "unreachable",
			"does not answer", "--provisioning-server-url"},
	} {
		out, errs := s.Must(t, tt.code, strings.Fields(tt.call)...)
		var d struct {
			Type          string
			SchemaVersion int
			Error         struct {
				Code                        int
				Reason, Message, Cause, Try string
			}
		}
		if err := json.Unmarshal([]byte(errs), &d); err != nil {
			t.Errorf("%s: %v: %s", tt.call, err, errs)
		}
		if out != "" || d.Type != "error" || d.SchemaVersion != 1 || d.Error.Code != tt.code || d.Error.Reason != tt.reason ||
			!strings.Contains(d.Error.Message, tt.message) || !strings.Contains(d.Error.Try, tt.try) {
			t.Errorf("%s: %s%+v", tt.call, out, d)
		}
		if tt.code == command.ExitUsage && strings.Contains(tt.call, "apply") != (d.Error.Cause == "no such file or directory") {
			t.Errorf("%s: cause %q", tt.call, d.Error.Cause)
		}
	}
	if _, errs := s.Must(t, command.ExitError, "job", "show", "nothing", "-o", "yaml"); !strings.Contains(errs, "\n  code: 1\n") {
		t.Errorf("as YAML: %s", errs)
	}
	s.Env["LIMPET_OUTPUT"] = "json"
	if _, errs := s.Must(t, command.ExitError, "job", "show", "nothing"); !strings.HasPrefix(errs, `{"type":"error"`) {
		t.Errorf("by the environment: %s", errs)
	}
	if _, errs := s.Must(t, command.ExitError, "job", "show", "nothing", "-o", "table"); !strings.HasPrefix(errs, "limpet: no job") {
		t.Errorf("a flag beats the environment: %s", errs)
	}
}
