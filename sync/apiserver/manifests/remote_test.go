package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
)

// remoteRig applies to the API of another server.
func remoteRig(t *testing.T) *rig {
	t.Helper()
	s := newRig(t)
	s.Server, s.Host = "https://grafana", "edge"
	s.restart()
	return s
}

// heal does the pass that compares all objects.
func (s *rig) heal() result {
	s.m.healed = s.m.healed.Add(-healInterval)
	return s.m.runOnce(s.Context())
}

// owned returns the owner annotation of a repository.
func (s *rig) owned(name string) any {
	s.Helper()
	return s.field(name, "metadata", "annotations", api.AnnoManifestOwner)
}

// TestRemoteSecret: a value that cannot be read back is sent when the file or the URL has another
// one, when the object has lost it, and to an object that was made anew.
func TestRemoteSecret(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.between()
	secure := "secure: {token: {create: '$__env{TOKEN}'}}\n"
	s.write("a.yaml", repositoryYAML("dashboards", secure))
	s.apply()
	if s.token() != canaryOne || !strings.HasPrefix(s.owned("dashboards").(string), "edge-") {
		t.Errorf("token %q of owner %v", s.token(), s.owned("dashboards"))
	}
	// The secrets of the server cannot be read back: another value there shows whether one is sent.
	other := func() { s.patch("dashboards", `{"secure":{"token":{"create":"`+canaryTwo+`"}}}`) }
	sent := func(what, want string, pass func() result) {
		t.Helper()
		if r := pass(); len(r.problems) != 0 || s.token() != want {
			t.Errorf("%s: %v, token %q", what, r.problems, s.token())
		}
	}
	other()
	version := s.field("dashboards", "metadata", "resourceVersion")
	sent("the same file", canaryTwo, s.heal)
	s.Host = "another-name-after-a-restart"
	s.restart()
	sent("the same file after a restart", canaryTwo, s.apply)
	if s.field("dashboards", "metadata", "resourceVersion") != version {
		t.Error("it was written")
	}
	s.patch("dashboards", `{"spec":{"git":{"branch":"dev"}}}`)
	sent("another branch", canaryTwo, s.heal)
	s.patch("dashboards", `{"spec":{"git":{"url":"https://host/c"}},"secure":{"token":{"create":"three"}}}`)
	sent("another URL on the server", canaryOne, s.heal)
	other()
	s.write("a.yaml", strings.Replace(repositoryYAML("dashboards", secure), "host/dashboards", "host/b", 1))
	sent("another URL", canaryOne, s.apply)
	s.patch("dashboards", `{"secure":{"token":{"remove":true}}}`)
	sent("a lost value", canaryOne, s.heal)
	other()
	s.write("a.yaml", strings.Replace(repositoryYAML("dashboards", "secure: {token: {create: three}}\n"), "host/dashboards", "host/b", 1))
	sent("another value", "three", s.apply)
	if err := s.client.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "dashboards", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sent("a lost object", "three", s.heal)
}

// TestRemoteRemovesMembers: what the file stated and does not any more goes, what it never stated
// stays.
func TestRemoteRemovesMembers(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.write("a.yaml", strings.Replace(repositoryYAML("a", ""), "type: git", "type: git, title: T, description: D", 1))
	s.apply()
	s.patch("a", `{"spec":{"workflows":["write"]},"metadata":{"labels":{"x":"y"}}}`)
	s.restart()
	s.write("a.yaml", strings.Replace(repositoryYAML("a", ""), "type: git", "type: git, title: T", 1))
	s.apply()
	if s.field("a", "spec", "description") != nil || s.field("a", "spec", "title") != "T" || s.field("a", "metadata", "labels", "x") != "y" ||
		s.field("a", "spec", "workflows") == nil {
		t.Errorf("%v", s.field("a", "spec"))
	}
}

// TestRemotePrune: objects are deleted only when that is asked for, and never by an empty
// directory.
func TestRemotePrune(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.write("a.yaml", repositoryYAML("a", "")+"---\n"+repositoryYAML("b", "")+"---\n"+strings.Replace(repositoryYAML("c", ""), "name: c",
		"name: c, labels: {site: west}", 1))
	s.apply()
	s.patch("c", `{"metadata":{"annotations":{"limpet/manifest-owner":"host-two:/etc/site"}}}`)
	s.write("a.yaml", repositoryYAML("b", ""))
	if s.apply(); !s.there("a") {
		t.Error("deleted without --manifests-prune")
	}
	s.Prune = true
	s.restart()
	if r, n := s.apply(), s.prune(); r.deleted != 0 || n != 1 || s.there("a") || !s.there("c") {
		t.Errorf("deleted %d, %d: a %v, c %v", r.deleted, n, s.there("a"), s.there("c"))
	}
	s.remove("a.yaml")
	for range 2 {
		if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || !s.there("b") {
			t.Errorf("an empty directory: %v", r.problems)
		}
		s.restart()
	}
}

