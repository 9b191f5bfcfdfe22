package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shelf is a manifest directory and its applier.
type shelf struct {
	*site
	dir string
	m   *Manifests
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{site: newSite(t), dir: t.TempDir()}
	s.restart()
	return s
}

func (s *shelf) restart() {
	s.t.Helper()
	var err error
	if s.m, err = NewManifests(s.Server, ManifestOptions{Dir: s.dir, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		s.t.Fatal(err)
	}
	s.m.interval = 20 * time.Millisecond
	s.m.lookup = func(name string) (string, bool) { return canaryOne, name == "TOKEN" }
}

func (s *shelf) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.t.Fatal(err)
	}
}

// apply does one pass that must find no fault.
func (s *shelf) apply() manifestPass {
	s.t.Helper()
	r := s.m.apply(s.t.Context())
	for _, problem := range r.Problems {
		s.t.Errorf("problem: %v", problem)
	}
	return r
}

// there reports whether a repository is there.
func (s *shelf) there(name string) bool {
	s.t.Helper()
	code, _ := s.call("GET", base+"repositories/"+name, "")
	return code == http.StatusOK
}

func repositoryYAML(name, rest string) string {
	return "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: " + name + "}\n" +
		"spec: {type: git, git: {url: https://host/a, branch: main}, sync: {enabled: true, target: folder}}\n" + rest
}

func TestManifests(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.write("site.yaml", "# a site\n"+repositoryYAML("dashboards", "secure: {token: {create: '$__env{TOKEN}'}}\n")+"---\n"+goodConnectionDocument+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: other}\nstringData: {token: '${TOKEN}'}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
	s.write("notes.txt", "not a manifest")
	s.write(".hidden.yaml", "kind: [")
	r := s.apply()
	if r.Applied != 3 || r.Deleted != 0 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "Deployment") {
		t.Errorf("first pass: %+v", r)
	}
	if s.token() != canaryOne {
		t.Errorf("token = %q", s.token())
	}
	repo := s.must("GET", base+"repositories/dashboards", "")
	if at(repo, "metadata", "annotations", annoManifest) != "site.yaml" {
		t.Errorf("annotations %v", at(repo, "metadata", "annotations"))
	}
	s.must("GET", "/api/v1/namespaces/other/secrets/s", "")
	if r := s.apply(); r.Applied != 0 || len(r.Warnings) != 0 {
		t.Errorf("a pass without changes: %+v", r)
	}

	// A new life applies all files again, and that changes nothing.
	s.restart()
	if r := s.apply(); r.Applied != 3 || r.Deleted != 0 {
		t.Errorf("after a restart: %+v", r)
	}
	if again := s.must("GET", base+"repositories/dashboards", ""); at(again, "metadata", "resourceVersion") != at(repo, "metadata", "resourceVersion") {
		t.Error("applying the same file again is a change")
	}

	// What somebody else changed comes back with the next change of the file;
	// what the file does not say stays.
	s.must("PATCH", base+"repositories/dashboards", `{"spec":{"git":{"branch":"dev"},"title":"mine"}}`)
	s.write("site.yaml", repositoryYAML("dashboards", ""))
	if r := s.apply(); r.Applied != 1 || r.Deleted != 2 {
		t.Errorf("after a change: %+v", r)
	}
	repo = s.must("GET", base+"repositories/dashboards", "")
	if at(repo, "spec", "git", "branch") != "main" || at(repo, "spec", "title") != "mine" || s.token() != canaryOne {
		t.Errorf("repository %v, token %q", repo["spec"], s.token())
	}
	if code, _ := s.call("GET", "/api/v1/namespaces/other/secrets/s", ""); code != http.StatusNotFound {
		t.Errorf("what the file no longer declares is still there: %d", code)
	}
	s.canary(canaryOne)
}

const goodConnectionDocument = `apiVersion: provisioning.grafana.app/v0alpha1
kind: Connection
metadata: {name: github-app, namespace: default}
spec: {title: GitHub App, type: github, url: https://github.com, github: {appID: "123456", installationID: "454545"}}
`

