package dependency

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
)

// Kinds of things. Any other text is a kind too.
const (
	Repository = "Repository"
	Connection = "Connection"
	Secret     = "Secret"
	// File stands for all files of one object in the credentials directory.
	File = "file"
	// Path is a file anywhere, named by its path, without a namespace.
	Path = "path"
)

// Thing is an object or a file: one that uses others, or one that is used.
type Thing struct{ Kind, Namespace, Name string }

// Want is what somebody uses: the thing of that name or, with Labels, all of the
// kind in the namespace that have them; the name does not matter then.
type Want struct {
	Thing
	Labels labels.Selector
}

// mostWants bounds what one thing can use. A Repository has two secure fields.
const mostWants = 64

// Registry knows who uses what, and which version of it there was last. Safe for
// concurrent use. The zero Registry is empty.
type Registry struct {
	mu     sync.Mutex // guards what follows
	wants  map[Thing][]Want
	users  map[Thing]map[Thing]bool // by what is used by its name
	choosy map[Thing]map[Thing]bool // by kind and namespace: who chooses by labels there
	seen   map[Thing]seen           // of what is used
}

// seen is what there was of a thing.
type seen struct {
	version string // "" = it was not there
	labels  labels.Set
}

// Use notes all that a user uses from now on, in place of what it used before;
// nothing forgets it. It says whether that is anything else than before.
func (r *Registry) Use(user Thing, wants ...Want) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wants == nil {
		r.wants, r.seen = map[Thing][]Want{}, map[Thing]seen{}
		r.users, r.choosy = map[Thing]map[Thing]bool{}, map[Thing]map[Thing]bool{}
	}
	wants = slices.Clone(wants[:min(len(wants), mostWants)])
	before := r.wants[user]
	if slices.EqualFunc(before, wants, sameWant) {
		return false
	}
	for _, w := range before {
		users, of := r.index(w)
		if delete(users[of], user); len(users[of]) == 0 {
			delete(users, of)
		}
	}
	for _, w := range wants {
		users, of := r.index(w)
		if users[of] == nil {
			users[of] = map[Thing]bool{}
		}
		users[of][user] = true
	}
	r.wants[user] = wants
	if len(wants) == 0 {
		delete(r.wants, user)
	}
	if len(before) > 0 {
		maps.DeleteFunc(r.seen, func(t Thing, s seen) bool { return len(r.users[t]) == 0 && len(r.chosen(t, s.labels)) == 0 })
	}
	return true
}

// index is where the users of a want are, and under which key. r.mu is held.
func (r *Registry) index(w Want) (map[Thing]map[Thing]bool, Thing) {
	if w.Labels == nil {
		return r.users, w.Thing
	}
	return r.choosy, Thing{Kind: w.Kind, Namespace: w.Namespace}
}

func sameWant(a, b Want) bool {
	if a.Labels == nil || b.Labels == nil {
		return a.Thing == b.Thing && a.Labels == nil && b.Labels == nil
	}
	return a.Thing == b.Thing && a.Labels.String() == b.Labels.String()
}

func compare(a, b Thing) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// chosen are those who use a thing for its labels. r.mu is held.
func (r *Registry) chosen(t Thing, set labels.Set) map[Thing]bool {
	users := map[Thing]bool{}
	for user := range r.choosy[Thing{Kind: t.Kind, Namespace: t.Namespace}] {
		users[user] = slices.ContainsFunc(r.wants[user], func(w Want) bool {
			return w.Labels != nil && w.Kind == t.Kind && w.Namespace == t.Namespace && w.Labels.Matches(set)
		})
	}
	maps.DeleteFunc(users, func(_ Thing, matches bool) bool { return !matches })
	return users
}

// Saw notes which version there is of a thing, "" for none, and returns those that
// have to look again, in order: all of its users when it is another version than
// before, be it that they choose it by the labels that it has, or that it had. The
// first version that is seen of what is used by name is no change.
func (r *Registry) Saw(t Thing, version string, set labels.Set) []Thing {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.seen[t]
	if known && before.version == version {
		return nil
	}
	again := r.chosen(t, set)
	if len(r.users[t]) > 0 || version != "" && len(again) > 0 {
		r.seen[t] = seen{version, set}
	} else {
		delete(r.seen, t)
	}
	if known {
		maps.Copy(again, r.chosen(t, before.labels))
		maps.Copy(again, r.users[t])
	}
	return slices.SortedFunc(maps.Keys(again), compare)
}

// Users are those who use a thing by its name, in order.
func (r *Registry) Users(t Thing) []Thing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.users[t]), compare)
}

// Used are the things of a kind that are used by name, in order, and the
// namespaces where some are chosen by labels.
func (r *Registry) Used(kind string) (things []Thing, namespaces []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.users {
		if t.Kind == kind {
			things = append(things, t)
		}
	}
	for t := range r.choosy {
		if t.Kind == kind {
			namespaces = append(namespaces, t.Namespace)
		}
	}
	sort.Slice(things, func(i, j int) bool { return compare(things[i], things[j]) < 0 })
	slices.Sort(namespaces)
	return things, namespaces
}

// Absent are the things of a kind in a namespace that are used or were seen, and
// are not among the names that there are.
func (r *Registry) Absent(kind, namespace string, there map[string]bool) []Thing {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := map[Thing]bool{}
	add := func(t Thing) {
		if t.Kind == kind && t.Namespace == namespace && !there[t.Name] {
			gone[t] = true
		}
	}
	for t := range r.seen {
		add(t)
	}
	for t := range r.users {
		add(t)
	}
	return slices.SortedFunc(maps.Keys(gone), compare)
}
