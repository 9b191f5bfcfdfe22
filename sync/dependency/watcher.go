// Package dependency knows which objects use which others, and has those look again that
// use what has changed: Repositories and Connections (any object can) that use
// Secrets and credential files (anything can be used).
//
//	of.go        what an object uses, as it says itself (pure)
//	registry.go  who uses what, and which version of it there was (pure)
//	files.go     which version there is of credential files
//	notify.go    when to look for another one
//	secrets.go   which version there is of Secrets
//	watcher.go   that those who use it are told, once for a burst of changes
//
// # Nothing is missed
//
// Who uses something says so (Use) before reading any of it, each time it looks,
// all at once and in place of what it said before, so at no time is a thing in use
// that nobody watches for it. And who reads something tells which version that was
// (Saw, SawFiles), since a watch may show the next one only: whoever comes
// first, the reader or the watch, the other one then shows another version, and all
// users look again. A change that was seen twice, or in the wrong order, is one look
// too many and nothing else.
//
// Nothing is kept over a restart. The first look at each object says again what it
// uses; what has changed while nobody watched is found like any other change of the
// world outside: nobody is taken for healthy, or ill, for longer than a check is
// good for, and every check reads the credentials anew. That is also how a change
// is found where Secrets may be read but not watched, and then one who reads it
// tells all others.
//
// Nothing of what Secrets and files hold is kept, only which version there was.
package dependency

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
)

const (
	// settle is how long changes are gathered: what replaces credentials touches
	// several files, and Secrets one after another.
	settle = time.Second
	// gap is the least time between two that are told: a Secret of a thousand
	// Repositories has fifty of them look each second.
	gap = 20 * time.Millisecond
)

// Options of a Watcher. Tell and Logger must be set.
type Options struct {
	// Tell is called for each that has to look again, one after another. It must not
	// block.
	Tell   func(user Thing)
	Dir    string       // with credential files; "" = none
	Client *kube.Client // of the API that has the Secrets; nil = none
	Logger *slog.Logger
}

// Watcher tells those who use something that it has changed. Safe for concurrent
// use.
type Watcher struct {
	o        Options
	registry Registry
	files    *files
	resource schema.GroupVersionResource // of Secrets
	used     chan struct{}               // capacity 1: what is used is not what it was
	touched  chan struct{}               // capacity 1: files may not be what they were, or others are used
	changed  chan struct{}               // capacity 1: due is not empty
	may      func(dir string) error      // why changes in a directory are not told; tells
	said     sync.Map                    // namespaces whose Secrets are not watched

	mu  sync.Mutex // guards due
	due map[Thing]bool
}

// New makes a Watcher. It starts nothing.
func New(o Options) *Watcher {
	return &Watcher{o: o, files: newFiles(o.Dir), resource: api.Secrets, may: tells, due: map[Thing]bool{},
		used: make(chan struct{}, 1), touched: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// Use notes all that a user uses, in place of what it used before; nothing when it
// is gone.
func (w *Watcher) Use(user Thing, wants ...Want) {
	if w.registry.Use(user, wants...) {
		signal(w.used)
		signal(w.touched)
	}
}

// Saw notes which version of a thing somebody has read or seen, "" for none. Of
// Secrets it is that of kube.ObjectVersionOf.
func (w *Watcher) Saw(t Thing, version string) { w.saw(t, version, nil) }

// Changed says that those who use a thing have to look again, whatever its version.
func (w *Watcher) Changed(t Thing) { w.again(w.registry.Users(t)) }

// SawFiles notes that somebody is about to read the files of an object.
func (w *Watcher) SawFiles(namespace, name string) {
	t := Thing{File, namespace, name}
	w.saw(t, w.files.lookAt(t), nil)
}

// SawPath is the same for a single file.
func (w *Watcher) SawPath(path string) {
	t := Thing{Kind: Path, Name: path}
	w.saw(t, w.files.lookAt(t), nil)
}

func (w *Watcher) saw(t Thing, version string, labels map[string]string) {
	again := w.registry.Saw(t, version, labels)
	if len(again) > 0 {
		w.o.Logger.Debug("has changed", "kind", t.Kind, "namespace", t.Namespace, "name", t.Name, "users", len(again))
		w.again(again)
	}
}

// again has users told.
func (w *Watcher) again(users []Thing) {
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

// Run watches until ctx ends, and returns when nothing of it runs any more.
func (w *Watcher) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { w.tell(ctx); return nil })
	g.Go(func() error { w.poll(ctx); return nil })
	if w.o.Client != nil {
		g.Go(func() error { w.follow(ctx); return nil })
	}
	return g.Wait()
}

// tell tells those who have to look again.
func (w *Watcher) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		for pause := settle; rest(ctx, pause); pause = gap {
			user, ok := w.next()
			if !ok {
				break
			}
			w.o.Tell(user)
		}
	}
}

// next takes the first of those who have to look again. Connections come before
// the Repositories that use them.
func (w *Watcher) next() (user Thing, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.due) == 0 {
		return Thing{}, false
	}
	user = slices.MinFunc(slices.Collect(maps.Keys(w.due)), compare)
	delete(w.due, user)
	return user, true
}

// rest waits; false means that ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