func TestManifestFaults(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.write("a.yaml", repositoryYAML("a", ""))
	s.write("b.yaml", repositoryYAML("b", "")+"---\n"+repositoryYAML("c", ""))
	s.apply()
	for _, c := range []struct{ name, text, fault string }{
		{"YAML", repositoryYAML("b", "") + "---\nkind: [\n", "b.yaml:"},
		{"a value", repositoryYAML("b", "") + "---\n" + strings.Replace(repositoryYAML("new", ""), "target: folder", "target: root", 1), "b.yaml:6: document 2: "},
		{"a variable", repositoryYAML("b", "secure: {token: {create: '${ABSENT}'}}\n"), "environment variable ABSENT is not set"},
		{"an unknown member", repositoryYAML("b", "sepc: {}\n"), "sepc"},
		{"the same object in two files", repositoryYAML("a", ""), "is declared before, in a.yaml:1"},
		{"the same object twice", repositoryYAML("b", "") + "---\n" + repositoryYAML("b", ""), "is declared before, in b.yaml:1"},
	} {
		s.write("b.yaml", c.text)
		s.write("a.yaml", strings.Replace(repositoryYAML("a", ""), "folder}", "folder, intervalSeconds: 77}", 1))
		r := s.m.apply(t.Context())
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), c.fault) {
			t.Errorf("%s: problems %v, want %q", c.name, r.Problems, c.fault)
		}
		if at(s.must("GET", base+"repositories/a", ""), "spec", "sync", "intervalSeconds") != float64(77) {
			t.Errorf("%s: the good file is not applied", c.name)
		}
		if !s.there("b") || !s.there("c") || s.there("new") {
			t.Errorf("%s: a bad file changed objects", c.name)
		}
		if again := s.m.apply(t.Context()); len(again.Problems) != 1 || again.Applied != 0 {
			t.Errorf("%s: second look: %+v", c.name, again)
		}
		s.write("b.yaml", repositoryYAML("b", "")+"---\n"+repositoryYAML("c", ""))
		s.write("a.yaml", repositoryYAML("a", ""))
		s.apply()
	}
	// Removing a good file deletes nothing while another is at fault.
	s.write("b.yaml", "kind: [")
	s.remove("a.yaml")
	if r := s.m.apply(t.Context()); len(r.Problems) != 1 || r.Deleted != 0 || !s.there("a") {
		t.Errorf("deletion beside a bad file: %+v", r)
	}
	s.write("b.yaml", repositoryYAML("b", ""))
	if r := s.apply(); r.Deleted != 2 || s.there("a") || s.there("c") || !s.there("b") {
		t.Errorf("after the repair: %+v", r)
	}
}

// TestManifestClashIsRetried: a file that another stood in the way of is applied
// when that changes.
func TestManifestClashIsRetried(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	instance := strings.NewReplacer("target: folder", "target: instance")
	s.write("a.yaml", instance.Replace(repositoryYAML("a", "")))
	s.write("b.yaml", instance.Replace(repositoryYAML("b", "")))
	if r := s.m.apply(t.Context()); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), `b.yaml:1`) {
		t.Fatalf("two instances: %+v", r)
	}
	s.write("a.yaml", repositoryYAML("a", ""))
	s.apply()
	if !s.there("b") {
		t.Error("the second file is not applied")
	}
}