// TestOwnedElsewhere: the objects of another host, and of the server itself, are left alone until
// they are released.
func TestOwnedElsewhere(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.write("a.yaml", repositoryYAML("a", "")+"---\n"+repositoryYAML("b", ""))
	s.apply()
	for _, notes := range []string{`"limpet/manifest":"x.yaml","limpet/manifest-owner":"host-two:/etc/site"`,
		`"limpet/manifest":"x.yaml","limpet/manifest-owner":null`} {
		s.patch("a", `{"spec":{"title":"theirs"},"metadata":{"annotations":{`+notes+`}}}`)
		s.patch("b", `{"spec":{"git":{"branch":"dev"}}}`)
		r := s.heal()
		if len(r.problems) != 1 || s.field("a", "spec", "title") != "theirs" || s.field("b", "spec", "git", "branch") != "main" {
			t.Errorf("%s: %v", notes, r.problems)
		}
		if foreign, is := errors.AsType[*errForeign](r.problems[0]); !is || foreign.owner == s.m.owner {
			t.Errorf("%s: %v", notes, r.problems)
		}
		if again := s.m.runOnce(t.Context()); len(again.problems) != 1 {
			t.Errorf("it is told once: %v", again.problems)
		}
		s.restart()
	}
	for _, notes := range []string{`"limpet/manifest":null,"limpet/manifest-owner":null`, `"limpet/manifest":null`} {
		s.patch("a", `{"metadata":{"annotations":{"limpet/manifest":"x.yaml","limpet/manifest-owner":"host-two:/etc/site"}}}`)
		if r := s.heal(); len(r.problems) != 1 || r.applied > 1 { // b alone
			t.Errorf("%+v", r)
		}
		s.patch("a", `{"metadata":{"annotations":{`+notes+`}}}`)
		if r := s.heal(); len(r.problems) != 0 || s.owned("a") != s.m.owner {
			t.Errorf("%s: a released object has the owner %v: %v", notes, s.owned("a"), r.problems)
		}
	}
}

// TestHostsOfOneImage: of two hosts with one name and one directory the first owns an object, also
// one that an earlier version has written.
func TestHostsOfOneImage(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.write("a.yaml", repositoryYAML("a", ""))
	s.apply()
	s.patch("a", `{"metadata":{"annotations":{"limpet/manifest-owner":"edge:`+s.dir+`"}}}`)
	if r := s.heal(); len(r.problems) != 0 || s.owned("a") != s.m.owner {
		t.Errorf("of an earlier version: %v, owner %v", r.problems, s.owned("a"))
	}
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	first := s.m.owner
	s.Store = store
	s.restart()
	if r := s.m.runOnce(t.Context()); len(r.problems) != 1 || s.m.owner == first || s.owned("a") != first {
		t.Errorf("the second host %s: %v, owner %v", s.m.owner, r.problems, s.owned("a"))
	}
}

// TestSelector: objects of other sites are not read further, and not deleted.
func TestSelector(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	site := func(name, site, rest string) string {
		return strings.Replace(repositoryYAML(name, rest), "name: "+name, "name: "+name+", labels: {site: "+site+"}", 1)
	}
	s.write("a.yaml", site("a", "east", "")+"---\n"+site("b", "west", "secure: {token: {create: '${ABSENT}'}}\n")+"---\n"+site("c", "west", ""))
	s.write("b.yaml", site("a", "west", "")+"---\n"+repositoryYAML("none", ""))
	s.Selector = labels.SelectorFromSet(labels.Set{"site": "east"})
	s.restart()
	if r := s.apply(); r.applied != 1 || !s.there("a") || s.there("b") || s.there("c") || s.there("none") {
		t.Errorf("%+v", r)
	}
	s.write("a.yaml", site("a", "west", "")+"---\n"+site("d", "east", ""))
	if s.apply(); s.prune() != 0 || !s.there("a") || !s.there("d") {
		t.Errorf("another site now: a %v", s.there("a"))
	}
}

// middle stands before an API: it may be away, and it writes URLs as Grafana does.
type middle struct {
	http.RoundTripper
	away  atomic.Bool
	asked atomic.Int64 // requests
}

