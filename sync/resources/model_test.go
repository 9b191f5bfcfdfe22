package resources

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// model is a server in memory with the rules that matter to Apply: versions,
// preconditions, names. The real servers are met in package workers.
type model struct {
	mu       sync.Mutex // guards all fields
	objects  map[string]map[string]any
	revision int
	calls    []string                                // "POST folders x", in order
	fault    func(verb, resource, name string) error // nil = no faults
}

func newModel() *model { return &model{objects: map[string]map[string]any{}} }

func (m *model) call(verb string, ref Ref) error {
	m.calls = append(m.calls, verb+" "+ref.Resource+" "+ref.Name)
	if m.fault != nil {
		return m.fault(verb, ref.Resource, ref.Name)
	}
	return nil
}

func (m *model) Get(_ context.Context, ref Ref, whole bool) (*Live, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("GET", ref); err != nil {
		return nil, err
	}
	o, there := m.objects[ref.Resource+"/"+ref.Name]
	if !there {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: ref.Resource}, ref.Name)
	}
	data, _ := json.Marshal(o)
	l, err := ParseLive(data)
	if whole && err == nil {
		l.Raw = data
	}
	return l, err
}

func (m *model) Create(_ context.Context, ref Ref, _ bool, body func(string) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("POST", ref); err != nil {
		return err
	}
	key := ref.Resource + "/" + ref.Name
	if m.objects[key] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: ref.Resource}, ref.Name)
	}
	o, meta := decoded(body("v1"))
	m.revision++
	meta["uid"], meta["resourceVersion"] = fmt.Sprintf("uid-%d", m.revision), fmt.Sprint(m.revision)
	m.objects[key] = o
	return nil
}

func (m *model) Update(_ context.Context, ref Ref, _ bool, body func(string) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("PUT", ref); err != nil {
		return err
	}
	key := ref.Resource + "/" + ref.Name
	old, there := m.objects[key]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: ref.Resource}, ref.Name)
	}
	o, meta := decoded(body("v1"))
	was := old["metadata"].(map[string]any)
	if meta["uid"] != was["uid"] || meta["resourceVersion"] != was["resourceVersion"] {
		return apierrors.NewConflict(schema.GroupResource{Resource: ref.Resource}, ref.Name, fmt.Errorf("it changed"))
	}
	m.revision++
	meta["resourceVersion"] = fmt.Sprint(m.revision)
	m.objects[key] = o
	return nil
}

func (m *model) Delete(_ context.Context, ref Ref, uid, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("DELETE", ref); err != nil {
		return err
	}
	key := ref.Resource + "/" + ref.Name
	old, there := m.objects[key]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: ref.Resource}, ref.Name)
	}
	was := old["metadata"].(map[string]any)
	if uid != was["uid"] || version != was["resourceVersion"] {
		return apierrors.NewConflict(schema.GroupResource{Resource: ref.Resource}, ref.Name, fmt.Errorf("it changed"))
	}
	if ref.Resource == FolderResource {
		for _, o := range m.objects {
			a, _ := o["metadata"].(map[string]any)["annotations"].(map[string]any)
			if a[api.AnnoFolder] == ref.Name {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadRequest, Message: "folder " + ref.Name + " is not empty"}}
			}
		}
	}
	delete(m.objects, key)
	return nil
}

func decoded(body []byte) (o, meta map[string]any) {
	if err := json.Unmarshal(body, &o); err != nil {
		panic(err)
	}
	return o, o["metadata"].(map[string]any)
}

// add puts an object on the server that no sync has made.
func (m *model) add(resource, name string, annotations map[string]string) {
	body := marshal(map[string]any{"metadata": map[string]any{"name": name, "annotations": annotations},
		"spec": map[string]any{"title": name}})
	if err := m.Create(context.Background(), Ref{Resource: resource, Name: name}, false, func(string) []byte { return body }); err != nil {
		panic(err)
	}
	m.calls = nil
}

// live lists what repository "repo" manages.
func (m *model) live() []Item {
	m.mu.Lock()
	defer m.mu.Unlock()
	var items []Item
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		data, _ := json.Marshal(m.objects[key])
		l, _ := ParseLive(data)
		if !Manages("repo", l.Annotations) {
			continue
		}
		resource, _, _ := strings.Cut(key, "/")
		i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Resource == resource })
		items = append(items, l.Item(kinds[i]))
	}
	return items
}

// state is what the tree decides: for each object path, hash, folder and title.
func (m *model) state() map[string]string {
	out := map[string]string{}
	for _, i := range m.live() {
		title := ""
		if i.IsFolder() {
			title = i.Title
		}
		out[i.Resource+"/"+i.Name] = fmt.Sprintf("%s %.8s in %q %q", i.Path, i.Hash, i.Folder, title)
	}
	return out
}

// take returns the calls since the last take; writes leaves the reads out.
func (m *model) take() (calls, writes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls, m.calls = m.calls, nil
	for _, c := range calls {
		if !strings.HasPrefix(c, "GET") {
			writes = append(writes, c)
		}
	}
	return calls, writes
}

