package cli

import (
	"bytes"
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

// TestShapes keeps the members of all that is printed as JSON, and that YAML says the same. Scripts rely on them.
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

// shape lists the paths of a JSON value with their types, sorted; the items of a list are put together.
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
		{"job show nothing -o json", command.ExitError, "error", `job "nothing" not found`, "limpet job list"},
		{"-ojson job show nothing", command.ExitError, "error", `job "nothing" not found`, "limpet job list"},
		{"job show nothing --json uid", command.ExitError, "error", `job "nothing" not found`, "limpet job list"},
		{"job show nothing --output=jsonl", command.ExitError, "error", `job "nothing" not found`, "limpet job list"},
		{"job lisst -o json", command.ExitUsage, "usage", "lisst", "limpet job --help"},
		{"-o json --drivers many status", command.ExitUsage, "usage", "--drivers", "limpet"},
		{"get repositoris -o json", command.ExitUsage, "usage", `did you mean "repositories"?`, "limpet get --help"},
		{"repo show nothing -o json", command.ExitError, "error", `repository "nothing" not found`, "limpet repo list"},
		{"get connection nothing -o json", command.ExitError, "error", `connection "nothing" not found`, "limpet connection list"},
		{"get job nothing -o json", command.ExitError, "error", `job "nothing" not found`, "limpet job list"},
		{"get gitrepo nothing -o json", command.ExitError, "error", `gitrepository "nothing" not found`, "limpet source list"},
		{"get secret nothing -o json", command.ExitError, "error", `secret "nothing" not found`, "limpet get secrets"},
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
	if _, errs := s.Must(t, command.ExitError, "job", "show", "nothing", "-o", "table"); !strings.HasPrefix(errs, "limpet: job ") {
		t.Errorf("a flag beats the environment: %s", errs)
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

// TestUnknownFieldsAreRefused: by apply and validate, before any object of the file is written.
func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := filepath.Join(s.Dir, "u.yaml")
	const object = "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: %s}\n" +
		"spec:\n  type: git\n  git: {url: 'https://host/a',\n    %s: main}\n  sync: {enabled: true, target: folder}\n"
	if err := os.WriteFile(file, fmt.Appendf(nil, object+"---\n"+object, "good", "branch", "typo", "brnch"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"", "--validate=strict", "--validate=true"} {
		_, errs := s.Must(t, command.ExitUsage, append([]string{"apply", "-f", file}, strings.Fields(mode)...)...)
		if !strings.Contains(errs, file+`:16: spec.git.brnch: unknown field (did you mean "branch"?)`) || !strings.Contains(errs, "--validate=warn") {
			t.Errorf("%s: %s", mode, errs)
		}
	}
	if out, _ := s.Must(t, 0, "get", "repositories", "-o", "name"); out != "" {
		t.Errorf("written all the same: %s", out)
	}
	s.Must(t, command.ExitError, "repo", "validate", file)
	broken := filepath.Join(t.TempDir(), "fuel.json")
	if err := os.WriteFile(broken, []byte("{\n\"title\": \"x\",\n\"a\" [1]\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{broken: ":3:5: not JSON", filepath.Dir(broken): "is a directory"} {
		if _, errs := s.Must(t, command.ExitUsage, "repo", "validate", path); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", path, errs)
		}
	}
	s.Must(t, 0, "repo", "validate", file, "--validate=off")
	for mode, warns := range map[string]bool{"warn": true, "off": false, "false": false, "ignore": false} {
		if _, errs := s.Must(t, 0, "apply", "-f", file, "--validate", mode); strings.Contains(errs, "u.yaml:16: spec.git.brnch") != warns {
			t.Errorf("%s: %s", mode, errs)
		}
	}
	s.Must(t, command.ExitUsage, "apply", "-f", file, "--validate=maybe")
}

func TestUnservedActionsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Apply(t, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"dash"},`+
		`"spec":{"type":"git","git":{"url":"https://host/a"},"sync":{"enabled":true,"target":"folder"}}}`)
	for call, want := range map[string]string{
		"--action frob": "fixFolderMetadata, releaseResources",
		"--action pul":  `did you mean "pull"?`,
		"--actions pull --action move --path a --target-path b/": `"pull"`,
	} {
		if _, errs := s.Must(t, command.ExitUsage, append([]string{"job", "create", "dash"}, strings.Fields(call)...)...); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", call, errs)
		}
	}
	if out, _ := s.Must(t, 0, "job", "list", "-o", "name"); out != "" {
		t.Errorf("made all the same: %s", out)
	}
}

func TestManifestsOwnTheirObjects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const object = `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"dash","annotations":` +
		`{"limpet/manifest":"site.yaml"}},"spec":{"type":"git","git":{"url":"https://host/a"},"sync":{"enabled":true,"target":"folder"}}}`
	s.Apply(t, object)
	s.Must(t, command.ExitError, "repo", "rollback", "dash", "aaaa")
	s.Must(t, command.ExitUsage, "repo", "rollback", "dash", "aaaa", "--force") // no such commit
	file := filepath.Join(s.Dir, "object.json")
	for _, call := range []string{"apply -f " + file, "repo set dash --title x", "delete repository dash --yes"} {
		if _, errs := s.Must(t, command.ExitError, strings.Fields(call)...); !strings.Contains(errs, "site.yaml") || !strings.Contains(errs, "--force") {
			t.Errorf("%s: %s", call, errs)
		}
		s.Must(t, 0, strings.Fields(call+" --force")...)
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

func TestCRDsInEveryFormat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	names, _ := s.Must(t, 0, "crds", "-o", "name")
	if !strings.Contains(names, "customresourcedefinition/jobs.provisioning.grafana.app\n") {
		t.Errorf("%s", names)
	}
	out, _ := s.Must(t, 0, "crds", "-o", "json")
	var list struct{ Items []struct{ Kind string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != strings.Count(names, "\n") ||
		list.Items[0].Kind != "CustomResourceDefinition" {
		t.Errorf("%v %+v", err, list)
	}
	out, _ = s.Must(t, 0, "crds")
	if !bytes.HasPrefix([]byte(out), []byte("---\n")) {
		t.Errorf("%.40s", out)
	}
}
