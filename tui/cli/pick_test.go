package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestFields: --json gives the fields that it names, in every form of data, and
// null for what an object lacks.
func TestFields(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git")
	s.must(t, 0, "repo", "pull", "boards", "-q")
	s.record(t, full("u1", "default", "boards", "success", 0))
	for _, tt := range []struct{ call, want string }{
		{"job list --json metadata.name,spec.pull.incremental", `{"items":[{"metadata.name":"boards-sync","spec.pull.incremental":true}]}`},
		{"job list --json metadata.labels.provisioning.grafana.app/repository -o jsonl", `{"metadata.labels.provisioning.grafana.app/repository":"boards"}`},
		{"job list --json status.finished -q", `{"items":[{"status.finished":null}]}`},
		{"job list -r nowhere --json metadata.name", `{"items":[]}`},
		{"repo show boards --json spec.title", `{"spec.title":"boards"}`},
		{"repo show boards --json spec.sync.enabled -o yaml", `spec.sync.enabled:true`},
		{"history list --json uid,attempts.1.agent,attempts.7", `{"items":[{"attempts.1.agent":"edge-07","attempts.7":null,"uid":"u1"}]}`},
		{"history export --json uid", `{"items":[{"uid":"u1"}]}`},
		{"history export --json uid -o jsonl", `{"uid":"u1"}`},
		{"version --json version", `{"version":"dev"}`},
	} {
		out, _ := s.must(t, 0, strings.Fields(tt.call)...)
		if got := strings.Join(strings.Fields(out), ""); got != tt.want {
			t.Errorf("%s:\n%s\nwant %s", tt.call, got, tt.want)
		}
	}
	if _, errs := s.must(t, 0, "job", "list", "--json", "metadata.nam"); errs != "limpet: no object here has the field \"metadata.nam\", did you mean \"metadata.name\"?\n" {
		t.Errorf("a field that is written wrong: %q", errs)
	}
	if _, errs := s.must(t, 0, "job", "list", "--json", "metadata.name"); errs != "" {
		t.Errorf("a field that is there: %q", errs)
	}
	s.must(t, ExitUsage, "job", "list", "--json", "metadata.name", "-o", "name")
}

// TestFieldsOfAStream: what is watched and followed has the fields of --json alone too.
func TestFieldsOfAStream(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"json": `{"job.name":"a","type":"job"}` + "\n" + `{"job.name":null,"type":"ended"}` + "\n",
		"yaml": "---\njob.name: a\ntype: job\n---\njob.name: null\ntype: ended\n",
	} {
		var out, notes strings.Builder
		g := &Globals{JSON: []string{"type", "job.name"}, notes: &notes}
		g.Output = form
		for _, line := range []streamLine{{Type: "job", Job: &jobMark{Name: "a"}}, {Type: "ended", Ended: 1}} {
			if err := (&run{g: g, World: World{Out: &out}}).printStream(line); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want || notes.String() != "" {
			t.Errorf("%s: %q, want %q; notes %q", form, out.String(), want, notes.String())
		}
		g = &Globals{JSON: []string{"tpye", "job.name"}, notes: &notes}
		g.Output = form
		for range 2 {
			if err := (&run{g: g, World: World{Out: io.Discard}}).printStream(streamLine{Type: "job"}); err != nil {
				t.Fatal(err)
			}
		}
		if notes.String() != "limpet: no object here has the field \"tpye\", did you mean \"type\"?\n" {
			t.Errorf("%s: notes %q", form, notes.String())
		}
	}
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
		{"job show nothing -o json", ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"-ojson job show nothing", ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"job show nothing --json uid", ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"job show nothing --output=jsonl", ExitError, "error", `no job "nothing"`, "limpet job list"},
		{"job lisst -o json", ExitUsage, "usage", "lisst", "limpet job --help"},
		{"-o json --drivers many status", ExitUsage, "usage", "--drivers", "limpet"},
		{"get repositoris -o json", ExitUsage, "usage", `did you mean "repositories"?`, "limpet get --help"},
		{"apply -f /no/such/file -o json", ExitUsage, "usage", "open /no/such/file", "limpet apply"},
		{"job list --provisioning-server-url https://127.0.0.1:1 -q -o json --log-level error", ExitUnreachable, "unreachable", "does not answer", "--provisioning-server-url"},
	} {
		out, errs := s.must(t, tt.code, strings.Fields(tt.call)...)
		var d errorDocument
		if err := json.Unmarshal([]byte(errs), &d); err != nil {
			t.Errorf("%s: %v: %s", tt.call, err, errs)
		}
		if out != "" || d.Type != "error" || d.SchemaVersion != 1 || d.Error.Code != tt.code || d.Error.Reason != tt.reason || !strings.Contains(d.Error.Message, tt.message) || !strings.Contains(d.Error.Try, tt.try) {
			t.Errorf("%s: %s%+v", tt.call, out, d)
		}
		if tt.code == ExitUsage && strings.Contains(tt.call, "apply") != (d.Error.Cause == "no such file or directory") {
			t.Errorf("%s: cause %q", tt.call, d.Error.Cause)
		}
	}
	if _, errs := s.must(t, ExitError, "job", "show", "nothing", "-o", "yaml"); !strings.Contains(errs, "\n  code: 1\n") {
		t.Errorf("as YAML: %s", errs)
	}
	s.env["LIMPET_OUTPUT"] = "json"
	if _, errs := s.must(t, ExitError, "job", "show", "nothing"); !strings.HasPrefix(errs, `{"type":"error"`) {
		t.Errorf("by the environment: %s", errs)
	}
	if _, errs := s.must(t, ExitError, "job", "show", "nothing", "-o", "table"); !strings.HasPrefix(errs, "limpet: no job") {
		t.Errorf("a flag beats the environment: %s", errs)
	}
	for _, code := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
		if reasons[code] == "" {
			t.Errorf("exit code %d has no word", code)
		}
	}
}

// TestDidYouMean: words that are nearly right.
func TestDidYouMean(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for call, near := range map[string]string{
		"job list -o jason": `did you mean "json"?`, "history list --status erorr": `did you mean "error"?`, "--cleanup requeu status": `did you mean "requeue"?`,
		"hisotry list": `did you mean "history"?`, "job lst": `did you mean "list"?`, "job list --lmit 3": `did you mean "--limit"?`, "get reposotory": `did you mean "repository"?`, "job list -o jsno": `did you mean "json"?`,
	} {
		if _, errs := s.must(t, ExitUsage, strings.Fields(call)...); !strings.Contains(errs, near) || strings.Count(errs, "did you mean") != 1 {
			t.Errorf("%s: %s", call, errs)
		}
	}
	if _, errs := s.must(t, ExitUsage, "job", "list", "-o", "pdf"); strings.Contains(errs, "did you mean") {
		t.Errorf("nothing is near: %s", errs)
	}
}
