package resources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// conflicts is how often a change is tried when the object changes under it.
const conflicts = 3

// writeFiles writes the files in parallel. Each one is read, then takes its object in the order of
// the plan, then is written. Files that have to wait for what others turn out to be come in a
// second round.
func (r *run) writeFiles(ctx context.Context) error {
	round := make([]*Change, len(r.plan.WriteFiles))
	for i := range r.plan.WriteFiles {
		round[i] = &r.plan.WriteFiles[i]
	}
	for len(round) > 0 {
		var err error
		if round, err = r.writeRound(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// readAhead is how many files are read and judged while others are written: a server that stores many
// writes at once is idle until the last of them has come.
const readAhead = 16

// writeRound returns the changes that have to wait.
func (r *run) writeRound(ctx context.Context, changes []*Change) ([]*Change, error) {
	var g errgroup.Group
	g.SetLimit(r.apply.Parallel + readAhead)
	var mu sync.Mutex // guards later
	var later []*Change
	before := make(chan struct{}) // closed when the change before has taken its object
	close(before)
	for _, c := range changes {
		if r.stop(ctx) != nil {
			break
		}
		after := make(chan struct{})
		turn := turn{before, sync.OnceFunc(func() { close(after) })}
		before = after
		g.Go(func() error {
			defer turn.pass()
			if r.writeFile(ctx, c, turn) {
				mu.Lock()
				later = append(later, c)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait() // changes record their faults
	return later, r.stop(ctx)
}

// turn keeps the order in which changes take their objects.
type turn struct {
	before <-chan struct{}
	pass   func() // lets the next change go on
}

// writeFile carries out one change. It returns true when the change has to wait for files that have
// not been read.
func (r *run) writeFile(ctx context.Context, c *Change, turn turn) (later bool) {
	item, cancel := r.item(ctx)
	defer cancel()
	if err := r.missingFolder(c.Path, c.Path); err != nil {
		r.claims.unreadable(c.Path)
		r.record(ctx, item, c, known(c), Ignored, err)
		return false
	}
	o, err := r.object(item, c)
	if err == nil {
		r.claims.read(c.Path, o.Identity())
	} else {
		r.claims.unreadable(c.Path)
	}
	select {
	case <-turn.before:
	case <-ctx.Done():
	}
	if err != nil {
		r.record(ctx, item, c, known(c), c.Action, err)
		return false
	}
	other, wait := r.claims.take(c.Path, o.Identity())
	turn.pass()
	if wait {
		return true
	}
	if other != "" {
		other = r.owner(item, c, o, other)
		r.record(ctx, item, c, o.Identity(), c.Action, &DuplicateError{o.Identity(), c.Path, other})
		return false
	}
	if c.Existing != nil && c.Existing.Identity() != o.Identity() {
		c.Replaces, c.Existing = append(c.Replaces, *c.Existing), nil
	}
	r.writes <- struct{}{}
	defer func() { <-r.writes }()
	if r.stop(ctx) != nil {
		return false
	}
	item, cancel = r.item(ctx) // the wait is not the server's
	defer cancel()
	done, err := r.put(item, c, o)
	if err != nil {
		// Nothing replaces what the file had before.
		c.Replaces = nil
	}
	r.record(ctx, item, c, o.Identity(), done, err)
	return false
}

// known is the identity of a change whose file could not be read.
func known(c *Change) Identity {
	if c.Existing != nil {
		return c.Existing.Identity()
	}
	return Identity{}
}

func (r *run) object(ctx context.Context, c *Change) (*Object, error) {
	if r.apply.Prepared != nil && c.Existing == nil {
		o, ok := r.apply.Prepared.Take(c.Path, c.Hash)
		if ok && r.plan.target.Kinds.Of(o.GVK.Group, o.GVK.Kind).Check() == nil {
			return o, nil
		}
	}
	data, err := r.apply.Reader.Read(ctx, c.Hash)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.Path, err)
	}
	f := File{Repository: r.plan.target.Repository, Namespace: r.apply.Namespace, Path: c.Path, Kinds: r.plan.target.Kinds,
		Directory: r.plan.target.Directory}
	if c.Existing != nil {
		f.Known = c.Existing.Name
	}
	o, err := Judge(f, data)
	if !f.Directory { // whose object has no content of its own
		r.apply.Reader.Recycle(data)
	}
	return o, err
}

// put makes the object of the server equal to o and says what it did.
func (r *run) put(ctx context.Context, c *Change, o *Object) (Action, error) {
	kind := r.plan.target.Kinds.Of(o.GVK.Group, o.GVK.Kind)
	ref := Ref{Group: o.GVK.Group, Version: o.GVK.Version, Resource: kind.Resource, Name: o.Name}
	strict := !kind.SkipValidation && (!o.isDashboard() || strictly(ref.Version)) && !(c.Existing != nil && c.Existing.Hash == c.Hash)
	stamp := r.stamp(c.Path, c.Hash, r.plan.FolderOf(kind.Group, kind.Kind, c.Path))

	if o.endsInSpec() {
		ctx = api.WithStrictBody(ctx, api.StrictBody{Spec: len(o.spec), End: o.end})
	}
	item, listed := r.plan.live[o.Identity()]
	old := item.live()
	_, takes := r.plan.target.TakeOver[o.Identity()]
	absent := r.plan.complete && !listed && !takes
	var err error
	for range conflicts {
		if old == nil && !absent {
			if old, err = r.existing(ctx, ref, c, o, stamp); errors.Is(err, errSame) {
				if c.Action == Created && !r.plan.complete { // by an attempt that did not come to its end
					r.tookOver(ref)
				}
				return Ignored, nil
			} else if err != nil {
				return c.Action, err
			}
		}
		stamp.Replaces = old
		body := func(version string) []byte { return o.Body(version, stamp) }
		if old == nil {
			err = r.create(ctx, ref, c.Path, strict, body)
			absent = false
			if !apierrors.IsAlreadyExists(err) {
				return written(c, Created), err
			}
			continue
		}
		err = r.apply.Server.Update(ctx, ref, strict, body)
		if err == nil && takes && !listed {
			r.tookOver(ref)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return written(c, Updated), err
		}
		old = nil
	}
	return c.Action, err
}

// tookOver counts an object that the repository manages from now on.
func (r *run) tookOver(ref Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Created[ref.counted()]++
}

// written returns the reported action: a move stays one, however it was written.
func written(c *Change, done Action) Action {
	if c.Action == Renamed {
		return Renamed
	}
	return done
}

// strictly reports whether a server should refuse unknown fields of a dashboard. Source:
// Grafana, which is lenient for its first stable version and the preferred one.
func strictly(version string) bool {
	return version != "" && version != "v1" && !strings.HasPrefix(version, "v1alpha") && !strings.HasPrefix(version, "v1beta")
}

// errSame reports that the server has the object already as it should be.
var errSame = errors.New("nothing to write")

// existing returns the object that the file at c.Path is about, nil when there is none, or why it
// must not be written.
func (r *run) existing(ctx context.Context, ref Ref, c *Change, o *Object, want Stamp) (*Live, error) {
	old, err := r.apply.Server.Get(ctx, ref, false)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = r.plan.target.checkOwner(checkManaged(want.Repository, o.Identity(), old.Annotations), o.Identity(), old)
	if err != nil {
		return nil, err
	}
	if !Manages(want.Repository, old.Annotations) {
		return old, nil
	}
	if other := r.twin(old, c, o); other != "" {
		return nil, &DuplicateError{Object: o.Identity(), Path: c.Path, Other: other}
	}
	if !c.Drifted && old.Annotations[api.AnnoSourcePath] == c.Path && old.Annotations[api.AnnoSourceChecksum] == want.Checksum &&
		old.Annotations[api.AnnoFolder] == want.Folder {
		return nil, errSame
	}
	return old, nil
}

// twin returns the other file of the tree that an object of the server was made from and is still
// about; "" = none.
func (r *run) twin(old *Live, c *Change, o *Object) string {
	other := old.Annotations[api.AnnoSourcePath]
	if other == c.Path || !r.plan.has(other) {
		return ""
	}
	if id, read := r.claims.about(other); read && id != o.Identity() {
		return ""
	}
	return other
}

// owner returns the file that has the object of o, where claimant is one that took it in this run.
// With an incremental plan that one may be refused as well, for a file that did not change.
func (r *run) owner(ctx context.Context, c *Change, o *Object, claimant string) string {
	if r.plan.complete {
		return claimant
	}
	kind := r.plan.target.Kinds.Of(o.GVK.Group, o.GVK.Kind)
	old, err := r.apply.Server.Get(ctx, Ref{Group: o.GVK.Group, Version: o.GVK.Version, Resource: kind.Resource, Name: o.Name}, false)
	if err != nil || !Manages(r.plan.target.Repository, old.Annotations) {
		return claimant
	}
	return cmp.Or(r.twin(old, c, o), claimant)
}

// claims decides which file an object belongs to when several name it. A file that does not change
// keeps its object; a changed one keeps it as long as its new content still names it; among new
// ones the first of the plan wins. The answer does not depend on which file was read first.
type claims struct {
	mu       sync.Mutex          // guards all fields
	owner    map[Identity]string // path that has the object
	reserved map[Identity]string // path that had it and has not been read yet
	had      map[string]Identity // the same by path
	byPath   map[string]Identity // what each file that was read is about
}

func (c *claims) init(p *Plan) {
	c.owner, c.reserved = map[Identity]string{}, map[Identity]string{}
	c.had, c.byPath = map[string]Identity{}, map[string]Identity{}
	for id, path := range p.held {
		c.owner[id] = path
	}
	for _, w := range p.WriteFiles {
		if w.Existing != nil && w.Action != Renamed {
			id := w.Existing.Identity()
			c.reserved[id], c.had[w.Path] = w.Path, id
		}
	}
}

// read reports that the file at path turned out to be about id.
func (c *claims) read(path string, id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(path)
	c.byPath[path] = id
}

// unreadable reports that the file at path is about nothing that can be known. It keeps what it
// had.
func (c *claims) unreadable(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, had := c.had[path]; had {
		c.owner[id] = path
	}
	c.release(path)
}

func (c *claims) release(path string) {
	if id, had := c.had[path]; had && c.reserved[id] == path {
		delete(c.reserved, id)
	}
}

// take gives id to path. wait is true when another file may still need it: ask
// again when all files have been read. other is the path that has it.
func (c *claims) take(path string, id Identity) (other string, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, taken := c.owner[id]; taken && owner != path {
		return owner, false
	}
	if holder, is := c.reserved[id]; is && holder != path {
		return holder, true
	}
	c.owner[id] = path
	return "", false
}

// taken reports whether a file has id.
func (c *claims) taken(id Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.owner[id]
	return is
}

// about returns what the file at path is about, when it was read.
func (c *claims) about(path string) (Identity, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, known := c.byPath[path]
	return id, known
}

// grantDefault asks the server to give a folder at the root the permissions that every new folder
// there gets.
const grantDefault = "default"

// writeFolders makes sure of the folders, one depth of the tree at a time: a parent exists before its
// children. With a quota for fewer, the first ones of the plan are created.
func (r *run) writeFolders(ctx context.Context) error {
	all := r.plan.WriteFolders
	if r.apply.MaxResources > 0 && r.room < int64(len(all)) {
		return r.serial(ctx, all, r.writeFolder)
	}
	for len(all) > 0 {
		deeper := slices.IndexFunc(all, func(c Change) bool { return depth(c.Path) > depth(all[0].Path) })
		if deeper < 0 {
			deeper = len(all)
		}
		if err := r.parallel(ctx, all[:deeper], r.writeFolder); err != nil {
			return err
		}
		all = all[deeper:]
	}
	return r.stop(ctx)
}

// writeFolder makes sure of one folder.
func (r *run) writeFolder(ctx context.Context, c *Change) {
	item, cancel := r.item(ctx)
	defer cancel()
	id := Identity{Group: api.FolderGroup, Kind: folderKind, Name: c.Folder.ID}
	done, err := Ignored, r.missingFolder(repopath.Parent(c.Path), c.Path)
	if err == nil {
		done, err = r.putFolder(item, c, id)
	}
	if err != nil {
		r.mu.Lock()
		r.broken[c.Path] = err
		if c.Path == "" && ctx.Err() == nil {
			r.fatal = fmt.Errorf("create root folder: %w", err)
		}
		r.mu.Unlock()
	}
	within := func(file Change) bool { return strings.HasPrefix(file.Path, c.Path) }
	if errors.As(err, new(*QuotaError)) && slices.ContainsFunc(r.plan.WriteFiles, within) {
		done, err = Ignored, nil // the warning is that of each file
	}
	r.record(ctx, item, c, id, done, err)
}

// putFolder makes the folder of the server what c wants and says what it did.
func (r *run) putFolder(ctx context.Context, c *Change, id Identity) (Action, error) {
	ref := Ref{Group: api.FolderGroup, Resource: FolderResource, Name: c.Folder.ID}
	_, takes := r.plan.target.TakeOver[id]
	exists := takes || c.Existing != nil
	var err error
	for range conflicts {
		if !exists {
			err = r.create(ctx, ref, c.Path, false, func(version string) []byte { return r.newFolder(version, c) })
			if !apierrors.IsAlreadyExists(err) {
				return Created, err
			}
		}
		var old *Live
		if old, err = r.apply.Server.Get(ctx, ref, true); apierrors.IsNotFound(err) {
			exists = false
			continue
		} else if err != nil {
			return c.Action, err
		}
		if err = r.plan.target.checkOwner(checkManaged(r.plan.target.Repository, id, old.Annotations), id, old); err != nil {
			return c.Action, err
		}
		var body []byte
		var changed bool
		if body, changed, err = r.changedFolder(old, c); err != nil {
			return c.Action, err
		}
		if !changed {
			return Ignored, nil
		}
		err = r.apply.Server.Update(ctx, ref, false, func(string) []byte { return body })
		if err == nil && takes && c.Existing == nil {
			r.tookOver(ref)
		}
		if !apierrors.IsConflict(err) {
			return written(c, Updated), err
		}
		exists = true
	}
	return c.Action, err
}

func (r *run) stamp(path, hash, folder string) Stamp {
	if _, there := r.plan.live[Identity{Group: api.FolderGroup, Kind: folderKind, Name: folder}]; r.apply.DryRun && !there {
		folder = ""
	}
	return Stamp{Namespace: r.apply.Namespace, Repository: r.plan.target.Repository, Path: path, Checksum: hash, Folder: folder}
}

func (r *run) newFolder(version string, c *Change) []byte {
	annotations := r.stamp(c.Path, c.Folder.Hash, c.Folder.Parent).annotations()
	if c.Folder.Parent == "" {
		annotations[api.AnnoGrantPermissions] = grantDefault
	}
	return marshal(map[string]any{
		"apiVersion": api.FolderGroup + "/" + version,
		"kind":       folderKind,
		"metadata":   map[string]any{"name": c.Folder.ID, "namespace": r.apply.Namespace, "annotations": annotations},
		"spec":       map[string]any{"title": c.Folder.Title},
	})
}

// changedFolder returns the folder of the server with what c wants, and whether
// that is another one. All that is not the sync's stays.
func (r *run) changedFolder(old *Live, c *Change) ([]byte, bool, error) {
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(old.Raw))
	dec.UseNumber()
	if err := dec.Decode(&object); err != nil {
		return nil, false, fmt.Errorf("read folder %s: %w", old.Name, err)
	}
	meta := child(object, "metadata")
	annotations := child(meta, "annotations")
	changed := set(child(object, "spec"), "title", c.Folder.Title)
	want := r.stamp(c.Path, c.Folder.Hash, c.Folder.Parent).annotations()
	for _, key := range []string{api.AnnoManagedBy, api.AnnoManagerID, api.AnnoSourcePath, api.AnnoSourceChecksum, api.AnnoFolder} {
		if set(annotations, key, want[key]) {
			changed = true
		}
	}
	delete(meta, "managedFields")
	return marshal(object), changed, nil
}

// child returns the object at key, which it makes when there is none.
func child(object map[string]any, key string) map[string]any {
	c, ok := object[key].(map[string]any)
	if !ok {
		c = map[string]any{}
		object[key] = c
	}
	return c
}

// set sets key to value, or removes it for "", and reports whether that changed anything.
func set(object map[string]any, key, value string) bool {
	if old, _ := object[key].(string); old == value {
		return false
	}
	if object[key] = value; value == "" {
		delete(object, key)
	}
	return true
}