// repo is a tree of files in memory: path -> content.
type repo map[string]string

func (r repo) hash(p string) string {
	h := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(r[p]), r[p]))
	return hex.EncodeToString(h[:])
}

func (r repo) tree() Tree {
	var t Tree
	for _, p := range slices.Sorted(maps.Keys(r)) {
		t.Files = append(t.Files, TreeFile{Path: p, Hash: r.hash(p)})
	}
	return t
}

func (r repo) Recycle([]byte) {}

func (r repo) Read(_ context.Context, hash string) ([]byte, error) {
	for p := range r {
		if r.hash(p) == hash {
			return []byte(r[p]), nil
		}
	}
	return nil, fmt.Errorf("no blob %s", hash)
}

func (r repo) metas(items []Item) map[string]FolderMeta {
	out := map[string]FolderMeta{}
	for _, f := range FolderFilesToRead(r.tree(), items) {
		out[repopath.Parent(f.Path)] = ParseFolderFile(f.Path, f.Hash, []byte(r[f.Path]))
	}
	return out
}

// identities reads what Settle wants.
func (r repo) identities(changes []Change) map[string]Identity {
	out := map[string]Identity{}
	for _, c := range changes {
		if o, err := Parse(file(c.Path), []byte(r[c.Path])); err == nil {
			out[c.Path] = o.Identity()
		}
	}
	return out
}

func (r repo) full(target Target, items []Item) *Plan {
	p := Full(target, r.tree(), items, r.metas(items))
	p.Settle(r.identities(p.Unread()))
	return p
}

// increment plans the way from old to r without looking at dashboards.
func (r repo) increment(target Target, old repo, items []Item) *Plan {
	var changes []FileChange
	for _, p := range slices.Sorted(maps.Keys(old)) {
		c := FileChange{Action: Deleted, Path: p, FromHash: old.hash(p)}
		if _, kept := r[p]; kept {
			if r[p] == old[p] {
				continue
			}
			c.Action, c.Hash = Updated, r.hash(p)
		}
		changes = append(changes, c)
	}
	for _, p := range slices.Sorted(maps.Keys(r)) {
		if _, was := old[p]; !was {
			changes = append(changes, FileChange{Action: Created, Path: p, Hash: r.hash(p)})
		}
	}
	changes = renames(changes)
	for i, c := range changes {
		if p := c.OldFile(); p != "" {
			if o, err := Parse(file(p), []byte(old[p])); err == nil {
				id := o.Identity()
				changes[i].Previous = &id
			}
		}
	}
	var folders []Item
	for _, i := range items {
		if i.IsFolder() {
			folders = append(folders, i)
		}
	}
	p := Increment(target, r.tree(), folders, r.metas(folders), changes)
	p.Settle(r.identities(p.Unread()))
	return p
}

// renames joins deletions and creations of one blob, as Git does.
func renames(changes []FileChange) []FileChange {
	var out []FileChange
	used := map[int]bool{}
	for _, c := range changes {
		if c.Action == Created {
			for i, d := range changes {
				if d.Action == Deleted && d.FromHash == c.Hash && !used[i] {
					used[i] = true
					c.Action, c.From, c.FromHash = Renamed, d.Path, d.FromHash
					break
				}
			}
		}
		out = append(out, c)
	}
	var kept []FileChange
	for i, c := range out {
		if !used[i] {
			kept = append(kept, c)
		}
	}
	return kept
}

// log is a Recorder that keeps all results.
type log struct {
	mu      sync.Mutex // guards results
	results []Result
	max     int // errors before the end; 0 = none
}

func (l *log) Record(_ context.Context, r Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results = append(l.results, r)
}

func (l *log) TooManyErrors() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.results {
		n += b2i(r.Err != nil)
	}
	if l.max > 0 && n >= l.max {
		return fmt.Errorf("too many errors: %d", n)
	}
	return nil
}

// warnings returns the warnings and errors by path.
func (l *log) warnings() map[string]string {
	out := map[string]string{}
	for _, r := range l.results {
		if r.Warning != nil {
			out[r.Path] += r.Warning.Error()
		}
		if r.Err != nil {
			out[r.Path] += "ERROR " + r.Err.Error()
		}
	}
	return out
}

// run applies a plan and returns what was recorded.
func (m *model) run(t *testing.T, r repo, p *Plan) *log {
	t.Helper()
	l := &log{}
	if _, err := (Apply{Server: m, Reader: r, Recorder: l, Namespace: "default"}).Run(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	return l
}

func dashboard(uid, title string) string {
	return fmt.Sprintf(`{"uid":%q,"title":%q,"panels":[],"schemaVersion":39,"tags":[]}`, uid, title)
}

func folderFile(uid, title string) string {
	return fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":%q},"spec":{"title":%q}}`, uid, title)
}
