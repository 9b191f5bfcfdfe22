package resources

import (
	"slices"
	"testing"

	"limpet/sync/api"
)

func TestReleaseOrder(t *testing.T) {
	t.Parallel()
	folder := func(name, path string) Item {
		return Item{Group: api.FolderGroup, Resource: FolderResource, Name: name, Path: path}
	}
	board := Item{Group: api.DashboardGroup, Resource: DashboardResource, Name: "board", Path: "a/b/c/d.json"}
	objects, folders := Leaving([]Item{folder("root", ""), folder("a", "a/"), board, folder("deep", "a/b/c/"), folder("z", "z"), folder("mid", "a/b")})
	if len(objects) != 1 || objects[0] != board {
		t.Errorf("objects %v", objects)
	}
	var got []string
	for _, f := range folders {
		got = append(got, f.Name)
	}
	if want := []string{"deep", "mid", "a", "z", "root"}; !slices.Equal(got, want) {
		t.Errorf("folders in the order %q, want %q", got, want)
	}
}
