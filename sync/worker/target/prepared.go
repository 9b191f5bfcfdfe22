package target

import (
	"runtime"
	"sync"

	"limpet/state"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
)

// maxPrepared bounds the objects that wait to be written, with their specs compressed: some 2,000
// dashboards.
const maxPrepared = 8 << 20

// Prepared are the objects of files that were judged while their pack came, for an API of this
// process in which nothing of the Repository is yet. Their specs are as the state file stores them,
// so that no file is inflated twice. Files that it does not prepare are left to the plan.
type Prepared struct {
	store *state.Store
	file  resources.File // each of them, but for its path
	files *arrivals

	mu   sync.Mutex          // guards all below
	kept map[string]prepared // by path
	left int                 // bytes of maxPrepared that are free
}

// prepared is an object without its spec.
type prepared struct {
	hash   string // of the file
	object *resources.Object
	end    state.Tail
}

// Prepare returns a Prepared for the objects of files in a store.
func Prepare(store *state.Store, file resources.File) *Prepared {
	p := &Prepared{store: store, file: file, kept: map[string]prepared{}, left: maxPrepared}
	p.files = newArrivals(runtime.GOMAXPROCS(0), p.add)
	return p
}

// Receive implements pack.Receiver. It is for one goroutine.
func (p *Prepared) Receive(path, hash string, exec bool, content []byte) {
	if !repopath.IsResourceFile(path) || len(content) > resources.MaxFile || !p.reserve(0) {
		git.Recycle(content)
		return
	}
	p.files.receive(path, hash, exec, content)
}

// reserve takes bytes of the limit, and reports whether the limit is not reached.
func (p *Prepared) reserve(bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left -= bytes
	return p.left > 0
}

func (p *Prepared) add(f arrived) {
	file := p.file
	file.Path = f.Path
	o, err := resources.Judge(file, f.content)
	if err != nil {
		return
	}
	end, held, ok := o.Detach()
	if !ok {
		return
	}
	tail, err := p.store.Tail(end, 0)
	if err != nil || tail.Size() == 0 || !p.reserve(tail.Stored()+held) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[f.Path] = prepared{f.Hash, o, tail}
}

// Take implements resources.Prepared.
func (p *Prepared) Take(path, hash string) (*resources.Object, bool) {
	p.mu.Lock()
	one, there := p.kept[path]
	delete(p.kept, path)
	p.mu.Unlock()
	if !there || one.hash != hash {
		return nil, false
	}
	end, err := p.store.ReadTail(one.end)
	if err != nil {
		return nil, false
	}
	one.object.Attach(end, one.end)
	return one.object, true
}

// Close ends the work on files that have come.
func (p *Prepared) Close() { p.files.end() }
