// Package dependency knows which objects use which others, and wakes the users of what
// has changed: Repositories and Connections that use Secrets, Connections and files.
//
// # No change is missed
//
// A user declares what it uses (Use) before it reads any of it, each time, all at once and in place
// of what it declared before. And a reader reports which version it has read (Observe), since a
// watch may only show the next one: whichever comes first, the reader or the watch, the other one
// then shows another version, and all users are woken. A change that is seen twice, or in the wrong
// order, wakes once too often and does nothing else.
//
// Nothing is kept over a restart. The first reconcile of each object declares its uses again; what
// has changed meanwhile is found like any other change outside: every health check reads the
// credentials anew. That is also how a change is found where Secrets may be read but not watched,
// and then the one that reads it wakes all others.
//
// Nothing of what Secrets and files hold is kept, only which version was observed.
package dependency

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
)

const (
	// settle is how long changes are gathered: what replaces credentials touches several
	// files, and Secrets one after another.
	settle = time.Second
	// wakeGap is the least time between two wake-ups: a Secret of a thousand Repositories
	// has fifty of them reconcile each second.
	wakeGap = 20 * time.Millisecond

	// pollEvery is the pause between two polls of the files: two files of each of a
	// thousand Repositories take 16 ms on a small busy host.
	pollEvery = 5 * time.Second
)

// webhookSecret proves nothing to the host of a Repository, and is looked up anew for each
// delivery.
const webhookSecret = "webhookSecret"

// Of returns all that the credentials of a Repository or a Connection may come from, as the object
// names them: its Secrets, its files, its Connection and the files of that. The Secrets of a
// Connection are used by the Connection.
func Of(u *unstructured.Unstructured) (refs []Ref) {
	add := func(kind, name string) {
		if ref := (Ref{kind, u.GetNamespace(), name}); name != "" && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	add(File, u.GetName())
	connection, _, _ := unstructured.NestedString(u.Object, "spec", "connection", "name")
	add(File, connection)
	add(Connection, connection)
	if name := api.Annotation(u, api.AnnoGitProxySecret); name != "" {
		add(File, name)
		add(Secret, name)
	}
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for _, field := range slices.Sorted(maps.Keys(secure)) {
		if field == webhookSecret {
			continue
		}
		name, _, _ := unstructured.NestedString(secure, field, "name")
		add(Secret, name)
	}
	return refs
}

// Options of a Watcher. Wake and Logger must be set.
type Options struct {
	// Wake is called for each user of what has changed, one after another. It must not block.
	Wake   func(user Ref)
	Dir    string       // with credential files; "" = none
	Client *kube.Client // of the API that has the Secrets; nil = none
	Logger *slog.Logger
}

// Watcher wakes the users of what has changed. Safe for concurrent use. A nil Watcher observes
// nothing.
type Watcher struct {
	o        Options
	registry *registry
	files    files
	resource schema.GroupVersionResource // of Secrets
	used     chan struct{}               // capacity 1: the Secrets that are used are others
	changed  chan struct{}               // capacity 1: due is not empty
	denied   sync.Map                    // namespaces whose Secrets may not be watched

	mu  sync.Mutex // guards due
	due map[Ref]bool
}

// New returns a Watcher that does not run yet.
func New(o Options) *Watcher {
	return &Watcher{
		o:        o,
		registry: newRegistry(),
		files:    files{o.Dir},
		resource: api.Secrets,
		used:     make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		due:      map[Ref]bool{},
	}
}

// Use declares all that a user uses, in place of what it used before; nothing when it is gone.
func (w *Watcher) Use(user Ref, refs ...Ref) {
	if w != nil && w.registry.use(user, refs) {
		signal(w.used)
	}
}

// Observe reports the version of a ref that was read or watched, "" when it does not
// exist. Of Secrets it is that of kube.ObjectVersionOf.
func (w *Watcher) Observe(ref Ref, version string) {
	if w == nil {
		return
	}
	if users := w.registry.observe(ref, version); len(users) > 0 {
		w.o.Logger.Debug("dependency changed", "kind", ref.Kind, "namespace", ref.Namespace, "name", ref.Name, "users", len(users))
		w.wake(users)
	}
}

// ObserveFiles reports that the files of an object are about to be read.
func (w *Watcher) ObserveFiles(namespace, name string) {
	if w != nil && name != "" {
		w.observeFiles(Ref{File, namespace, name})
	}
}

// ObservePath reports that a file is about to be read.
func (w *Watcher) ObservePath(path string) {
	if w != nil {
		w.observeFiles(Ref{Kind: Path, Name: path})
	}
}

func (w *Watcher) observeFiles(refs ...Ref) {
	for ref, version := range w.files.versions(refs...) {
		w.Observe(ref, version)
	}
}

// ObserveSecret reports the answer to a read of a Secret.
func (w *Watcher) ObserveSecret(namespace, name string, u *unstructured.Unstructured, err error) {
	switch ref := (Ref{Secret, namespace, name}); {
	case err == nil:
		w.Observe(ref, kube.ObjectVersionOf(u).Version)
	case apierrors.IsNotFound(err):
		w.Observe(ref, "")
	}
}

// Changed wakes the users of a ref, whatever its version.
func (w *Watcher) Changed(ref Ref) {
	if w != nil {
		w.wake(w.registry.usersOf(ref))
	}
}

func (w *Watcher) wake(users []Ref) {
	w.mu.Lock()
	for _, user := range users {
		w.due[user] = true
	}
	w.mu.Unlock()
	signal(w.changed)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, and returns when nothing of it runs any more. It may be run again.
func (w *Watcher) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { w.wakeUsers(ctx); return nil })
	g.Go(func() error {
		for kube.Sleep(ctx, pollEvery) == nil {
			w.observeFiles(w.registry.used(File, Path)...)
		}
		return nil
	})
	if w.o.Client != nil {
		signal(w.used)
		g.Go(func() error { w.watchSecrets(ctx); return nil })
	}
	return g.Wait()
}

