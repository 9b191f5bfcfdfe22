package manifests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

const canaryOne, canaryTwo = "s3cr3t-canary-one", "s3cr3t-canary-two"

// rig is a manifest directory and its applier to an embedded API.
type rig struct {
	*testing.T
	server *apiserver.Server
	client *kube.Client
	dir    string
	m      *Applier
	Options
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	s := &rig{T: t, dir: t.TempDir()}
	if s.server, err = apiserver.New(store, apiserver.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.client, err = kube.Connect(t.Context(), kube.Config{Server: "http://limpet", Transport: s.server.Transport()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.client.Close()
		if err := errors.Join(s.server.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	s.Options = Options{Client: s.client, Store: store, Dir: s.dir, Validation: metav1.FieldValidationStrict,
		Logger: slog.New(slog.DiscardHandler)}
	s.restart()
	return s
}

func (s *rig) restart() {
	s.Helper()
	var err error
	if s.m, err = New(s.Context(), s.Options); err != nil {
		s.Fatal(err)
	}
	s.m.interval = 20 * time.Millisecond
	s.m.lookup = func(name string) (string, bool) { return canaryOne, name == "TOKEN" }
}

func (s *rig) repository(name string) (*unstructured.Unstructured, error) {
	return s.client.Resource(api.Repositories).Namespace("default").Get(s.Context(), name, metav1.GetOptions{})
}

// patch changes a repository as another client.
func (s *rig) patch(name, body string) {
	s.Helper()
	_, err := s.client.Resource(api.Repositories).Namespace("default").
		Patch(s.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *rig) field(name string, path ...string) any {
	s.Helper()
	repo, err := s.repository(name)
	if err != nil {
		s.Fatal(err)
	}
	value, _, _ := unstructured.NestedFieldNoCopy(repo.Object, path...)
	return value
}

// token returns the token of the repository "dashboards".
func (s *rig) token() string {
	s.Helper()
	plain, err := s.server.SecretOf(s.Context(), "repositories", "default", "dashboards", "token", "")
	if err != nil {
		s.Fatal(err)
	}
	return string(plain)
}

// write replaces a file at once: no pass finds it empty.
func (s *rig) write(name, text string) {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := errors.Join(os.WriteFile(path+".part", []byte(text), 0o600), os.Rename(path+".part", path)); err != nil {
		s.Fatal(err)
	}
}

func (s *rig) remove(name string) {
	s.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.Fatal(err)
	}
}

// apply does one pass that must find no fault.
func (s *rig) apply() result {
	s.Helper()
	r := s.m.runOnce(s.Context())
	for _, problem := range r.problems {
		s.Errorf("problem: %v", problem)
	}
	return r
}

// prune does the pass that deletes what no file declares for half a minute, and returns how much
// that is.
func (s *rig) prune() int {
	s.Helper()
	for k := range s.m.gone {
		s.m.gone[k] = s.m.gone[k].Add(-healInterval)
	}
	return s.apply().deleted
}

// there reports whether a repository is there.
func (s *rig) there(name string) bool {
	s.Helper()
	_, err := s.repository(name)
	return err == nil
}

func repositoryYAML(name, rest string) string {
	return "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: " + name + "}\n" +
		"spec: {type: git, git: {url: https://host/" + name + ", branch: main}, sync: {enabled: true, target: folder}}\n" + rest
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.write("site.yaml", "# a site\n"+repositoryYAML("dashboards", "secure: {token: {create: '$__env{TOKEN}'}}\n")+"---\n"+
		goodConnectionDocument+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: other}\nstringData: {token: '${TOKEN}'}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
	s.write("notes.txt", "not a manifest")
	s.write(".hidden.yaml", "kind: [")
	r := s.apply()
	if r.applied != 3 || r.deleted != 0 || len(r.warnings) != 1 || !strings.Contains(r.warnings[0], "Deployment") {
		t.Errorf("first pass: %+v", r)
	}
	if s.token() != canaryOne {
		t.Errorf("token = %q", s.token())
	}
	if from := s.field("dashboards", "metadata", "annotations", api.AnnoManifest); from != "site.yaml" {
		t.Errorf("annotation %v", from)
	}
	secret := func() error {
		_, err := s.client.Resource(api.Secrets).Namespace("other").Get(t.Context(), "s", metav1.GetOptions{})
		return err
	}
	if err := secret(); err != nil {
		t.Error(err)
	}
	version := s.field("dashboards", "metadata", "resourceVersion")
	if r := s.apply(); r.applied != 0 || len(r.warnings) != 0 {
		t.Errorf("a pass without changes: %+v", r)
	}

	// A new life applies all files again, and that changes nothing.
	s.restart()
	if r := s.apply(); r.applied != 3 || r.deleted != 0 {
		t.Errorf("after a restart: %+v", r)
	}
	if s.field("dashboards", "metadata", "resourceVersion") != version {
		t.Error("applying the same file again is a change")
	}

	// The change of another client is undone with the next change of the file;
	// what the file does not say stays, and so does a secret value that it said.
	s.patch("dashboards", `{"spec":{"git":{"branch":"dev"},"title":"mine"}}`)
	s.write("site.yaml", repositoryYAML("dashboards", ""))
	if r, n := s.apply(), s.prune(); r.applied != 1 || r.deleted != 0 || n != 2 {
		t.Errorf("after a change: %+v, then %d deleted", r, n)
	}
	if s.field("dashboards", "spec", "git", "branch") != "main" || s.field("dashboards", "spec", "title") != "mine" || s.token() != canaryOne {
		t.Errorf("spec %v, token %q", s.field("dashboards", "spec"), s.token())
	}
	if err := secret(); !apierrors.IsNotFound(err) {
		t.Errorf("what the file no longer declares: %v", err)
	}
}

const goodConnectionDocument = `apiVersion: provisioning.grafana.app/v0alpha1
kind: Connection
metadata: {name: github-app, namespace: default}
spec: {title: GitHub App, type: github, url: https://github.com, github: {appID: "123456", installationID: "454545"}}
`

func TestFaults(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.write("a.yaml", repositoryYAML("a", ""))
	s.write("b.yaml", repositoryYAML("b", "")+"---\n"+repositoryYAML("c", ""))
	s.apply()
	for _, c := range []struct{ name, text, fault string }{
		{"YAML", repositoryYAML("b", "") + "---\nkind: [\n", "b.yaml:"},
		{"a value", repositoryYAML("b", "") + "---\n" + strings.Replace(repositoryYAML("new", ""), "target: folder", "target: root", 1),
			"b.yaml: document 2: "},
		{"a variable", repositoryYAML("b", "secure: {token: {create: '${ABSENT}'}}\n"), "environment variable ABSENT is not set"},
		{"an unknown member", repositoryYAML("b", "") + "---\n" + repositoryYAML("new", "sepc: {}\n"), `b.yaml:10: sepc: unknown field (did you mean "spec"?)`},
		{"empty", "", "no object is declared"},
		{"a mistyped kind", strings.Replace(repositoryYAML("b", ""), "Repository", "Repositry", 1), "Repositry is no kind"},
		{"a mistyped group", strings.Replace(repositoryYAML("b", ""), "provisioning", "provisoning", 1), "Repository is no kind"},
		{"the same object in two files", repositoryYAML("a", ""), "is declared before, in a.yaml: document 1"},
		{"the same object twice", repositoryYAML("b", "") + "---\n" + repositoryYAML("b", ""), "is declared before, in b.yaml: document 1"},
	} {
		s.write("b.yaml", c.text)
		s.write("a.yaml", strings.Replace(repositoryYAML("a", ""), "folder}", "folder, intervalSeconds: 77}", 1))
		r := s.m.runOnce(t.Context())
		if len(r.problems) != 1 || !strings.Contains(r.problems[0].Error(), c.fault) {
			t.Errorf("%s: problems %v, want %q", c.name, r.problems, c.fault)
		}
		if s.field("a", "spec", "sync", "intervalSeconds") != int64(77) {
			t.Errorf("%s: the good file is not applied", c.name)
		}
		if !s.there("b") || !s.there("c") || s.there("new") {
			t.Errorf("%s: a bad file changed objects", c.name)
		}
		s.m.gone = map[key]time.Time{{api.Repositories, "default", "b"}: {}, {api.Repositories, "default", "c"}: {}}
		if again := s.m.runOnce(t.Context()); len(again.problems) != 1 || again.applied != 0 || len(s.m.gone) != 0 {
			t.Errorf("%s: second look: %+v", c.name, again)
		}
		s.write("b.yaml", repositoryYAML("b", "")+"---\n"+repositoryYAML("c", ""))
		s.write("a.yaml", repositoryYAML("a", ""))
		s.apply()
	}
	// Removing a good file deletes nothing while another is at fault.
	s.write("b.yaml", "kind: [")
	s.remove("a.yaml")
	if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || r.deleted != 0 || !s.there("a") {
		t.Errorf("deletion beside a bad file: %+v", r)
	}
	s.write("b.yaml", repositoryYAML("b", ""))
	if r, n := s.apply(), s.prune(); r.deleted != 0 || n != 2 || s.there("a") || s.there("c") || !s.there("b") {
		t.Errorf("after the repair: %+v, then %d deleted", r, n)
	}
}

// TestHeal: what others changed or deleted comes back, a released object and a job do not.
func TestHeal(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.write("a.yaml", repositoryYAML("a", "secure: {token: {create: '$__env{TOKEN}'}}\n")+"---\n"+repositoryYAML("released", "")+"---\n"+
		"apiVersion: provisioning.grafana.app/v0alpha1\nkind: Job\nmetadata: {name: once}\nspec: {action: pull, repository: a, pull: {}}\n---\n"+
		strings.Replace(repositoryYAML("newer", ""), "v0alpha1", "v1beta1", 1)+"---\n"+
		"apiVersion: dashboard.grafana.app/v2beta1\nkind: Dashboard\nmetadata: {name: newer}\nspec: {title: t}\n")
	s.apply()
	remove := func(resource schema.GroupVersionResource, name string) {
		t.Helper()
		if err := s.client.Resource(resource).Namespace("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	heal := func() []string {
		t.Helper()
		s.m.healed = s.m.healed.Add(-healInterval)
		return s.apply().healed
	}
	version := s.field("a", "metadata", "resourceVersion")
	if got := heal(); len(got) != 0 || s.field("a", "metadata", "resourceVersion") != version {
		t.Errorf("nothing was changed: %q", got)
	}
	remove(api.Jobs, "once")
	s.patch("released", `{"metadata":{"annotations":{"limpet/manifest":null}},"spec":{"title":"mine"}}`)
	s.patch("a", `{"spec":{"git":{"branch":"dev"},"title":"mine"}}`)
	if got := heal(); len(got) != 1 || s.field("a", "spec", "git", "branch") != "main" || s.field("a", "spec", "title") != "mine" ||
		s.field("released", "spec", "title") != "mine" {
		t.Errorf("changed: %q, spec %v", got, s.field("a", "spec"))
	}
	remove(api.Repositories, "a")
	if r := s.apply(); len(r.healed) != 0 || s.there("a") {
		t.Error("healed before its time")
	}
	if got := heal(); len(got) != 1 || !s.there("a") || s.field("a", "secure", "token", "name") == nil {
		t.Errorf("deleted: %q", got)
	}
	if jobs, err := s.client.Resource(api.Jobs).List(t.Context(), metav1.ListOptions{}); err != nil || len(jobs.Items) != 0 {
		t.Errorf("the job is made again: %v", err)
	}
}

// TestClashIsRetried: a file that another stood in the way of is applied when that changes.
func TestClashIsRetried(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	instance := strings.NewReplacer("target: folder", "target: instance")
	s.write("a.yaml", instance.Replace(repositoryYAML("a", "")))
	s.write("b.yaml", instance.Replace(repositoryYAML("b", "")))
	if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || !strings.Contains(r.problems[0].Error(), `b.yaml: document 1`) {
		t.Fatalf("two instances: %+v", r)
	}
	s.write("a.yaml", repositoryYAML("a", ""))
	s.apply()
	if !s.there("b") {
		t.Error("the second file is not applied")
	}
}

func TestFilesAreWatched(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.write("token", canaryOne+"\n")
	s.write("a.yaml", repositoryYAML("dashboards", "secure: {token: {create: '$__file{token}'}}\n"))
	s.apply()
	s.write("token", canaryTwo)
	if s.apply(); s.token() != canaryTwo {
		t.Errorf("token = %q after a change of its file", s.token())
	}
	s.remove("token")
	if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || s.token() != canaryTwo {
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
	if s.apply(); s.prune() != 1 || !s.there("renamed123") || s.there("dashboards") {
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
	if s.prune(); s.there("v1") {
		t.Error("what stood behind the link before is still there")
	}
}

// TestMissingMount: an empty directory at the start deletes nothing, one that becomes empty does.
func TestMissingMount(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.write("a.yaml", repositoryYAML("a", ""))
	s.apply()
	s.remove("a.yaml")
	s.restart()
	if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || !strings.Contains(r.problems[0].Error(), "kept 1 objects") || !s.there("a") {
		t.Errorf("empty at the start: %+v", r)
	}
	s.write("b.yaml", repositoryYAML("b", ""))
	s.apply()
	if s.prune(); s.there("a") || !s.there("b") {
		t.Error("with the directory back, what it does not declare is still there")
	}
	s.remove("b.yaml")
	if s.apply(); s.prune() != 1 || s.there("b") {
		t.Error("the last file is gone, its object is not")
	}
	s.write("c.yaml", repositoryYAML("c", ""))
	s.apply()
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || !s.there("c") {
		t.Errorf("directory gone: %+v", r)
	}
}

func TestReleasedObjectStays(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.write("a.yaml", repositoryYAML("a", "")+"---\n"+repositoryYAML("released", ""))
	s.apply()
	s.patch("released", `{"metadata":{"annotations":{"limpet/manifest":null}}}`)
	s.write("a.yaml", repositoryYAML("other", ""))
	s.apply()
	if s.prune() != 1 || !s.there("released") || s.there("a") {
		t.Errorf("released %v, a %v", s.there("released"), s.there("a"))
	}
}

// logLines receives each line of a log.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func TestRun(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	log := make(logLines, 100)
	s.m.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
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
	if problem := s.m.Problem(); !strings.HasPrefix(problem, "manifest not applied: a.yaml") {
		t.Errorf("the problem is %q", problem)
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

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "-absent"} {
		if _, err := New(t.Context(), Options{Dir: dir}); err == nil {
			t.Errorf("%s is accepted", dir)
		}
	}
}
