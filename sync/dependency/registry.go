package dependency

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

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

// Ref names an object or a file: one that uses others, or one that is used.
type Ref struct{ Kind, Namespace, Name string }

func compare(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// maxUses bounds what one object can use. A Repository has two secure fields; a GitRepository may include a hundred others.
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

// observe notes the version of a ref, "" when it does not exist, and returns its users
// in order when it is another version than before. The first version is no change.
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

// usersOf returns the users of a ref, in order.
func (r *registry) usersOf(ref Ref) []Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.users[ref]), compare)
}

// used returns the refs of these kinds that have users, in order.
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
