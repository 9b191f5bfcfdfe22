package resources

import (
	"errors"
	"fmt"
	"limpet/sync/api/repopath"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParsePage(t *testing.T) {
	t.Parallel()
	page, err := ParsePage[Live]([]byte(`{"metadata":{"continue":"more"},"items":[
		{"metadata":{"name":"a","uid":"u1","resourceVersion":"7","annotations":{"grafana.app/managedBy":"repo","grafana.app/managerId":"repo",
			"grafana.app/sourcePath":"x/a.json","grafana.app/sourceChecksum":"h","grafana.app/folder":"f"}},"spec":{"title":"A"}},
		{"metadata":{"name":"b","uid":"u2","resourceVersion":"8","finalizers":["keep"]},"spec":{"title":7}},
		{"metadata":{"name":"c"}}]}`))
	if err != nil || page.Metadata.Continue != "more" || len(page.Items) != 3 {
		t.Fatalf("%+v, %v", page, err)
	}
	k := Kind{Group: "g", Kind: "K", Resource: "r"}
	want := Item{Group: "g", Kind: "K", Resource: "r", Name: "a", Path: "x/a.json", Hash: "h", Folder: "f", Title: "A", UID: "u1", ResourceVersion: "7"}
	if got := page.Items[0].Item(k); got != want || got.live() == nil {
		t.Errorf("item %+v", got)
	}
	if !Manages("repo", page.Items[0].Annotations) || Manages("repo", page.Items[1].Annotations) {
		t.Error("managers are mixed up")
	}
	if got := page.Items[1].Item(k); got.live() != nil || got.Title != "" {
		t.Errorf("an object with finalizers would be written without a look: %+v", got)
	}
	for _, bad := range []string{"", "[]", `{"items":7}`} {
		if _, err := ParsePage[Live]([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a list", bad)
		}
	}
	if _, err := ParseLive([]byte(`{"metadata":{"name":7}}`)); err == nil {
		t.Error("a name that is a number is taken")
	}
}

func TestParseManaged(t *testing.T) {
	t.Parallel()
	items, err := ParseManaged([]byte(`{"kind":"ResourceList","items":[
		{"path":"a/x.json","group":"dashboard.grafana.app","resource":"dashboards","name":"x","hash":"h","time":5,"title":"X","folder":"f"},
		{"path":"a","group":"folder.grafana.app","resource":"folders","name":"f","hash":"","folder":"general"},
		{"path":"p.json","group":"playlist.grafana.app","resource":"playlists","name":"p","hash":"h"}]}`), kinds)
	if err != nil || len(items) != 2 {
		t.Fatalf("%+v, %v", items, err)
	}
	if items[0].Path != "a/x.json" || items[0].Folder != "f" || items[0].Identity().Kind != "Dashboard" || items[0].live() != nil {
		t.Errorf("%+v", items[0])
	}
	if items[1].Path != "a/" || items[1].Folder != "" || items[1].Kind != "Folder" {
		t.Errorf("%+v", items[1])
	}
	for _, bad := range []string{`{"kind":"Status"}`, `<html>`, `{}`} {
		if _, err := ParseManaged([]byte(bad), kinds); err == nil {
			t.Errorf("%q is taken for a list of managed resources", bad)
		}
	}
}

func TestIsWarning(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "dashboard.grafana.app", Resource: "dashboards"}
	status := func(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&ParseError{}, true}, {&repopath.PathError{}, true}, {&FolderFileError{}, true}, {&OwnershipError{}, true}, {&DuplicateError{}, true},
		{&SkippedError{}, true}, {&QuotaError{}, true}, {&TooLargeError{}, true},
		{fmt.Errorf("write: %w", &TooLargeError{}), true},
		{apierrors.NewBadRequest("refresh interval is too low"), true},
		{apierrors.NewInvalid(schema.GroupKind{}, "x", nil), true},
		{fmt.Errorf("create: %w", apierrors.NewRequestEntityTooLargeError("413")), true},
		{apierrors.NewForbidden(resource, "x", nil), false},
		{apierrors.NewUnauthorized("who"), false},
		{apierrors.NewInternalError(errors.New("500")), false},
		{apierrors.NewConflict(resource, "x", nil), false},
		{apierrors.NewTooManyRequests("429", 1), false},
		{status(http.StatusServiceUnavailable), false},
		{errors.New("connection reset"), false},
		{nil, false},
	} {
		if got := IsWarning(c.err); got != c.want {
			t.Errorf("IsWarning(%v) = %v", c.err, got)
		}
	}
}
