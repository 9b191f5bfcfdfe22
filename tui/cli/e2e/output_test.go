package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	"github.com/google/jsonschema-go/jsonschema"

	"limpet/sync/testenv"
)

// schemas are those of testdata/schema, by the name of their file. They are the contract of -o
// json: a member that is not named there does not come, unless the schema says that the object is
// open.
type schemas map[string]*jsonschema.Resolved

var schemaDir = filepath.Join("..", "..", "..", "testdata", "schema")

func readSchemas(t *testing.T) schemas {
	t.Helper()
	read := func(name string) (*jsonschema.Schema, error) {
		data, err := os.ReadFile(filepath.Join(schemaDir, name))
		if err != nil {
			return nil, err
		}
		s := new(jsonschema.Schema)
		return s, json.Unmarshal(data, s)
	}
	files, err := os.ReadDir(schemaDir)
	if err != nil {
		t.Fatal(err)
	}
	out := schemas{}
	for _, f := range files {
		s, err := read(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := s.Resolve(&jsonschema.ResolveOptions{BaseURI: "https://limpet.test/" + f.Name(),
			Loader: func(u *url.URL) (*jsonschema.Schema, error) {
				return read(filepath.Base(u.Path))
			}})
		if err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		out[strings.TrimSuffix(f.Name(), ".json")] = resolved
	}
	return out
}

// keeps fails the test unless text is one JSON value that keeps a schema.
func (s schemas) keeps(t *testing.T, schema, text string) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("not one document: %v\n%s", err, text)
		return
	}
	one := s[schema]
	if one == nil {
		t.Errorf("there is no testdata/schema/%s.json", schema)
		return
	}
	if err := one.Validate(v); err != nil {
		t.Errorf("does not keep the schema %s: %v\n%s", schema, err, tail(text, 2_000))
	}
}

// lines fails the test unless each line of text is a document that keeps the schema
// of streams. It returns their types without repeats.
func (s schemas) lines(t *testing.T, text string) (types []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		s.keeps(t, "stream", line)
		var one struct{ Type string }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		types = append(types, one.Type)
	}
	return slices.Compact(types)
}

// undocumented are the commands that print no document: they run until they are told to end, or
// speak to a person.
var undocumented = map[string]string{
	"completion": "prints a script for a shell", "man": "prints a page for man", "api": "serves", "demo": "serves",
	"logs": "prints the lines of the agent as they are", "relay": "speaks to another limpet", "dashboard": "is the screen; off a terminal it is status",
}

