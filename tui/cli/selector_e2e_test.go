package cli_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/testenv"
)

// TestSelectorNarrowsTheWatch: an agent with a selector neither hears of the
// repositories of others nor asks about them or their jobs; one that gets the
// label later is served at once.
func TestSelectorNarrowsTheWatch(t *testing.T) {
	server := testenv.Start(t, testenv.Options{})
	y, flags := realYard(t, server)
	y.repositories(2)
	repos := y.client.Resource(api.Repositories).Namespace("default")
	label := func(name, site string) {
		t.Helper()
		u, err := repos.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		u.SetLabels(map[string]string{"site": site})
		if _, err := repos.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label("r0000", "east")
	label("r0001", "west")
	h := newHome(t, flags...)
	h.daemon(t, "--repository-selector", "site=east")
	s := y.look()
	east, west := y.jobOf(0), y.jobOf(1)
	for _, u := range []*unstructured.Unstructured{west, east} {
		if _, err := y.jobs().Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if ended := <-s.gone; ended != east.GetName() {
		t.Fatalf("%s ended first", ended)
	}
	shown := ""
	until(t, "the agent shows its repository", func() bool {
		shown = h.snapshot(t)
		return strings.Contains(shown, `"name":"r0000"`)
	})
	if strings.Contains(shown, `"name":"r0001"`) {
		t.Errorf("the agent shows a repository of others: %s", shown)
	}
	for _, r := range server.Requests(t, 0) {
		if strings.HasPrefix(r.Agent, "limpet") && (strings.Contains(r.Path, "r0001") || strings.Contains(r.Path, west.GetName())) {
			t.Errorf("the agent asked: %s", r)
		}
	}
	began := time.Now()
	label("r0001", "east")
	y.await("the job of the repository that came", s.gone, 1)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s, as long as the periodic look", took)
	}
}

// jobOf is a no-op job of one repository.
func (y *yard) jobOf(repo int) *unstructured.Unstructured {
	for {
		u := y.job()
		if int(y.posted.Load())%y.repos == repo {
			return u
		}
	}
}

// snapshot is what the daemon shows, as JSON.
func (h *home) snapshot(t *testing.T) string {
	t.Helper()
	tr := control.Transport(filepath.Join(filepath.Dir(h.state()), "limpet.sock"))
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(control.BaseURL + "/limpet/v1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
