package worker

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
	"limpet/sync/worker/checkout"
)

// TestInStep: after each pull of a random history the target is what git ls-tree lists, in
// presence, type, mode, name and content, or the job names what is not. A pull that ends as error
// before it writes changes nothing.
func TestInStep(t *testing.T) {
	t.Parallel()
	seed, n := suite.Seed(t), suite.Count(30, 2000)
	const shards = 4
	var counts [len(counted)]atomic.Int64
	t.Cleanup(func() {
		var said []string
		for i, what := range counted {
			said = append(said, fmt.Sprintf("%d %s", counts[i].Load(), what))
		}
		t.Log(strings.Join(said, ", "))
	})
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			url, transport := serverOf(t, "embedded", store)
			for i := shard; i < n && !t.Failed(); i += shards {
				newHistory(t, rand.New(rand.NewPCG(seed, uint64(i))), store, url, transport, &counts).run(i)
			}
		})
	}
}

// What is counted over all histories.
const (
	histories = iota
	pulls
	accepted
	guarded
	crashed
	failed
	warned
	byHand
)

var counted = [...]string{"histories", "pulls", "accepted", "guarded", "crashed", "failed", "warnings", "edits by hand"}

// entry is a file of a commit: its mode, and its content or the target of a link.
type entry struct{ mode, data string }

// history is a Repository with its Git repository, which change at random.
type history struct {
	*testing.T
	*rand.Rand
	counts    *[len(counted)]atomic.Int64
	cut       *cut
	client    *kube.Client
	store     *state.Store
	mirrors   *git.Mirrors
	namespace string
	dir       string // of all its files
	tree      map[string]entry
	past      []map[string]entry // trees of the commits
	hashes    []string
	blobs     map[string]string // contents by hash
	spec      string            // spec.git.path
	sink      bool
	strict    bool
	edited    bool // by hand, since the last full pull
	again     bool // the next run is another attempt
	log       []string
}

// cut is a transport that fails writes of dashboards: one with the status 403, or all after some as
// if the agent were gone.
type cut struct {
	next   http.RoundTripper
	refuse atomic.Bool
	after  atomic.Int64
	gone   atomic.Pointer[context.CancelCauseFunc]
}

func (c *cut) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || strings.Contains(req.URL.Path, api.ProvisioningGroup) {
		return c.next.RoundTrip(req)
	}
	if c.refuse.CompareAndSwap(true, false) {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","status":"Failure","reason":"Forbidden","message":"forbidden","code":403}`)), Request: req}, nil
	}
	if gone := c.gone.Load(); gone != nil && c.after.Add(-1) < 0 {
		(*gone)(jobs.ErrLost)
		return nil, jobs.ErrLost
	}
	return c.next.RoundTrip(req)
}

