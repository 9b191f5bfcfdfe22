package git

import (
	"fmt"
	"maps"
	"testing"
)

func TestFetchFirstAndNext(t *testing.T) {
	quiet(t)
	s := newServer(t)
	o := newOrigin(t, s.root, "site.git")
	files := make(map[string]string)
	for i := range 40 {
		files[fmt.Sprintf("grafana/folder-%d/board-%d.json", i%5, i)] = dashboard(fmt.Sprint("b", i), 1, 30)
	}
	first := o.commit("first", files)
	m := openMirrors(t, Options{})
	r := s.remote("site.git")

	ref, st := syncRef(t, m, r, "")
	if ref.Name != "refs/heads/main" || ref.Hash != first || ref.Branch() != "main" {
		t.Fatalf("resolved %+v, want %s", ref, first)
	}
	if !st.Full || st.Rebuilt || st.Requests != 1 || st.Objects != 1+7+40 {
		t.Fatalf("first fetch: %+v", st)
	}
	if got := content(t, m, r, first, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)

	before := s.requests.Load()
	if ref, st = syncRef(t, m, r, "main"); st.Requests != 0 || st.Bytes != 0 {
		t.Fatalf("nothing new: %+v", st)
	}
	if n := s.requests.Load() - before; n != 1 {
		t.Fatalf("nothing new took %d requests, want one ls-remote", n)
	}

	files["grafana/folder-1/board-1.json"] = dashboard("b1", 2, 30)
	second := o.commit("second", files)
	ref, st = syncRef(t, m, r, "main")
	if ref.Hash != second || st.Full || st.Bytes > 4000 {
		t.Fatalf("second fetch of %s: %+v", ref.Hash, st)
	}
	t.Logf("incremental fetch: %+v", st)
	if got := content(t, m, r, second, ""); !maps.Equal(got, files) {
		t.Fatal("content differs after the second fetch")
	}
	changes, err := m.Changes(t.Context(), r, first, second, "grafana")
	if err != nil || len(changes) != 1 || changes[0].Path != "folder-1/board-1.json" || changes[0].Type != ChangeModified {
		t.Fatalf("changes %+v, %v", changes, err)
	}
	info, err := m.Commit(t.Context(), r, second)
	if err != nil || info.Subject != "second" || info.Author != "Ann Author <ann@example.com>" || len(info.Parents) != 1 || info.When.Format("2006-01-02T15:04:05-0700") != "2026-11-20T10:00:00+0100" {
		t.Fatalf("commit %+v, %v", info, err)
	}
	fsck(t, m, r)
}