// wakeUsers wakes the users that are due, until ctx ends.
func (w *Watcher) wakeUsers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		for d := settle; kube.Sleep(ctx, d) == nil; d = wakeGap {
			user, ok := w.next()
			if !ok {
				break
			}
			w.o.Wake(user)
		}
	}
}

// next takes the first user that is due. Connections come before the Repositories that use them.
func (w *Watcher) next() (user Ref, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.due) == 0 {
		return Ref{}, false
	}
	user = slices.MinFunc(slices.Collect(maps.Keys(w.due)), compare)
	delete(w.due, user)
	return user, true
}

// files finds the version of files: of single ones, and of the credentials in a directory, as they
// are for each object: <namespace>.<name>/<key> or <namespace>.<name>_<key>. The version follows
// from names, times, sizes and modes; nothing is read. A file that is written again with the same
// content is a change.
type files struct{ dir string } // "" = no directory

// versions returns the version of the files of each ref, "" for none.
func (f files) versions(refs ...Ref) map[Ref]string {
	flat := map[string][]string{} // names in the directory itself, by what is before the first "_"
	for _, name := range names(f.dir) {
		if of, key, ok := strings.Cut(name, "_"); ok && key != webhookSecret {
			flat[of] = append(flat[of], name)
		}
	}
	versions := map[Ref]string{}
	for _, ref := range refs {
		if ref.Kind == Path {
			versions[ref] = stat(ref.Name)
		} else {
			versions[ref] = f.version(ref.Namespace+"."+ref.Name, flat)
		}
	}
	return versions
}

