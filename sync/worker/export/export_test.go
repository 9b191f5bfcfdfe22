package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/resources"
)

func TestSlug(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"  CPU / Memory ":    "cpu-memory",
		"Über & Äther_1-2":   "ueber-and-ather-1-2",
		"It's (a) \"test\".": "it-s-a-test",
		"Привет, мир":        "privet-mir",
		"Hello *# x":         "hello-2a-23-x",
		"mañana":             "mac3b1-ana",
		"?,a . \n ":          "a",
		"😢 -":                "f09f98a2",
		"":                   "da39a3e",
		"😢 😣 😤 😥 😦 😧 😨 😩 😪 😫 😬": "f6bcbac",
	} {
		if got := Slug(title); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}

// tree is a branch that exports go to.
type tree map[string]string // content by path

func (b tree) options(o Options) Options {
	o.Repository, o.Namespace, o.Salt = "repo", "default", "salt"
	o.Kinds, _ = resources.ParseKinds(nil)
	for path := range b {
		o.Tree = append(append(o.Tree, path), repopath.Ancestors(path)...)
	}
	o.Object = func(path string) resources.Identity {
		var file struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		_ = json.Unmarshal([]byte(b[path]), &file)
		group, _, _ := strings.Cut(file.APIVersion, "/")
		return resources.Identity{Group: group, Kind: file.Kind, Name: file.Metadata.Name}
	}
	return o
}

func object(name, title, folder string, notes ...string) *resources.Live {
	live := &resources.Live{Meta: resources.Meta{Name: name, ResourceVersion: "v-" + name, Annotations: map[string]string{api.AnnoFolder: folder}}}
	live.Spec.Title = title
	for i := 0; i < len(notes); i += 2 {
		live.Annotations[notes[i]] = notes[i+1]
	}
	return live
}

// export writes objects to the branch and returns the paths that it changed, and the objects
// without a file.
func (b tree) export(o Options, folders []*resources.Live, boards ...*resources.Live) (changed, left []string) {
	l := New(b.options(o), folders)
	for _, f := range folders {
		if err := l.Folder(f.Name); err != nil {
			left = append(left, fmt.Sprintf("%s: %v", f.Name, err))
		}
	}
	files := l.Markers()
	for _, live := range boards {
		raw := fmt.Appendf(nil, `{"kind":"Dashboard","apiVersion":"dashboard.grafana.app/v2","metadata":{"name":%q,"namespace":"default","uid":"1"},`+
			`"spec":{"title":%q,"n":1.50,"id":7},"status":{"x":1}}`, live.Name, live.Spec.Title)
		f := l.Dashboard(live, raw)
		files = append(append(files, l.Markers()...), f)
	}
	for _, f := range files {
		switch {
		case f.Warning != nil:
			left = append(left, fmt.Sprintf("%s: %v", f.Object.Name, f.Warning))
		case f.Path != "" && b[f.Path] != string(f.Data) || f.Path != "" && !slices.Contains(keys(b), f.Path):
			b[f.Path] = string(f.Data)
			changed = append(changed, f.Path)
		}
	}
	slices.Sort(changed)
	return changed, left
}

func keys(b tree) (all []string) {
	for path := range b {
		all = append(all, path)
	}
	return all
}

