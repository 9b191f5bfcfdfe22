package worker

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// The comparison of a target with git ls-tree, for TestInStep.

// disk returns the files of the directory, "mode hash" by path, without the manifest.
func (h *history) disk() map[string]string {
	out := map[string]string{}
	root := h.dir + "/sink"
	_ = filepath.WalkDir(root+"/.", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".limpet" {
			return fs.SkipDir
		}
		if d.IsDir() {
			return nil
		}
		info, err := os.Lstat(p)
		if err != nil {
			h.Fatal(err)
		}
		mode := "100644"
		if info.Mode()&0o111 != 0 {
			mode = "100755"
		}
		data, _ := os.ReadFile(p)
		if !info.Mode().IsRegular() {
			mode = info.Mode().Type().String()
		}
		out[strings.TrimPrefix(p, root+"/")] = mode + " " + blobHash(data)
		return nil
	})
	return out
}

// objects returns what the Repository manages, by source path and name.
func (h *history) objects(kind schema.GroupVersionResource) map[string]*unstructured.Unstructured {
	h.Helper()
	list, err := h.client.Resource(kind).Namespace(h.namespace).List(h.Context(), metav1.ListOptions{})
	if err != nil {
		h.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, u := range list.Items {
		if notes := u.GetAnnotations(); notes[api.AnnoManagerID] == "repo" && notes[api.AnnoManagedBy] == "repo" {
			out[notes[api.AnnoSourcePath]+"\x00"+u.GetName()] = &u
		}
	}
	return out
}

// snapshot is the target as text.
func (h *history) snapshot() string {
	if h.sink {
		return fmt.Sprintf("%q", h.disk())
	}
	var lines []string
	for _, kind := range []schema.GroupVersionResource{dashboards, folders} {
		for key, u := range h.objects(kind) {
			lines = append(lines, fmt.Sprintf("%q %s %s", key, u.GetUID(), u.GetResourceVersion()))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// listed is an entry of git ls-tree.
type listed struct{ mode, hash string }

var entriesLeft = regexp.MustCompile(`(\d+) entr`)

// compare compares the target with git ls-tree, and with what the job says.
func (h *history) compare(warnings map[string]string, said []string) {
	h.Helper()
	h.spec = strings.Trim(h.spec, "/")
	files, refused := map[string]listed{}, 0
	for line := range strings.SplitSeq(h.git(nil, "-C", "origin.git", "ls-tree", "-r", "-z", "main:"+h.spec), "\x00") {
		about, name, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		of := strings.Fields(about)
		byMode, hidden := of[1] != "blob" || of[0] == "120000", repopath.IsHidden(repopath.CheckPath(name))
		if odd := !utf8.ValidString(name); byMode || odd {
			if odd || !hidden && (h.sink && !h.strict || repopath.IsResourceFile(name)) {
				refused++
			}
			files[name] = listed{mode: "refused"}
			continue
		}
		files[name] = listed{of[0], of[2]}
	}
	left := "0"
	for _, text := range said {
		if found := entriesLeft.FindStringSubmatch(text); found != nil {
			left = found[1]
		}
	}
	if left != fmt.Sprint(refused) {
		h.Errorf("%d entries are refused, told are %s: %q", refused, left, said)
	}
	if h.sink {
		h.compareDirectory(files, warnings)
	} else {
		h.compareObjects(files, warnings)
	}
}

func (h *history) compareDirectory(files map[string]listed, warnings map[string]string) {
	h.Helper()
	disk := h.disk()
	for name, f := range files {
		is, there := disk[name]
		resource := repopath.IsResourceFile(name)
		switch _, told := warnings[name]; {
		case f.mode == "refused" && !there, !there && told, !there && repopath.IsHidden(repopath.CheckPath(name)), !there && h.strict && !resource:
		case is != f.mode+" "+f.hash || h.strict && !resource:
			h.Errorf("%q is %q, want %s %s; told %t", name, is, f.mode, f.hash, told)
		}
	}
	for name := range disk {
		if f, there := files[name]; name != "hand.txt" && (!there || f.mode == "refused") {
			h.Errorf("%q is in the directory and not in Git", name)
		}
	}
}

func (h *history) compareObjects(files map[string]listed, warnings map[string]string) {
	h.Helper()
	boards, dirs := h.objects(dashboards), h.objects(folders)
	folderOf := map[string]string{}
	for key, u := range dirs {
		dir, name, _ := strings.Cut(key, "\x00")
		file, named := files[dir+"/_folder.json"]
		if folderOf[dir] != "" && warnings[dir+"/"] == "" {
			h.Errorf("directory %q has two folders", dir)
		}
		if folderOf[dir] == "" || !named || name == between(h.blobs[file.hash], `"name":"`) { // the other one is in use
			folderOf[dir] = name
		}
		title, _, _ := unstructured.NestedString(u.Object, "spec", "title")
		within := slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(p string) bool { return strings.HasPrefix(p, dir+"/") })
		switch _, told := warnings[dir+"/_folder.json"]; {
		case dir == "":
			continue // the root folder
		case !within && !shadowed(files, dir):
			h.Errorf("folder %s of %q has no directory", name, dir)
		case told || warnings[dir+"/"] != "" || file.mode == "refused":
		case named && title != between(h.blobs[file.hash], `"title":"`), named && name != between(h.blobs[file.hash], `"name":"`):
			h.Errorf("folder %s %q of %q is not %s", name, title, dir, h.blobs[file.hash])
		case !named && title != path.Base(dir) && !shadowed(files, dir):
			h.Errorf("folder %s %q of %q", name, title, dir)
		}
	}
	root := folderOf[""]
	parent := func(p string) string {
		if dir := path.Dir(p); dir != "." {
			return folderOf[dir]
		}
		return root
	}
	for key, u := range dirs {
		if dir, _, _ := strings.Cut(key, "\x00"); dir != "" && !shadowed(files, dir) && u.GetAnnotations()[api.AnnoFolder] != parent(dir) {
			h.Errorf("folder of %q is in %q, want %q", dir, u.GetAnnotations()[api.AnnoFolder], parent(dir))
		}
	}
	for name, f := range files {
		dir, fault := path.Dir(name), repopath.CheckPath(name)
		if f.mode != "refused" && dir != "." && repopath.CheckPath(dir+"/") == nil && folderOf[dir] == "" && warnings[dir+"/"] == "" {
			h.Errorf("directory %q has no folder", dir)
		}
		if f.mode == "refused" || !repopath.IsResourceFile(name) || path.Base(name) == "_folder.json" || repopath.IsHidden(fault) {
			continue
		}
		uid, title := between(h.blobs[f.hash], `"uid":"`), between(h.blobs[f.hash], `"title":"`)
		u := boards[name+"\x00"+uid]
		switch _, told := warnings[name]; {
		case told:
		case fault != nil, u == nil:
			h.Errorf("%q (%s) has no dashboard, and no word of it", name, h.blobs[f.hash])
		default:
			is, _, _ := unstructured.NestedString(u.Object, "spec", "title")
			notes := u.GetAnnotations()
			if is != title || notes[api.AnnoSourceChecksum] != f.hash || notes[api.AnnoFolder] != parent(name) {
				h.Errorf("dashboard of %q is %q in %q, want %q in %q", name, is, notes, title, parent(name))
			}
		}
	}
	for key := range boards {
		name, uid, _ := strings.Cut(key, "\x00")
		f, there := files[name]
		_, told := warnings[name]
		if !told && !shadowed(files, name) && (!there || uid != between(h.blobs[f.hash], `"uid":"`)) {
			h.Errorf("dashboard %s of %q is not in Git", uid, name)
		}
	}
}

// shadowed reports whether an entry that no pull uses is at or above a path: what was made from
// there stays.
func shadowed(files map[string]listed, p string) bool {
	for ; p != "."; p = path.Dir(p) {
		if files[p].mode == "refused" {
			return true
		}
	}
	return false
}

// between returns the text from a mark to the next quote.
func between(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	out, _, _ := strings.Cut(rest, `"`)
	return out
}
