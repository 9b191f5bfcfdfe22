package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

var update = flag.Bool("update", false, "write the golden files anew")

// seeded is a site with something of everything.
func seeded(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git", "--path", "grafana/", "--branch", "main")
	s.Must(t, 0, "repo", "create", "far", "--url", "https://git.example.com/far.git", "-n", "other")
	s.Must(t, 0, "repo", "pull", "boards", "-q")
	s.Apply(t, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Connection","metadata":{"name":"lab"},
		"spec":{"title":"Lab","type":"gitlab","url":"https://127.0.0.1:1"},"secure":{"token":{"create":"glpat-1"}}}`)
	s.Apply(t, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"near"},
		"spec":{"title":"Near","type":"gitlab","gitlab":{"url":"https://127.0.0.1:1/ops/near","branch":"main"},"connection":{"name":"lab"},"sync":{"enabled":false,"target":"folder"}}}`)
	s.Record(t, clitest.Record("u1", "default", "boards", "success", time.Hour), clitest.Record("u2", "default", "boards", "error",
		2*time.Hour))
	return s
}

// TestShapes keeps the members of all that is printed as JSON, and that YAML says the same. Scripts
// rely on them.
func TestShapes(t *testing.T) {
	t.Parallel()
	s := seeded(t)
	copyTo := filepath.Join(s.Dir, "copy.db")
	var golden strings.Builder
	for _, call := range []string{
		"status", "version", "store info", "store check", "store compact", "store backup " + copyTo,
		"source create apps --url https://git.example.com/apps.git --tag v1 --include other:a --sparse deploy --dry-run",
		"source list", "repo list", "repo show boards", "get repositories", "get repository boards", "get secrets",
		"doctor", "repo open near", "repo test near", "connection list", "connection show lab", "connection test lab",
		"job list", "job show boards-sync", "job show u1", "history list", "history list --status cancelled", "history show u1",
		"job cancel boards-sync", "job list", "job retry u1 -q", "repo pull far -q", "delete repository far", "history prune --keep 1",
		"history prune --older-than 0s", "history list",
	} {
		args := strings.Fields(call)
		// What changes something is asked once; for the rest YAML must say the same.
		reads := !slices.Contains([]string{"job cancel", "job retry", "repo pull", "delete repository", "history prune", "store compact",
			"store backup"}, strings.Join(args[:min(2, len(args))], " "))
		code := 0
		if strings.Contains(call, " test ") || call == "doctor" || call == "status" {
			code = command.ExitError // no agent runs, and no host answers
		}
		out, _ := s.Must(t, code, append(args, "-o", "json")...)
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%s: %v\n%s", call, err, out)
		}
		fmt.Fprintf(&golden, "limpet %s\n", strings.ReplaceAll(call, copyTo, "FILE"))
		for _, line := range shape("", v) {
			fmt.Fprintf(&golden, "  %s\n", line)
		}
		if !reads {
			continue
		}
		text, _ := s.Must(t, code, append(args, "-o", "yaml")...)
		var y any
		if err := yaml.Unmarshal([]byte(text), &y); err != nil || !slices.Equal(shape("", y), shape("", v)) {
			t.Errorf("%s: YAML and JSON differ (%v):\n%s%s", call, err, text, out)
		}
	}
	path := filepath.Join("..", "..", "testdata", "golden", "shapes.txt")
	if *update {
		if err := os.WriteFile(path, []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if golden.String() != string(want) {
		t.Errorf("the members have changed; if that is meant, run with -update:\n%s", golden.String())
	}
}

// shape lists the paths of a JSON value with their types, sorted; the items of a list are put
// together.
func shape(path string, v any) []string {
	set := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				set[path+" {}"] = true
			}
			for k, m := range v {
				if k == "managedFields" || k == "fieldsV1" {
					continue // Kubernetes' own
				}
				walk(strings.TrimPrefix(path+"."+k, "."), m)
			}
		case []any:
			if len(v) == 0 {
				set[path+" []"] = true
			}
			for _, m := range v {
				walk(path+"[]", m)
			}
		case nil:
			set[path+" null"] = true
		default:
			set[fmt.Sprintf("%s %s", path, strings.NewReplacer("float64", "number", "bool", "true or false").Replace(fmt.Sprintf("%T", v)))] = true
		}
	}
	walk(path, v)
	return slices.Sorted(maps.Keys(set))
}