func TestLayout(t *testing.T) {
	t.Parallel()
	own := []string{api.AnnoManagedBy, "repo", api.AnnoManagerID, "repo", api.AnnoSourcePath, "mine/"}
	other := []string{api.AnnoManagedBy, "repo", api.AnnoManagerID, "other"}
	folders := []*resources.Live{object("a", "Team", ""), object("b", "Team", ""), object("c", "Über/x", "a"), object("d", "Con", "general"),
		object("own", "Mine", "", own...), object("other", "Theirs", "", other...), object("in", "In", "other"),
		object("x", "X", "y"), object("y", "Y", "x"), object("lost", "Lost", "none"), object("m", "_Folder.json", "own"),
		object("n", "com1.x", "own")}
	boards := []*resources.Live{object("1", "CPU", "a"), object("2", "cpu", "a"), object("3", "CPU", "c"), object("4", "", ""),
		object("5", "_folder", "own"), object("6", "Six", "other"), object("7", "aux", "d"), object("8", "Eight", "x")}
	for _, c := range []struct {
		name          string
		o             Options
		branch        tree
		changed, left string
	}{
		{"copies", Options{}, tree{}, "4.json Con-d/_folder.json Con-d/aux-7.json Team-b/_folder.json Team/.keep Team/cpu-2.json Team/cpu.json " +
			"Team/ueber-x/_folder.json Team/ueber-x/cpu.json Theirs/.keep Theirs/In/.keep Theirs/six.json mine/_Folder.json-m/_folder.json mine/com1-x-n/_folder.json mine/folder.json", "8 lost x y"},
		{"below a path", Options{Path: "p/"}, tree{"p/Team/cpu.json": "{}", "p/team-b": ""}, "p/4.json p/Con-d/_folder.json p/Con-d/aux-7.json " +
			"p/Team-b-b/_folder.json p/Team/cpu-1.json p/Team/cpu-2.json p/Team/ueber-x/_folder.json p/Team/ueber-x/cpu.json p/Theirs/.keep " +
			"p/Theirs/In/.keep p/Theirs/six.json p/mine/_Folder.json-m/_folder.json p/mine/com1-x-n/_folder.json p/mine/folder.json", "8 lost x y"},
		{"with their UIDs", Options{KeepUIDs: true, KeepFolderUIDs: true}, tree{"Team/cpu.json": `{"metadata":{"name":"1"}}`,
			"4.json": `{"apiVersion":"x/v1","kind":"Dashboard","metadata":{"name":"4"}}`},
			"4-4.json Con-d/_folder.json Con-d/aux-7.json Team-a/_folder.json Team-a/cpu-2.json Team-a/cpu.json Team-a/ueber-x/_folder.json " +
				"Team-a/ueber-x/cpu.json Team-b/_folder.json mine/_Folder.json-m/_folder.json mine/com1-x-n/_folder.json mine/folder.json", "6 8 in lost other x y"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed, left := c.branch.export(c.o, folders, boards...)
			for i, text := range left {
				left[i], _, _ = strings.Cut(text, ":")
			}
			slices.Sort(left)
			if got := strings.Join(changed, " "); got != c.changed {
				t.Errorf("files\n got %s\nwant %s", got, c.changed)
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("left %s, want %s", got, c.left)
			}
			slices.Reverse(boards)
			if again, _ := c.branch.export(c.o, folders, boards...); len(again) > 0 {
				t.Errorf("a second export changes %q", again)
			}
			slices.Reverse(boards)
		})
	}
}

// TestContent: what is in a file, and where the UID of a copy comes from.
func TestContent(t *testing.T) {
	t.Parallel()
	kept, copies := tree{}, tree{}
	board := object("cpu", "CPU", "")
	kept.export(Options{KeepUIDs: true}, nil, board)
	want := "{\n  \"apiVersion\": \"dashboard.grafana.app/v2\",\n  \"kind\": \"Dashboard\",\n  \"metadata\": {\n    \"name\": \"cpu\"\n  },\n" +
		"  \"spec\": {\n    \"title\": \"CPU\",\n    \"n\": 1.50\n  }\n}\n"
	if kept["cpu.json"] != want {
		t.Errorf("file\n%s", kept["cpu.json"])
	}
	copies.export(Options{}, nil, board)
	copies.export(Options{Path: "p/"}, nil, board)
	one, two := copies.options(Options{}).Object("cpu.json").Name, copies.options(Options{}).Object("p/cpu.json").Name
	if one == "" || one == "cpu" || one == two {
		t.Errorf("UIDs %q and %q", one, two)
	}
	o := kept.options(Options{KeepUIDs: true, Find: func(id resources.Identity) string {
		return map[string]string{"cpu": "cpu.json", "mem": "a/mem.json"}[id.Name]
	}})
	moved := New(o, nil)
	for name, want := range map[string]string{"cpu": " cpu.json", "mem": "a/mem.json new.json"} {
		if f := moved.Dashboard(object(name, "New", ""), []byte(kept["cpu.json"])); f.From+" "+f.Path != want {
			t.Errorf("%s goes from %q to %q", name, f.From, f.Path)
		}
	}
	deep := object("deep", strings.Repeat("d", 1100), "")
	_, left := tree{}.export(Options{}, []*resources.Live{deep}, object("in", "In", "deep"))
	if len(left) != 2 {
		t.Errorf("left %q", left)
	}
	l := New(kept.options(Options{}), nil)
	if f := l.Dashboard(board, []byte(`{"kind":1}`)); !errors.As(f.Warning, new(*resources.ParseError)) {
		t.Errorf("warning %v", f.Warning)
	}
	l = New(kept.options(Options{}), []*resources.Live{object("a", "A", ""), object("b", "B", "a")})
	if !l.Within("b", "a") || !l.Within("b", "") || l.Within("a", "b") || l.Within("none", "a") {
		t.Error("which folders are inside others")
	}
}