func TestManifestFilesAreWatched(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.write("token", canaryOne+"\n")
	s.write("a.yaml", repositoryYAML("dashboards", "secure: {token: {create: '$__file{token}'}}\n"))
	s.apply()
	s.write("token", canaryTwo)
	if s.apply(); s.token() != canaryTwo {
		t.Errorf("token = %q after a change of its file", s.token())
	}
	s.remove("token")
	if r := s.m.apply(t.Context()); len(r.Problems) != 1 || s.token() != canaryTwo {
		t.Errorf("without the file: %+v, token %q", r, s.token())
	}
	s.write("token", canaryOne)
	if s.apply(); s.token() != canaryOne {
		t.Errorf("token = %q after the file came back", s.token())
	}

	// An editor's rename with the old time, and Kubernetes' swap of a link.
	info, err := os.Stat(filepath.Join(s.dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.write("a.yaml.new", repositoryYAML("renamed123", "secure: {token: {create: '$__file{token}'}}\n"))
	if err := os.Chtimes(filepath.Join(s.dir, "a.yaml.new"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.dir, "a.yaml.new"), filepath.Join(s.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if s.apply(); !s.there("renamed123") || s.there("dashboards") {
		t.Error("a rename is not seen")
	}
	s.remove("a.yaml")
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(s.dir, ".."+version), 0o700); err != nil {
			t.Fatal(err)
		}
		s.write(filepath.Join(".."+version, "a.yaml"), repositoryYAML(version, ""))
		if err := os.Symlink(".."+version, filepath.Join(s.dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(s.dir, "..tmp"), filepath.Join(s.dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if version == "v1" {
			if err := os.Symlink("..data/a.yaml", filepath.Join(s.dir, "a.yaml")); err != nil {
				t.Fatal(err)
			}
		}
		if s.apply(); !s.there(version) {
			t.Errorf("%s behind a link is not applied", version)
		}
	}
	if s.there("v1") {
		t.Error("what stood behind the link before is still there")
	}
}

// TestManifestsMissingMount: an empty directory at the start deletes nothing,
// one that becomes empty does.
func TestManifestsMissingMount(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.write("a.yaml", repositoryYAML("a", ""))
	s.apply()
	s.remove("a.yaml")
	s.restart()
	if r := s.m.apply(t.Context()); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), "kept 1 objects") || !s.there("a") {
		t.Errorf("empty at the start: %+v", r)
	}
	s.write("b.yaml", repositoryYAML("b", ""))
	s.apply()
	if s.there("a") || !s.there("b") {
		t.Error("with the directory back, what it does not declare is still there")
	}
	s.remove("b.yaml")
	if s.apply(); s.there("b") {
		t.Error("the last file is gone, its object is not")
	}
	s.write("c.yaml", repositoryYAML("c", ""))
	s.apply()
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if r := s.m.apply(t.Context()); len(r.Problems) != 1 || !s.there("c") {
		t.Errorf("directory gone: %+v", r)
	}
}

func TestManifestsKeepWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.must("POST", base+"repositories", repositoryJSON(`{}`))
	s.write("a.yaml", repositoryYAML("a", "")+"---\n"+repositoryYAML("released", ""))
	s.apply()
	s.must("PATCH", base+"repositories/released", `{"metadata":{"annotations":{"limpet/manifest":null}}}`)
	s.write("a.yaml", repositoryYAML("other", ""))
	s.apply()
	if !s.there("dashboards") || !s.there("released") || s.there("a") {
		t.Errorf("dashboards %v, released %v, a %v", s.there("dashboards"), s.there("released"), s.there("a"))
	}
}

// logLines receives each line of a log.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func TestManifestsRun(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	log := make(logLines, 100)
	s.m.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.m.Run(ctx) }()
	wait := func(what string, done func() bool) {
		t.Helper()
		deadline := time.NewTimer(5 * time.Second)
		defer deadline.Stop()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !done() {
			select {
			case <-tick.C:
			case <-deadline.C:
				t.Fatalf("%s: not within 5 s", what)
			}
		}
	}
	for i := range 3 {
		name := fmt.Sprintf("r%d", i)
		s.write("a.yaml", repositoryYAML(name, ""))
		wait(name, func() bool { return s.there(name) })
	}
	s.write("a.yaml", "kind: [")
	if line := <-log; !strings.Contains(line, "manifest not applied") || !strings.Contains(line, "a.yaml") {
		t.Errorf("the fault is logged as %s", line)
	}
	if told := s.m.Problem(); !strings.HasPrefix(told, "manifest not applied: a.yaml") {
		t.Errorf("the problem is %q", told)
	}
	s.write("b.yaml", repositoryYAML("b", "")) // a pass that meets the same fault again
	wait("the good file", func() bool { return s.there("b") })
	s.write("a.yaml", repositoryYAML("r9", ""))
	wait("repair", func() bool { return s.there("r9") })
	wait("no problem", func() bool { return s.m.Problem() == "" })
	stop()
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	if len(log) > 0 {
		t.Errorf("logged again: %s", <-log)
	}
}

func TestNewManifestsRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "-absent"} {
		if _, err := NewManifests(s.Server, ManifestOptions{Dir: dir}); err == nil {
			t.Errorf("%s is accepted", dir)
		}
	}
}
