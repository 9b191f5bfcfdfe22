package worker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"sync"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/resources"
	"limpet/sync/worker/drift"
	"limpet/sync/worker/status"
)

// versions are those of the objects of a Repository that are what their files say. An object that
// nothing has written since limpet did is one of them. So they are kept after a write, and after a
// comparison that has found no difference: the next check lists versions, and reads other objects
// only.
type versions struct {
	store *state.Store // nil = they are not kept
	repo  repository
	rules [][]string // pointers that are not compared; other rules are other versions

	mu      sync.Mutex        // guards the fields below
	known   map[uint64]uint64 // see state.Store.PutVersions
	changed bool
}

// newVersions reads the ignore rules and the versions of a Repository.
func newVersions(ctx context.Context, store *state.Store, repo repository) (*versions, error) {
	v := &versions{store: store, repo: repo, known: map[uint64]uint64{}}
	var err error
	if v.rules, err = api.ParsePointers(api.Annotation(repo.object, api.AnnoDriftIgnore)); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", api.AnnoDriftIgnore, err)
	}
	if store != nil {
		v.known, err = store.Versions(ctx, repo.namespace(), repo.name(), repo.uid())
	}
	return v, err
}

// has reports whether any version of the object is known; same reports that it is this one.
func (v *versions) has(i resources.Item) (has, same bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, has := v.known[nameSum(i)]
	return has, has && known == v.sum(i)
}

// add adds an object in its present version.
func (v *versions) add(i resources.Item) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known[nameSum(i)] = v.sum(i)
	v.changed = true
}

// keepOnly removes the objects that are not live.
func (v *versions) keepOnly(live []resources.Item) {
	there := map[uint64]bool{}
	for _, item := range live {
		there[nameSum(item)] = true
	}
	before := len(v.known)
	maps.DeleteFunc(v.known, func(name, _ uint64) bool { return !there[name] })
	v.changed = v.changed || len(v.known) != before
}

// save stores the versions where they have changed.
func (v *versions) save(ctx context.Context) error {
	if !v.changed || v.store == nil {
		return nil
	}
	return v.store.PutVersions(ctx, v.repo.namespace(), v.repo.name(), v.repo.uid(), v.known)
}

func nameSum(i resources.Item) uint64 { return sum(i.Group, i.Resource, i.Name) }

// sum is that of an object in one version.
func (v *versions) sum(i resources.Item) uint64 {
	return sum(i.UID, i.ResourceVersion, fmt.Sprintf("%q", v.rules))
}

func sum(parts ...string) uint64 {
	s := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(s[:])
}

// keepVersions stores the versions of objects that were written. Without them the next check reads
// the objects.
func keepVersions(ctx context.Context, store *state.Store, repo repository, written []resources.Item) error {
	if store == nil || len(written) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), status.EndTime)
	defer cancel()
	v, err := newVersions(ctx, nil, repo)
	if err != nil {
		return err
	}
	for _, item := range written {
		v.add(item)
	}
	return store.AddVersions(ctx, repo.namespace(), repo.name(), repo.uid(), v.known)
}

// rewriteDrifted adds the objects to a plan that are not what they were made from.
func (r *pull) rewriteDrifted(ctx context.Context, plan *resources.Plan) error {
	v, err := newVersions(ctx, r.worker.o.Store, r.repo)
	if err != nil {
		return err
	}
	c := &comparison{objects: r.objects, versions: v, unread: r.unread.before.Files, progress: r.progress, log: r.log,
		report: new(drift.Report)}
	if err := c.files(ctx, plan, nil); err != nil {
		return err
	}
	drifted := map[resources.Identity]bool{}
	for _, item := range c.report.Items {
		drifted[resources.Identity{Group: item.Group, Kind: item.Kind, Name: item.Name}] = true
	}
	plan.Rewrite(drifted)
	return v.save(ctx)
}
