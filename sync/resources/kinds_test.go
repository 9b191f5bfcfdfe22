package resources

import (
	"slices"
	"strings"
	"testing"
)

// kinds are those of the tests; a server with v1 of all of them serves what is not disabled.
var kinds = func() Kinds {
	ks, err := ParseKinds(strings.Split(strings.NewReplacer(":folder:disabled", ":folder").Replace(DefaultKinds)+
		",boats.example.com/Boat:skipvalidation", ","))
	if err != nil {
		panic(err)
	}
	for i, k := range ks {
		ks[i].Resource, ks[i].Version = strings.ToLower(k.Kind)+"s", "v1"
	}
	return ks
}()

func TestParseKinds(t *testing.T) {
	t.Parallel()
	ks, err := ParseKinds(strings.Split(DefaultKinds, ","))
	if err != nil || len(ks) != 4 {
		t.Fatalf("%+v, %v", ks, err)
	}
	for _, c := range []struct {
		group, kind    string
		folder, usable bool
	}{
		{"folder.grafana.app", "Folder", true, true}, {"dashboard.grafana.app", "Dashboard", true, true},
		{"dashboard.grafana.app", "LibraryPanel", true, false}, {"playlist.grafana.app", "Playlist", false, false},
		{"apps", "Deployment", false, false},
	} {
		if k := ks.Of(c.group, c.kind); k.Folder != c.folder || (k.Refused == "") != c.usable {
			t.Errorf("%+v", k)
		}
	}
	short, err := ParseKinds([]string{" playlist.grafana.app/Playlist:skipvalidation ", ""})
	if err != nil || len(short) != 2 || short[0].Kind != "Folder" || !short[1].SkipValidation || short[1].Folder {
		t.Errorf("%+v, %v", short, err)
	}
	for entry, want := range map[string]string{
		"Dashboard": "form", "/Dashboard": "form", "dashboard.grafana.app/": "form", "dashboard/Dashboard": "form", "a.b/c/D": "form",
		"a.b/C:bogus": "known are", "a.b/C:folder:folder": "twice", "folder.grafana.app/Folder:disabled": "cannot be disabled",
		"a.b/C,a.b/C:folder": "twice", "folder.grafana.app/Folder:folder,folder.grafana.app/Folder:skipvalidation": "twice",
	} {
		if _, err := ParseKinds(strings.Split(entry, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// TestKinds pulls files of several kinds: each goes to its own resource, and only those in folders
// name one.
func TestKinds(t *testing.T) {
	t.Parallel()
	object := func(group, kind, name, title string) string {
		return `{"apiVersion":"` + group + `/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":{"title":"` + title + `"}}`
	}
	m := newModel()
	tree := repo{"a/cpu.json": dashboard("cpu", "CPU"), "a/panel.json": object("dashboard.grafana.app", "LibraryPanel", "panel", "P"),
		"a/boat.json": object("boats.example.com", "Boat", "cpu", "B"), "list.json": object("playlist.grafana.app", "Playlist", "x", "L")}
	steps := []struct {
		name   string
		writes []string
		change func()
	}{
		{"first", []string{"POST boats cpu", "POST dashboards cpu", "POST folders " + id("a"), "POST folders repo",
			"POST librarypanels panel"}, func() {}},
		{"nothing new", nil, func() {}},
		{"moved", []string{"DELETE folders " + id("a"), "POST folders " + id("b"), "PUT boats cpu", "PUT dashboards cpu",
			"PUT librarypanels panel"}, func() {
			for p, data := range tree {
				if after, in := strings.CutPrefix(p, "a/"); in {
					delete(tree, p)
					tree["b/"+after] = data
				}
			}
		}},
		{"another kind of one file", []string{"DELETE boats cpu", "POST librarypanels boat"}, func() {
			tree["b/boat.json"] = object("dashboard.grafana.app", "LibraryPanel", "boat", "B")
		}},
		{"gone", []string{"DELETE dashboards cpu", "DELETE folders " + id("b"), "DELETE librarypanels boat", "DELETE librarypanels panel"},
			func() { clear(tree) }},
	}
	for _, s := range steps {
		s.change()
		l := m.run(t, tree, tree.full(folderTarget, m.live()))
		_, writes := m.take()
		if slices.Sort(writes); !slices.Equal(writes, s.writes) {
			t.Fatalf("%s:\n got %q\nwant %q", s.name, writes, s.writes)
		}
		if len(tree) > 0 && len(l.warnings()) != 1 {
			t.Errorf("%s: %v", s.name, l.warnings())
		}
		for _, i := range m.live() {
			if (i.Folder != "") == (i.Kind == "Boat" || i.Name == "repo") {
				t.Errorf("%s: %+v", s.name, i)
			}
		}
	}
}