func newHistory(t *testing.T, r *rand.Rand, store *state.Store, url string, transport http.RoundTripper,
	counts *[len(counted)]atomic.Int64) *history {
	t.Helper()
	h := &history{T: t, Rand: r, counts: counts, cut: &cut{next: transport}, store: store, dir: t.TempDir(), tree: map[string]entry{},
		blobs: map[string]string{}, namespace: fmt.Sprintf("in-step-%d", namespaces.Add(1))}
	gittest.Init(t, h.dir+"/origin.git", true, "")
	var err error
	if h.client, err = kube.Connect(t.Context(), kube.Config{Server: url, Transport: h.cut, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	h.restart()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"title": "In step", "type": "git", "workflows": []any{}, "git": map[string]any{"url": "file://" + h.dir + "/origin.git", "branch": "main"},
		"sync": map[string]any{"enabled": true, "target": []string{"folder", "folderless"}[h.IntN(2)], "intervalSeconds": int64(60)}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("repo")
	if _, err := h.client.Resource(api.Repositories).Namespace(h.namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *history) restart() {
	h.Helper()
	if h.mirrors != nil {
		h.mirrors.Close()
		if h.IntN(2) == 0 { // mirrors are a cache
			os.RemoveAll(h.dir + "/mirrors")
		}
	}
	var err error
	if h.mirrors, err = git.Open(h.dir+"/mirrors", git.Options{AllowLocal: []string{h.dir}}); err != nil {
		h.Fatal(err)
	}
}

func (h *history) git(in []byte, args ...string) string {
	h.Helper()
	return gittest.Git(h, h.dir, in, args...)
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) run(number int) {
	defer func() {
		h.mirrors.Close()
		h.client.Close()
		os.RemoveAll(h.dir)
		if h.Failed() {
			h.Logf("history %d:\n%s", number, strings.Join(h.log, "\n"))
		}
	}()
	h.counts[histories].Add(1)
	h.change(6 + h.IntN(8))
	for range 4 + h.IntN(4) {
		switch h.IntN(12) {
		case 0:
			h.spec = []string{"", "d", "d/e", "f"}[h.IntN(4)]
			h.patch(fmt.Sprintf(`{"spec":{"git":{"path":%q}}}`, h.spec))
		case 1:
			h.sink = !h.sink
			dir := "null"
			if h.sink {
				dir = fmt.Sprintf("%q", h.dir+"/sink")
			}
			h.patch(fmt.Sprintf(`{"metadata":{"annotations":{"limpet/sink-dir":%s}}}`, dir))
		case 2:
			h.strict = !h.strict
			h.patch(fmt.Sprintf(`{"metadata":{"annotations":{"limpet/sink-strict":"%t"}}}`, h.strict))
		case 3:
			h.patch(fmt.Sprintf(`{"metadata":{"annotations":{"limpet/drift":%q}}}`, []string{"report", "off", "correct"}[h.IntN(3)]))
		case 4, 5:
			h.edit()
		case 6:
			if at := h.IntN(len(h.hashes)); len(h.hashes) > 1 {
				h.git(nil, "-C", "origin.git", "update-ref", "refs/heads/main", h.hashes[at])
				h.tree, h.hashes, h.past = maps.Clone(h.past[at]), h.hashes[:at+1], h.past[:at+1]
				h.note("reset to %d", at)
			}
		case 7:
			h.restart()
			h.note("restart")
		default:
			h.change(1 + h.IntN(4))
		}
		h.step()
		if h.Failed() {
			return
		}
	}
}

func (h *history) patch(patch string) {
	h.Helper()
	h.note("%s", patch)
	if _, err := h.client.Resource(api.Repositories).Namespace(h.namespace).Patch(h.Context(), "repo", "application/merge-patch+json",
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		h.Fatal(err)
	}
}

var names = []string{"a.json", "b.json", "c.yaml", "d.json", "run.sh", "n.txt", "x y.json", ".hidden.json", "ü.json", "Wendy's.txt", "a&b.json",
	"e", "d", "_folder.json", ".keep", "n\u0308.txt", "\xff.txt"}

// change commits some changes of files.
func (h *history) change(n int) {
	h.Helper()
	for range n {
		name := []string{"", "", "d/", "d/e/", "f/", "f/g/"}[h.IntN(6)] + names[h.IntN(len(names))]
		old := slices.Sorted(maps.Keys(h.tree))
		e := entry{mode: []string{"100644", "100644", "100644", "100644", "100755", "120000", "160000"}[h.IntN(7)]}
		switch h.IntN(8) {
		case 0, 1:
			if len(old) > 0 {
				delete(h.tree, old[h.IntN(len(old))])
			}
			continue
		case 2: // a rename, with or without an edit
			if len(old) > 0 {
				from := old[h.IntN(len(old))]
				e = h.tree[from]
				delete(h.tree, from)
			}
		case 3: // the mode alone
			if len(old) > 0 {
				name = old[h.IntN(len(old))]
				if was := h.tree[name]; strings.HasPrefix(was.mode, "100") {
					e = entry{map[string]string{"100644": "100755", "100755": "100644"}[was.mode], was.data}
				}
			}
		}
		if e.data == "" {
			e.data = h.content(e.mode, name)
		}
		for p := range h.tree {
			if strings.HasPrefix(p, name+"/") || strings.HasPrefix(name, p+"/") {
				delete(h.tree, p)
			}
		}
		h.tree[name] = e
	}
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/heads/main\ncommitter a <a@b> %d +0000\ndata 1\nx\n", 1_700_000_000+len(h.hashes))
	if len(h.hashes) > 0 {
		fmt.Fprintf(&in, "from %s\n", h.hashes[len(h.hashes)-1])
	}
	in.WriteString("deleteall\n")
	for _, p := range slices.Sorted(maps.Keys(h.tree)) {
		var quoted strings.Builder
		for _, b := range []byte(p) {
			fmt.Fprintf(&quoted, "\\%03o", b)
		}
		e := h.tree[p]
		if e.mode == "160000" {
			fmt.Fprintf(&in, "M %s %s \"%s\"\n", e.mode, strings.Repeat("1", 40), quoted.String())
			continue
		}
		fmt.Fprintf(&in, "M %s inline \"%s\"\ndata %d\n%s\n", e.mode, quoted.String(), len(e.data), e.data)
		h.blobs[blobHash([]byte(e.data))] = e.data
	}
	h.git(in.Bytes(), "-C", "origin.git", "fast-import", "--quiet", "--force")
	head := gittest.Ref(h, h.dir+"/origin.git", "refs/heads/main")
	h.hashes, h.past = append(h.hashes, head), append(h.past, maps.Clone(h.tree))
	h.note("commit %d: %q", len(h.hashes)-1, h.tree)
}

func (h *history) content(mode, name string) string {
	switch {
	case mode == "120000":
		return []string{"a.json", "d", "../x", "/etc/passwd"}[h.IntN(4)]
	case path.Base(name) == "_folder.json" && h.IntN(4) > 0:
		return fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"fu%d"},"spec":{"title":"T%d"}}`,
			h.IntN(4), h.IntN(3))
	}
	switch h.IntN(8) {
	case 0:
		return "{" + strings.Repeat(" ", h.IntN(3))
	case 1:
		return fmt.Sprintf(`{"x":%d}`, h.IntN(3))
	case 2:
		return fmt.Sprintf("text %d", h.IntN(9))
	}
	return board(fmt.Sprintf("u%d", h.IntN(14)), fmt.Sprintf("Title %d", h.IntN(4)))
}

func blobHash(data []byte) string {
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data)))
}

// edit changes the target by hand.
func (h *history) edit() {
	h.Helper()
	h.counts[byHand].Add(1)
	h.edited = true
	if h.sink {
		all := slices.Sorted(maps.Keys(h.disk()))
		if len(all) == 0 {
			return
		}
		name, how := all[h.IntN(len(all))], h.IntN(6)
		file := filepath.Join(h.dir, "sink", name)
		h.note("edit %d of %q", how, name)
		switch how {
		case 0:
			os.WriteFile(file, []byte("by hand"), 0o644)
		case 1:
			info, err := os.Stat(file)
			if err == nil {
				os.Chmod(file, info.Mode()^0o111)
			}
		case 2:
			os.Remove(file)
		case 3:
			os.Remove(file)
			os.Symlink("elsewhere", file)
		case 4:
			os.Remove(file)
			os.Mkdir(file, 0o755)
		case 5:
			os.WriteFile(filepath.Join(h.dir, "sink", "hand.txt"), []byte("mine"), 0o644)
		}
		return
	}
	kind := []schema.GroupVersionResource{dashboards, folders}[h.IntN(3)/2]
	objects := h.objects(kind)
	if len(objects) == 0 {
		return
	}
	name := objects[slices.Sorted(maps.Keys(objects))[h.IntN(len(objects))]].GetName()
	at := h.client.Resource(kind).Namespace(h.namespace)
	h.note("edit of %s %s", kind.Resource, name)
	var err error
	switch h.IntN(3) {
	case 0:
		if kind == dashboards {
			err = at.Delete(h.Context(), name, metav1.DeleteOptions{})
			break
		}
		fallthrough
	default:
		_, err = at.Patch(h.Context(), name, "application/merge-patch+json", []byte(`{"spec":{"title":"by hand"}}`), metav1.PatchOptions{})
	}
	if err != nil {
		h.Fatal(err)
	}
}

// step pulls once, or until the pull is accepted.
func (h *history) step() {
	h.Helper()
	full, consent := h.edited || h.IntN(4) == 0, h.IntN(4) == 0
	for range 3 {
		before := h.snapshot()
		switch h.IntN(10) {
		case 0:
			h.cut.refuse.Store(true)
		case 1:
			h.cut.after.Store(int64(h.IntN(4)))
			ctx, cancel := context.WithCancelCause(h.Context())
			h.cut.gone.Store(&cancel)
			_, _, err := h.pull(ctx, full, consent)
			h.cut.gone.Store(nil)
			cancel(nil)
			if errors.Is(err, jobs.ErrLost) {
				h.counts[crashed].Add(1)
				h.again = true
				return
			}
		}
		warnings, said, err := h.pull(h.Context(), full, consent)
		h.cut.refuse.Store(false)
		switch all := fmt.Sprint(err, said.Errors); {
		case err == nil && said.State != api.StateError:
			h.counts[accepted].Add(1)
			h.edited = h.edited && !full
			if !h.edited {
				h.compare(warnings, said.Warnings)
			}
			return
		case strings.Contains(all, "orbidden"):
			h.counts[failed].Add(1)
			return // with half of the commit, perhaps
		case strings.Contains(all, "nothing was changed"):
			h.counts[guarded].Add(1)
			if now := h.snapshot(); now != before {
				h.Errorf("refused, and changed: %v\n%s\nwas\n%s", err, now, before)
				return
			}
			if full, consent = h.edited || h.IntN(2) == 0, h.IntN(2) == 0; h.IntN(3) == 0 {
				return
			}
		case strings.Contains(all, "in the way"), strings.Contains(all, "not a regular file"):
			h.counts[guarded].Add(1)
			os.Remove(h.dir + "/sink/hand.txt")
		default:
			h.Errorf("%v %+v", err, said)
			return
		}
	}
}

func (h *history) pull(ctx context.Context, full, consent bool) (map[string]string, jobs.Outcome, error) {
	h.Helper()
	h.counts[pulls].Add(1)
	u, err := h.client.Resource(api.Repositories).Namespace(h.namespace).Get(h.Context(), "repo", metav1.GetOptions{})
	if err != nil {
		h.Fatal(err)
	}
	view, err := api.RepositoryView(u)
	if err != nil {
		h.Fatal(err)
	}
	job := &unstructured.Unstructured{Object: map[string]any{}}
	api.SetAnnotation(job, api.AnnoAllowMassDelete, fmt.Sprint(consent))
	task := &jobs.Task{Object: job, Job: api.Job{Spec: api.JobSpec{Action: "pull", Repository: "repo", Pull: &api.PullOptions{Incremental: !full}}},
		Repo: u, Repository: view, Namespace: h.namespace, Name: "job", UID: "uid", Attempt: 1, Last: true, Progress: jobs.NewProgress()}
	if h.again {
		task.Attempt = 2
	}
	h.again = false
	pull := NewPull(PullOptions{Client: h.client, Source: checkout.Source{Git: h.mirrors, Credentials: auth.Chain()}, Store: h.store, SinkPrefixes: []string{h.dir},
		Logger: slog.New(slog.DiscardHandler)})
	err = pull.Run(ctx, task)
	said := task.Progress.Outcome(err)
	h.note("pull full=%t consent=%t attempt=%d: %s %s %q", full, consent, task.Attempt, said.State, said.Message, said.Warnings)
	warnings := map[string]string{}
	for _, s := range task.Progress.Summary() {
		for _, w := range s.ResourceWarnings {
			warnings[w.Path] = w.Message
		}
	}
	h.counts[warned].Add(int64(len(warnings)))
	return warnings, said, err
}