// version returns the version of the files of one object.
func (f files) version(base string, flat map[string][]string) string {
	if f.dir == "" || strings.ContainsAny(base, "/\\\x00") || strings.HasPrefix(base, ".") {
		return ""
	}
	found := flat[base]
	for _, name := range names(filepath.Join(f.dir, base)) {
		if name != webhookSecret {
			found = append(found, filepath.Join(base, name))
		}
	}
	var version strings.Builder
	for _, name := range found {
		if v := stat(filepath.Join(f.dir, name)); v != "" {
			fmt.Fprintf(&version, "%s %s\n", name, v)
		}
	}
	return version.String()
}

// names returns the sorted names in a directory, without those that begin with a dot: editors and
// Kubernetes use them.
func names(dir string) (out []string) {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// stat returns a text that changes with a file, or with what a link leads to; "" when it does not
// exist.
func stat(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return ""
	}
	return fmt.Sprintf("%d %d %s", info.ModTime().UnixNano(), info.Size(), info.Mode())
}

// Kinds of refs.
const (
	Repository = "Repository"
	Connection = "Connection"
	Secret     = "Secret"
	// GitRepository is one of Flux; its version is the digest of its artifact.
	GitRepository = "GitRepository"
	// File stands for all files of one object in the credentials directory.
	File = "file"
	// Path is a file anywhere, named by its path, without a namespace.
	Path = "path"
)

// SecretRefs returns the refs of Secrets of some names, of which "" is none, and of the files that
// may stand for them. sealed reports whether a Secret is one of this host, which no watch sees; nil =
// none is.
func SecretRefs(namespace string, sealed func(string) bool, names ...string) (refs []Ref) {
	for _, name := range names {
		if name == "" {
			continue
		}
		refs = append(refs, Ref{Kind: File, Namespace: namespace, Name: name})
		if sealed == nil || !sealed(name) {
			refs = append(refs, Ref{Kind: Secret, Namespace: namespace, Name: name})
		}
	}
	return refs
}

// Ref names an object or a file: one that uses others, or one that is used.
type Ref struct{ Kind, Namespace, Name string }

func compare(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// maxUses bounds what one object can use. A Repository has two secure fields; a GitRepository may
// include a hundred others.
const maxUses = 256

// registry holds which object uses what, and the version of it that was observed last.
type registry struct {
	mu    sync.Mutex // guards what follows
	uses  map[Ref][]Ref
	users map[Ref]map[Ref]bool
	seen  map[Ref]string // versions of what is used; "" = it did not exist
}

func newRegistry() *registry {
	return &registry{uses: map[Ref][]Ref{}, users: map[Ref]map[Ref]bool{}, seen: map[Ref]string{}}
}

// use replaces what a user uses; nothing removes the user. It reports whether that is a change.
func (r *registry) use(user Ref, refs []Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	refs = slices.Clone(refs[:min(len(refs), maxUses)])
	before := r.uses[user]
	if slices.Equal(before, refs) {
		return false
	}
	for _, ref := range before {
		delete(r.users[ref], user)
	}
	for _, ref := range refs {
		if r.users[ref] == nil {
			r.users[ref] = map[Ref]bool{}
		}
		r.users[ref][user] = true
	}
	for _, ref := range before {
		if len(r.users[ref]) == 0 {
			delete(r.users, ref)
			delete(r.seen, ref)
		}
	}
	r.uses[user] = refs
	if len(refs) == 0 {
		delete(r.uses, user)
	}
	return true
}

// observe notes the version of a ref, "" when it does not exist, and returns its users,
// sorted, when the version has changed. The first version is no change.
func (r *registry) observe(ref Ref, version string) []Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.seen[ref]
	if len(r.users[ref]) == 0 || known && before == version {
		return nil
	}
	r.seen[ref] = version
	if !known {
		return nil
	}
	return slices.SortedFunc(maps.Keys(r.users[ref]), compare)
}

// usersOf returns the users of a ref, sorted.
func (r *registry) usersOf(ref Ref) []Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.users[ref]), compare)
}

// used returns the refs of these kinds that have users, sorted.
func (r *registry) used(kinds ...string) []Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refs []Ref
	for ref := range r.users {
		if slices.Contains(kinds, ref.Kind) {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, compare)
	return refs
}
