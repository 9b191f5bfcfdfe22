package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// listed is a source that lists the files of a repository.
func listed() *archive {
	files := []snapshot.RepoFile{
		{Path: "README.md", State: snapshot.FileLeftOut, Reason: "neither JSON nor YAML"},
		{Path: "net/_folder.json", Kind: "Folder", Title: "Network", UID: "net", Folder: "net/", State: snapshot.FileSynced},
		{Path: "net/bad.json", Folder: "net/", State: snapshot.FileUnread, Reason: "line 3: unexpected end of JSON input"},
		{Path: "net/core.json", Kind: "Dashboard", Title: "Core routers", UID: "core", Folder: "net/", State: snapshot.FileSynced},
	}
	for i := range 36 {
		files = append(files, snapshot.RepoFile{Path: fmt.Sprintf("sites/edge-%02d.json", i), Kind: "Dashboard", Folder: "sites/",
			Title: fmt.Sprintf("Edge %d", i), UID: fmt.Sprintf("edge-%02d", i), State: snapshot.FileSynced})
	}
	return &archive{lately: failedRows(5), manifest: "{\n  \"title\": \"Core routers\"\n}\n",
		files: snapshot.FileList{Commit: strings.Repeat("5d41aa90", 5), All: len(files), Files: files}}
}

// filesOfEast opens the files of lab-east.
func filesOfEast(t *testing.T, src *archive, caps widget.Caps) State {
	t.Helper()
	return settle(t, press(shown(testSnapshot(), caps), "3", "down", "enter", "f"), src)
}

func TestGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {140, 40}} {
		name := fmt.Sprintf("files-%dx%d", size[0], size[1])
		s := press(filesOfEast(t, listed(), widget.Caps{Mono: true}), "down", "down", "down")
		frame := render(s, size[0], size[1], s.Caps)
		check(t, frame, size[0], size[1], s.Caps)
		golden(t, name, frame)
	}
}

func TestFilesOfARepository(t *testing.T) {
	t.Parallel()
	src := listed()
	s := filesOfEast(t, src, widget.Caps{Mono: true, ASCII: true})
	if len(src.listed) != 1 || src.listed[0].Name != "lab-east" || src.listed[0].Path != "" || len(s.files.rows.rows) != 40 {
		t.Fatalf("asked %+v, %d rows", src.listed, len(s.files.rows.rows))
	}
	for line, want := range map[string]int{"state:unread": 1, "kind:Folder": 1, "core rout": 1, "edge-1": 10, "zz": 0, "state:x": 0} {
		if at := filtered(s, line); len(at.files.rows.rows) != want || !strings.Contains(filterText(&at), at.filter()) {
			t.Errorf("%s: %d rows, %s", line, len(at.files.rows.rows), filterText(&at))
		}
	}
	core := press(s, "down", "down", "down")
	if _, out := core.Key("u", "u"); out.Copy != "https://grafana.example:6446/d/core" {
		t.Errorf("u copies %q", out.Copy)
	}
	if _, out := press(s, "down").Key("u", "u"); out.Copy != "https://grafana.example:6446/dashboards/f/net" {
		t.Errorf("u copies %q", out.Copy)
	}
	if _, out := s.Key("u", "u"); strings.Contains(out.Copy, "grafana.example") {
		t.Errorf("a file that is left out has %q", out.Copy)
	}
	if _, out := core.Key("Y", "Y"); out.Copy != "limpet repo files lab-east" {
		t.Errorf("Y copies %q", out.Copy)
	}
	file := settle(t, press(core, "enter"), src)
	if f := render(file, 80, 24, file.Caps); src.listed[1].Path != "net/core.json" || !strings.Contains(f, `"title": "Core routers"`) {
		t.Errorf("asked %+v:\n%s", src.listed[1], f)
	}
	if _, out := file.Key("y", "y"); out.Copy != "limpet repo files lab-east net/core.json" {
		t.Errorf("y copies %q", out.Copy)
	}
	if back := press(file, "esc"); back.screen != screenFiles || back.files.rows.cursor != "net/core.json" {
		t.Errorf("screen %d, %q", back.screen, back.files.rows.cursor)
	}
	if away := press(s, "esc"); away.screen != screenRepo || away.files.page.known {
		t.Error("the list is kept")
	}
}

// TestFilesAreAskedAgain for another commit and after an error, not for another snapshot.
func TestFilesAreAskedAgain(t *testing.T) {
	t.Parallel()
	src := listed()
	s := settle(t, filesOfEast(t, src, widget.Caps{}).Show(testSnapshot()), src)
	snap := testSnapshot()
	snap.Repos[1].LastRef = strings.Repeat("e", 40)
	if s = settle(t, s.Show(snap), src); len(src.listed) != 1 || len(s.files.rows.rows) != 40 {
		t.Errorf("asked %d times", len(src.listed))
	}
	if s.Now = s.Now.Add(filesMinAge + time.Second); len(settle(t, s, src).files.rows.rows) != 40 || len(src.listed) != 2 {
		t.Errorf("asked %d times after a commit", len(src.listed))
	}
	src.err = errors.New("repository x: not pulled yet")
	at := filesOfEast(t, src, widget.Caps{})
	if f := render(at, 80, 24, at.Caps); !strings.Contains(f, "not pulled yet") {
		t.Error(f)
	}
	src.err = nil
	if at = settle(t, press(at, "enter"), src); len(at.files.rows.rows) != 40 {
		t.Errorf("%d rows after enter", len(at.files.rows.rows))
	}
}

// TestDriftOfARepository: the same screen lists what differs from Git, and opens a difference.
func TestDriftOfARepository(t *testing.T) {
	t.Parallel()
	src := listed()
	src.files.Files = []snapshot.RepoFile{{Path: "net/core.json", Kind: "Dashboard", UID: "core", State: "modified", Title: "/spec/title"}}
	src.files.Diff = &snapshot.TextChange{Lines: []snapshot.TextLine{{Op: "-", Text: "by Git"}, {Op: "+", Text: "by hand"}}}
	s := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "3", "down", "enter", "F"), src)
	frame := render(s, 80, 24, s.Caps)
	check(t, frame, 80, 24, s.Caps)
	if len(src.listed) != 1 || !src.listed[0].Drift || !strings.Contains(frame, "Drift of lab-east") || !strings.Contains(frame, "/spec/title") {
		t.Fatalf("%+v\n%s", src.listed, frame)
	}
	if _, out := s.Key("Y", "Y"); !strings.Contains(out.Copy, "repo diff lab-east") {
		t.Errorf("copied %q", out.Copy)
	}
	at := settle(t, press(s, "enter"), src)
	if frame = render(at, 80, 24, s.Caps); !strings.Contains(frame, "by hand") || !src.listed[1].Drift || src.listed[1].Path != "net/core.json" {
		t.Errorf("%+v\n%s", src.listed, frame)
	}
	if files := settle(t, press(s, "f"), src); files.files.drift || src.listed[2].Drift {
		t.Errorf("%+v", src.listed)
	}
}