// TestTables keeps what a person sees of each list.
func TestTables(t *testing.T) {
	t.Parallel()
	s := seeded(t)
	tests := map[string]string{
		"repo list":                           "NAMESPACE   NAME     TYPE     HEALTH      SYNC      LAST REF   SYNCED   TARGET\ndefault     boards   git      unchecked   pending   -          -        folder\ndefault     near     gitlab   unchecked   -         -          -        folder\nother       far      git      unchecked   -         -          -        folder\n",
		"repo list -n default":                "NAME     TYPE     HEALTH      SYNC      LAST REF   SYNCED   TARGET\nboards   git      unchecked   pending   -          -        folder\nnear     gitlab   unchecked   -         -          -        folder\n",
		"repo list -n default --no-headers":   "boards   git      unchecked   pending   -   -   folder\nnear     gitlab   unchecked   -         -   -   folder\n",
		"repo list -o name":                   "repository/boards\nrepository/near\nrepository/far\n",
		"repo list -n nowhere":                "NAME   TYPE   HEALTH   SYNC   LAST REF   SYNCED   TARGET\n",
		"repo list --limit 1 -o name":         "repository/boards\n",
		"repo open near":                      "https://127.0.0.1:1/ops/near/-/tree/main\n",
		"repo open boards --print":            "https://git.example.com/boards.git\n",
		"repo open far -o name":               "repository/far\n",
		"connection list -o wide":             "NAMESPACE   NAME   TYPE     HEALTH      REASON   USED BY   TOKEN   AGE   TITLE   HOST                  MESSAGE\ndefault     lab    gitlab   unchecked   -        1         -       AGE   Lab     https://127.0.0.1:1   -\n",
		"connection list -o name":             "connection/lab\n",
		"job list -o name":                    "job/boards-sync\n",
		"job list -r far":                     "NAME   REPOSITORY   ACTION   STATE   PROGRESS   AGE   MESSAGE\n",
		"history list":                        "FINISHED               REPOSITORY   ACTION   STATE     TOOK   MESSAGE   JOB\n2026-11-20T11:00:00Z   boards       pull     success   1.5s   said so   boards-sync\n2026-11-20T10:00:00Z   boards       pull     error     1.5s   said so   boards-sync\n",
		"history list -o wide --limit 1":      "NAMESPACE   FINISHED               REPOSITORY   ACTION   STATE     TOOK   MESSAGE   JOB           UID   ATTEMPTS   REF       COMMIT\ndefault     2026-11-20T11:00:00Z   boards       pull     success   1.5s   said so   boards-sync   u1    2          bbbbbbb   add peers\n",
		"history list -o name":                "u1\nu2\n",
		"history list --status error -o name": "u2\n",
		"store check -o name":                 "",
		"store info -o name":                  s.Env["LIMPET_STATE"] + "\n",
	}
	for call, want := range tests {
		out, _ := s.Must(t, 0, strings.Fields(call)...)
		if strings.HasPrefix(call, "connection") {
			out = regexp.MustCompile(`\b\d+s +`).ReplaceAllString(out, "AGE   ")
		}
		if out != want {
			t.Errorf("%s:\n%swant:\n%s", call, out, want)
		}
	}
}

func TestColumnsOfWideText(t *testing.T) {
	t.Parallel()
	got := command.Align([][]string{{"NAME", "X"}, {"漢字", "1"}, {"é\x1b[31m🙂", "2"}, {"last", ""}},
		command.ColorFunc(nil).OfColumns([]string{"NAME", "X"}, 1))
	if want := "NAME      X\n漢字      1\né[31m🙂   2\nlast\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestFields: --json gives the fields that it names, in every form of data, and null for what an
// object lacks.
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
	for call, want := range map[string]string{
		"job list --json metadata.name,stauts.state": `no field "stauts", did you mean "status"?; there are apiVersion, kind, metadata, secure, spec, status`,
		"repo show boards --json metadata.nam":       `no field "nam", did you mean "name"?`,
		"history list --json attempts.0.agnet":       `no field "agnet", did you mean "agent"?`,
		"version --json nothing":                     `no field "nothing"; there are go, version`,
		"status --json live.counts.worked":           `no field "worked"; there are done, elsewhere, pending`,
	} {
		if out, errs := s.Must(t, command.ExitUsage, strings.Fields(call)...); out != "" || !strings.Contains(errs, strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%s: %s%s", call, out, errs)
		}
	}
}

func TestReadDocuments(t *testing.T) {
	t.Parallel()
	objects, err := object.ReadDocuments("f",
		[]byte("# only a comment\n---\nkind: A\napiVersion: v1\ncount: 9007199254740993\n---\n{\"kind\":\"BList\",\"apiVersion\":\"v1\",\"items\":[{\"kind\":\"B\",\"apiVersion\":\"v1\"},{\"kind\":\"B\",\"apiVersion\":\"v1\"}]}\n---\n"))
	if err != nil || len(objects) != 3 || objects[0].Object.Object["count"] != int64(9007199254740993) ||
		objects[2].Object.GetKind() != "B" || objects[1].Where != "f: document 3" {
		t.Fatalf("%v %+v", err, objects)
	}
	const secret = "canary-in-the-file"
	for _, text := range []string{
		"", "# nothing\n", secret, "- " + secret, "a: [" + secret, "apiVersion: v1\ndata: {k: " + secret + "}\n",
		"kind: Secret\nstringData: {k: " + secret + "}\n",
		"apiVersion: v1\nkind: Secret\nkind: " + secret + "\n", "apiVersion: v1\nkind: List\nitems: [" + secret + "]\n", "\t" + secret + ": x",
		"kind: 1\napiVersion: v1\nk: " + secret,
	} {
		_, err := object.ParseObjects("f", []byte(text))
		if err == nil || strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "f") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReadDocuments(f *testing.F) {
	for _, seed := range []string{"kind: A\napiVersion: v1", "---\n---", "a: &a [*a]", "{}", "[]", "kind: List\napiVersion: v1\nitems: [{}]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := object.ReadDocuments("f", data)
		if err == nil && len(objects) == 0 {
			t.Error("neither objects nor an error")
		}
		for _, o := range objects {
			if _, err := json.Marshal(o.Object.DeepCopy().Object); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
}