// TestEveryCommandKeepsItsSchema calls each command of the built program with -o
// json, beside a daemon that works. A command that is not called here fails it.
func TestEveryCommandKeepsItsSchema(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	known := readSchemas(t)
	h := newHome(t)
	gate := newGate(t, 3)
	objects := h.file(t, "objects.yaml",
		"apiVersion: provisioning.grafana.app/v0alpha1\nkind: Connection\nmetadata: {name: lab, namespace: default}\n"+
			"spec: {title: Lab, type: gitlab, url: 'https://127.0.0.1:1'}\nsecure: {token: {create: glpat-1}}\n---\n"+
			"apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: near, namespace: default}\n"+
			"spec: {title: Near, type: gitlab, gitlab: {url: 'https://127.0.0.1:1/ops/near', branch: main}, connection: {name: lab}, sync: {enabled: false, target: folder}}\n---\n"+
			"apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: flux, namespace: default}\nspec: {url: 'https://127.0.0.1:1/ops/flux', interval: 5m}\n")
	called := map[string]bool{}
	call := func(code int, schema, command string, args ...string) string {
		t.Helper()
		called[command] = true
		r := h.must(t, code, append(append(strings.Fields(command), args...), "-o", "json")...)
		known.keeps(t, schema, r.out)
		if code != 0 {
			last := strings.Split(strings.TrimSpace(r.err), "\n")
			known.keeps(t, "error", last[len(last)-1])
		}
		return r.out
	}
	call(0, "status", "status") // without a state file
	boards := testenv.Repo(t, 1, 3)
	origin := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", boards.Dir)
	call(0, "repository", "repo create", "boards", "--url", origin, "--branch", testenv.Branch, "--interval", "1h")
	call(0, "suspension", "repo suspend", "boards") // an agent that looks after nothing suspends nothing
	call(0, "resumed", "repo resume", "boards")
	h.must(t, 0, "job", "create", "boards")
	call(exitError, "status", "status") // a job waits for an agent
	h.must(t, 0, "job", "cancel", "boards-sync")
	h.daemon(t, "--controllers", "off", "--notify", "exec:/bin/cat") // only this test creates jobs
	call(0, "version", "version")
	call(0, "objects", "crds")
	call(0, "objects", "manifests")
	call(0, "config-path", "config path")
	call(0, "config-written", "config init")
	call(0, "config-verdict", "config validate")
	call(0, "settings", "config show")
	call(0, "service-unit", "monitoring dashboards", "cluster")
	for _, name := range []string{"ksm", "rules", "podmonitor", "scrape"} {
		call(0, "service-unit", "monitoring "+name)
	}
	call(0, "boards", "monitoring dashboards")
	call(0, "boards-written", "monitoring dashboards", "--dir", h.dir)
	units := filepath.Join(h.dir, "units")
	call(0, "service-unit", "service print", "--user")
	call(0, "service-change", "service install", "--user", "--unit-dir", units)
	call(0, "service-change", "service uninstall", "--unit-dir", units)
	call(0, "objects", "apply", "-f", objects)
	call(0, "ended", "repo pull", "boards", "--full", "--wait")
	call(0, "files", "repo files", "boards")
	call(0, "drift", "repo diff", "boards")
	call(0, "object", "repo set", "boards", "--interval", "2h")
	boards.Edit(t, boards.Dashboards()[0].Path)
	call(0, "ended", "repo pull", "boards", "--wait")
	call(0, "source-diff", "job diff", h.history(t)[0].UID)
	call(1, "faults", "validate", h.file(t, "broken.json", "{"))
	call(0, "object", "repo rollback", "boards", "--to-previous")
	h.env = append(h.env, "EDITOR=true")
	call(0, "edited", "edit", "repository", "boards", "--yes")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	call(0, "job", "job create", "gated")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	call(0, "job", "job show", "gated-sync")
	call(0, "log", "job logs", "gated-sync")
	call(0, "jobs", "job list")
	call(0, "cancelled", "job cancel", "gated-sync")
	until(t, "the job is cancelled", func() bool { return !h.daemonWorks(t) })
	uid := h.history(t)[0].UID
	again := call(0, "job", "job retry", uid)
	var job struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal([]byte(again), &job); err != nil {
		t.Fatal(err)
	}
	called["job watch"] = true
	for _, c := range []struct {
		args  []string
		first string
		types []string
	}{
		{[]string{"job", "watch", job.Metadata.Name}, "job", []string{"job", "ended"}},
		{[]string{"repo", "pull", "gated", "--full", "--yes", "--follow"}, "log", []string{"job", "log", "ended"}},
	} {
		tt := h.terminal(t, append(c.args, "-q", "-o", "json")...)
		tt.shows(t, `"type":"`+c.first+`"`)
		gate.open()
		if code := tt.exit(t); code != exitPartial { // the boards are those of the other repository
			t.Errorf("%v: exit %d", c.args, code)
		}
		gate.shut()
		out, failure, _ := strings.Cut(tt.Raw(), `{"type":"error"`)
		known.keeps(t, "error", `{"type":"error"`+failure)
		types := known.lines(t, out)
		for _, want := range c.types {
			if !slices.Contains(types, want) || types[len(types)-1] != "ended" {
				t.Errorf("%v prints %v", c.args, types)
			}
		}
	}
	call(0, "record", "job logs", uid)
	call(0, "records", "history list")
	call(0, "records", "history export")
	call(0, "record", "history show", uid)
	call(0, "record", "job show", uid)
	call(0, "repositories", "repo list")
	call(0, "repository", "repo show", "boards")
	call(0, "objects", "get", "repositories")
	call(0, "object", "get", "repository", "boards")
	call(0, "page", "repo open", "boards", "--print")
	call(0, "trial", "repo test", "boards")
	call(1, "trial", "repo test", "near")
	call(0, "verdicts", "repo validate", objects)
	call(0, "connections", "connection list")
	call(0, "connection", "connection show", "lab")
	call(1, "trial", "connection test", "lab")
	call(0, "sources", "source list")
	call(0, "source", "source show", "flux")
	call(1, "trial", "source test", "flux")
	call(0, "source", "source suspend", "flux")
	call(0, "artifact", "source get", packed(t, h, "flux"), "--file", filepath.Join(h.dir, "flux.tar.gz"))
	call(0, "source", "source resume", "flux")
	call(0, "source", "source reconcile", "flux")
	bundle := filepath.Join(h.dir, "x.bundle")
	for kind, name := range map[string]string{"repo": "boards", "source": "made"} {
		if kind == "source" {
			call(0, "object", "source create", name, "--url", origin, "--branch", testenv.Branch, "--wait")
			boards.Edit(t, boards.Dashboards()[1].Path)
			h.must(t, 0, "source", "reconcile", name, "--wait")
			call(0, "source-diff", "source diff", name)
		}
		dir := filepath.Join(h.dir, "carried-"+kind)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		call(0, "bundle-written", kind+" export", name, "--file", bundle)
		h.must(t, 0, kind, "create", "carried", "--url", "bundle://"+dir, "--branch", testenv.Branch)
		call(0, "bundle-taken", kind+" import", bundle, "carried")
	}
	call(0, "deleted", "source delete", "carried", "--yes")
	sites := h.file(t, "sites.yaml", "contexts:\n- {name: near, state: "+h.state()+"}\n- {name: far, provisioning-server-url: 'https://127.0.0.1:1'}\n")
	call(1, "fleet", "fleet status", "--config", sites)
	call(0, "notified", "notify test")
	call(0, "drained", "drain")
	call(0, "drained", "drain", "--off")
	known.keeps(t, "status", h.run(t, "status", "-o", "json").out)
	if err := os.Chmod(filepath.Dir(h.state()), 0o722); err != nil {
		t.Fatal(err)
	}
	if out := call(1, "diagnosis", "doctor", "--fix"); !strings.Contains(out, `"before": "mode 0722"`) {
		t.Errorf("doctor --fix: %s", out)
	}
	call(0, "store-info", "store info")
	call(0, "store-check", "store check")
	call(0, "store-compact", "store compact")
	call(0, "store-backup", "store backup", filepath.Join(h.dir, "copy.db"))
	call(0, "deleted", "delete", "connection", "lab", "--force")
	call(0, "pruned", "history prune", "--keep", "0")
	for command, schema := range map[string]string{"job list": "jobs", "history list": "records", "history export": "records",
		"get historicjobs": "objects", "connection list": "connections", "source list": "sources"} {
		if out := call(0, schema, command, "-n", "nowhere"); strings.Join(strings.Fields(out), "") != `{"items":[]}` {
			t.Errorf("%s of nothing: %s", command, out)
		}
	}
	// A command is the head of a paragraph; its examples, in the same type, are not.
	commands := regexp.MustCompile(`(?m)^\.TP\n\\fBlimpet ([a-z -]+)\\fR`).FindAllStringSubmatch(h.must(t, 0, "man").out, -1)
	if len(commands) < 40 {
		t.Errorf("the manual names %d commands", len(commands))
	}
	for _, m := range commands {
		command := m[1]
		if !called[command] && undocumented[command] == "" {
			t.Errorf("limpet %s is called by no line of this test: give it one, and its output a schema in testdata/schema", command)
		}
	}
}

// daemonWorks says that the daemon of a home runs a job.
func (h *home) daemonWorks(t *testing.T) bool {
	t.Helper()
	var rep struct {
		Live struct{ Counts struct{ Working int } }
	}
	r := h.run(t, "status", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, r.out))
	}
	return rep.Live.Counts.Working > 0
}
