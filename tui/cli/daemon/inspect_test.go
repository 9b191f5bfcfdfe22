package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/tui/cli/command"
)

// TestManifestAndTest: a dashboard gets the object that it names by UID, also when its
// name is that of another one by now; of a finished job it gets the record.
func TestManifestAndTest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Record(t, state.Record{UID: "gone", Namespace: "default", Name: "a-sync", Repository: "a", Action: "pull", State: "error",
		Message: "GET https://bot:hunter2secret@git.lab/x.git: 401"})
	s.Daemon(t, func(c *agent.Config) { c.Sources = "off" }) // whose controller edits, too
	s.Must(t, 0, "repo", "create", "a", "--url", "https://git.example.com/x.git", "--disabled")
	client, err := control.Attach(t.Context(), agent.SocketPath(s.Env["LIMPET_STATE"]))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := kube.Connect(t.Context(), kube.Config{Server: control.BaseURL, Transport: client.Transport(),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	create := func(resource command.Resource, kind, name string, spec map[string]any) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetAPIVersion(resource.GroupVersion().String())
		u.SetKind(kind)
		u.SetName(name)
		if _, err := server.Resource(resource).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	src := daemonSource{client.Watch(t.Context()), nil}
	repository := snapshot.Subject{Kind: snapshot.SubjectRepository, Namespace: "default", Name: "a"}
	text, err := src.Manifest(t.Context(), repository)
	if err != nil || !strings.Contains(text, "kind: Repository\n") || !strings.Contains(text, "  name: a\n") ||
		strings.Contains(text, "managedFields") {
		t.Errorf("%v: %s", err, text)
	}
	found, err := src.Test(t.Context(), repository)
	if err != nil || len(found) < 2 || found[0].Result != "ok" || found[0].Name == "" {
		t.Errorf("%+v, %v", found, err)
	}
	repository.UID = "another"
	if _, err := src.Manifest(t.Context(), repository); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("of another UID: %v", err)
	}
	if _, err := src.Test(t.Context(), repository); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("a test of another UID: %v", err)
	}
	create(api.GitRepositories, "GitRepository", "from", map[string]any{"url": "https://bot:hunter2secret@git.lab/x.git", "interval": "1m"})
	text, err = src.Manifest(t.Context(), snapshot.Subject{Kind: snapshot.SubjectSource, Namespace: "default", Name: "from"})
	if err != nil || !strings.Contains(text, "@git.lab/x.git\n") || strings.Contains(text, "hunter2secret") {
		t.Errorf("an address with a password: %v, %s", err, text)
	}
	edit := snapshot.Edit{Subject: snapshot.Subject{Kind: snapshot.SubjectSource, Namespace: "default", Name: "from"}}
	read, err := src.Edit(t.Context(), edit)
	if edit.Before, edit.After = read.Text, strings.Replace(read.Text, "1m", "2m", 1); err != nil || strings.Contains(read.Text, "hunter2secret") {
		t.Errorf("the text to edit: %v, %s", err, read.Text)
	}
	for _, edit.Apply = range []bool{false, true} { // each finds the object as it was read
		if out, err := src.Edit(t.Context(), edit); err != nil || out.Diff.Added != 1 || out.Diff.Deleted != 1 {
			t.Errorf("apply %t: %+v, %v", edit.Apply, out.Diff, err)
		}
	}
	u, err := server.Resource(api.GitRepositories).Namespace("default").Get(t.Context(), "from", metav1.GetOptions{})
	if err != nil || u.Object["spec"].(map[string]any)["interval"] != "2m" || !strings.Contains(fmt.Sprint(u.Object), "bot:hunter2secret@") {
		t.Errorf("after the edit: %v, %v", u, err)
	}
	if _, err := src.Edit(t.Context(), edit); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("an edit of a text that is out of date: %v", err)
	}
	job := snapshot.Subject{Kind: snapshot.SubjectJob, Namespace: "default", Name: "a-sync", UID: "gone"}
	s.Must(t, 0, "drain") // so that a job stays in the queue
	for _, queued := range []bool{false, true} {
		if queued {
			create(api.Jobs, "Job", "a-sync", map[string]any{"action": "pull", "repository": "a", "pull": map[string]any{}})
		}
		text, err := src.Manifest(t.Context(), job)
		if err != nil || !strings.Contains(text, "uid: gone\n") || strings.Contains(text, "hunter2secret") {
			t.Errorf("the record, another job queued %t: %v, %s", queued, err, text)
		}
	}
	job.UID = "never"
	if _, err := src.Manifest(t.Context(), job); !errors.Is(err, control.ErrNoRecord) {
		t.Errorf("of no record: %v", err)
	}
	job.UID = ""
	if text, err := src.Manifest(t.Context(), job); err != nil || !strings.Contains(text, "kind: Job\n") {
		t.Errorf("of the queue: %v, %s", err, text)
	}
}