func (m *middle) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.asked.Add(1); m.away.Load() {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	if r.Body != nil && r.Method != http.MethodGet {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.ReplaceAll(body, []byte(`"https://host/a"`), []byte(`"https://host/a.git"`))
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return m.RoundTripper.RoundTrip(r)
}

// between lets the applier reach its API through a middle.
func (s *rig) between() *middle {
	s.Helper()
	m := &middle{RoundTripper: s.server.Transport()}
	client, err := kube.Connect(s.Context(), kube.Config{Server: "http://limpet", Transport: m})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(client.Close)
	s.Client = client
	s.restart()
	return m
}

// TestAppliedOnce: after a failed pass and a restart a released object and a job are left alone
// until the file has other content; what was changed otherwise comes back.
func TestAppliedOnce(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	m := s.between()
	const job = "---\napiVersion: provisioning.grafana.app/v0alpha1\nkind: Job\nmetadata: {name: once}\nspec: {action: pull, repository: a, pull: {}}\n"
	s.write("a.yaml", repositoryYAML("a", "")+"---\n"+repositoryYAML("b", "")+job)
	s.apply()
	jobs := s.client.Resource(api.Jobs).Namespace("default")
	if err := jobs.Delete(t.Context(), "once", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.patch("a", `{"spec":{"git":{"branch":"dev"}},"metadata":{"annotations":{"limpet/manifest":null,"limpet/manifest-owner":null}}}`)
	m.away.Store(true)
	if r := s.heal(); len(r.problems) != 1 {
		t.Errorf("away: %v", r.problems)
	}
	m.away.Store(false)
	for _, again := range []func(){func() {}, s.restart} {
		s.patch("b", `{"spec":{"git":{"branch":"dev"}}}`)
		again()
		if r := s.apply(); len(r.healed) != 1 || s.field("b", "spec", "git", "branch") != "main" {
			t.Errorf("healed %v", r.healed)
		}
		if s.owned("a") != nil || s.field("a", "spec", "git", "branch") != "dev" {
			t.Errorf("released: owner %v, branch %v", s.owned("a"), s.field("a", "spec", "git", "branch"))
		}
		if _, err := jobs.Get(t.Context(), "once", metav1.GetOptions{}); err == nil {
			t.Error("the job is queued again")
		}
	}
	s.write("a.yaml", strings.ReplaceAll(repositoryYAML("a", "")+"---\n"+repositoryYAML("b", "")+job, "pull: {}", "pull: {incremental: true}"))
	s.apply()
	if _, err := jobs.Get(t.Context(), "once", metav1.GetOptions{}); err != nil || s.owned("a") != nil {
		t.Errorf("new content of the job alone: %v, owner %v", err, s.owned("a"))
	}
	s.write("a.yaml", strings.ReplaceAll(repositoryYAML("a", ""), "main", "next"))
	if s.apply(); s.owned("a") != s.m.owner || s.field("a", "spec", "git", "branch") != "next" {
		t.Errorf("new content of the released object: owner %v", s.owned("a"))
	}
}

// TestHealAsksOnce: an object that is as it was found is read and no more.
func TestHealAsksOnce(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	m := s.between()
	s.write("a.yaml", repositoryYAML("a", "")+"---\n"+strings.Replace(repositoryYAML("newer", ""), "v0alpha1", "v1beta1", 1))
	s.apply()
	s.heal()
	for _, change := range []string{"", `{"spec":{"git":{"branch":"dev"}}}`, ""} {
		if change != "" {
			s.patch("newer", change)
		}
		before := m.asked.Load()
		r := s.heal()
		if got := m.asked.Load() - before; len(r.problems) > 0 || (got == 2) != (change == "") || (len(r.healed) == 1) != (change != "") {
			t.Errorf("changed by %q: %d requests, %+v", change, got, r)
		}
		s.heal() // what is put back is found so
	}
}

// TestHealLists: where a collection has many declared objects, one list shows which of them are as
// they were found.
func TestHealLists(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	m := s.between()
	var all strings.Builder
	for i := range listFrom {
		all.WriteString(repositoryYAML(fmt.Sprint("r", i), "") + "---\n")
	}
	s.write("a.yaml", all.String()+strings.Replace(repositoryYAML("newer", ""), "v0alpha1", "v1beta1", 1))
	s.apply()
	s.heal()
	before := m.asked.Load()
	if r := s.heal(); len(r.problems) > 0 || m.asked.Load()-before != 2 {
		t.Errorf("%d requests, want the list and one object: %+v", m.asked.Load()-before, r)
	}
	s.patch("r0", `{"spec":{"git":{"branch":"dev"}}}`)
	if err := s.client.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "r1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := s.heal(); len(r.problems) > 0 || len(r.healed) != 2 || s.field("r0", "spec", "git", "branch") != "main" || !s.there("r1") {
		t.Errorf("healed %v, %v", r.healed, r.problems)
	}
}

// TestRemoteUnavailable: a server that does not answer is one problem of all files, and is asked
// less and less often.
func TestRemoteUnavailable(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.write("a.yaml", repositoryYAML("a", ""))
	s.write("b.yaml", repositoryYAML("b", ""))
	s.between().away.Store(true)
	s.m.interval = time.Hour
	for range 3 {
		if r := s.m.runOnce(t.Context()); len(r.problems) != 1 {
			t.Fatalf("%v", r.problems)
		}
	}
	if s.m.pause != healInterval || time.Until(s.m.retry) < healInterval/2 {
		t.Errorf("pause %v, retry in %v", s.m.pause, time.Until(s.m.retry))
	}
}

// TestRemotePruneUnlisted: a folder, of which a server has too many to list, is known after a
// restart as well, and deleted when no file declares it.
func TestRemotePruneUnlisted(t *testing.T) {
	t.Parallel()
	s := remoteRig(t)
	s.between()
	s.Prune = true
	s.restart()
	s.write("a.yaml", repositoryYAML("a", ""))
	s.write("b.yaml", "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata: {name: b}\nspec: {title: b}\n")
	s.apply()
	s.heal()
	s.restart()
	s.apply()
	s.heal()
	s.heal()
	s.remove("b.yaml")
	s.apply()
	if n := s.prune(); n != 1 {
		t.Errorf("%d objects are deleted, want the folder", n)
	}
}
