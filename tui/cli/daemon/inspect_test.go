package daemon

import (
	"errors"
	"strings"
	"testing"

	"limpet/tui/cli/command"
	"limpet/tui/cli/history"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
)

// TestInquiries: what a dashboard asks a daemon about is the object that was meant, also
// when its name is another's by now; of a job that has ended it is the record.
func TestInquiries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Record(t, state.Record{UID: "gone", Namespace: "default", Name: "a-sync", Repository: "a", Action: "pull", State: "error", Message: "GET https://bot:hunter2secret@git.lab/x.git: 401"})
	s.Daemon(t, nil)
	s.Must(t, 0, "repo", "create", "a", "--url", "https://git.example.com/x.git", "--disabled")
	s.Must(t, 0, "get", "repository", "a", "-o", "yaml")
	client, err := control.Attach(t.Context(), agent.SocketPath(s.Env["LIMPET_STATE"]))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	src := newRemoteSource(t.Context(), client)
	repository := snapshot.Subject{Kind: snapshot.SubjectRepository, Namespace: "default", Name: "a"}
	text, err := src.Manifest(t.Context(), repository)
	if err != nil || !strings.Contains(text, "kind: Repository\n") || !strings.Contains(text, "  name: a\n") || strings.Contains(text, "managedFields") {
		t.Errorf("%v: %s", err, text)
	}
	replaced := repository
	replaced.UID = "another"
	if _, err := src.Manifest(t.Context(), replaced); err == nil || !strings.Contains(err.Error(), errReplaced.Error()) {
		t.Errorf("of another UID: %v", err)
	}
	if _, err := src.Test(t.Context(), replaced); !errors.Is(err, errReplaced) {
		t.Errorf("a test of another UID: %v", err)
	}
	found, err := src.Test(t.Context(), repository)
	if err != nil || len(found) < 2 || found[0].Result != "ok" || found[0].Name == "" {
		t.Errorf("%+v, %v", found, err)
	}
	record := snapshot.Subject{Kind: snapshot.SubjectJob, Namespace: "default", Name: "a-sync", UID: "gone"}
	text, err = src.Manifest(t.Context(), record)
	if err != nil || !strings.Contains(text, "uid: gone\n") || strings.Contains(text, "hunter2secret") {
		t.Errorf("the record: %v, %s", err, text)
	}
	record.UID = "never"
	if _, err := src.Manifest(t.Context(), record); !errors.Is(err, history.ErrNoRecord) {
		t.Errorf("of no record: %v", err)
	}
	// Another job has the name by now: the one that was meant is in the history.
	s.Must(t, 0, "drain") // so that it stays in the queue
	err = src.through(t.Context(), func(w *command.Session) error {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"url": "https://bot:hunter2secret@git.lab/x.git", "interval": "1m"}}}
		u.SetAPIVersion(api.GitRepositories.GroupVersion().String())
		u.SetKind("GitRepository")
		u.SetName("from")
		_, err := w.Client.Resource(api.GitRepositories).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err = src.Manifest(t.Context(), snapshot.Subject{Kind: snapshot.SubjectSource, Namespace: "default", Name: "from"})
	if err != nil || !strings.Contains(text, "@git.lab/x.git\n") || strings.Contains(text, "hunter2secret") {
		t.Errorf("an address with a password: %v, %s", err, text)
	}
	err = src.through(t.Context(), func(w *command.Session) error {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": "pull", "repository": "a", "pull": map[string]any{}}}}
		u.SetAPIVersion(api.Jobs.GroupVersion().String())
		u.SetKind("Job")
		u.SetName("a-sync")
		_, err := w.Client.Resource(api.Jobs).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	record.UID = "gone"
	if text, err := src.Manifest(t.Context(), record); err != nil || !strings.Contains(text, "uid: gone\n") {
		t.Errorf("beside another of its name: %v, %s", err, text)
	}
	record.Name, record.UID = "a-sync", ""
	if text, err := src.Manifest(t.Context(), record); err != nil || !strings.Contains(text, "kind: Job\n") {
		t.Errorf("of the queue: %v, %s", err, text)
	}
}
