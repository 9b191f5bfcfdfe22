package worker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/drift"
	"limpet/sync/worker/sink"
)

// An object that nobody has written since limpet did is what its file says. So the versions of the
// objects are kept after a write, and after a comparison that has found no difference: the next
// check lists versions, and reads other objects only.

// DriftQuery asks what differs between the commit that was synced last and the server.
type DriftQuery struct {
	Namespace  string   `json:"namespace"`
	Repository string   `json:"repository"`
	Paths      []string `json:"paths,omitempty"` // of items whose content is to be in the report
	Full       bool     `json:"full,omitempty"`  // of all
}

// Bounds of the content in a report, and of a comparison.
const (
	maxDryRuns      = 1000
	maxContents     = 500
	maxContentBytes = 16 << 20
)

// Drift returns what differs. It writes nothing but what it has learned of versions, in the state
// file.
func (p *Pull) Drift(ctx context.Context, q DriftQuery) (*drift.Report, error) {
	repo, err := p.o.Client.Resource(api.Repositories).Namespace(q.Namespace).Get(ctx, q.Repository, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return p.DriftOf(ctx, repo, q)
}

// DriftOf is Drift for a Repository as it was seen last.
func (p *Pull) DriftOf(ctx context.Context, repo *unstructured.Unstructured, q DriftQuery) (*drift.Report, error) {
	r, err := p.apart(ctx, repo)
	if err != nil {
		return nil, err
	}
	if r.status.lastRef == "" {
		return nil, fmt.Errorf("repository %s was not pulled yet", repo.GetName())
	}
	if r.at, err = p.checkout(ctx, r.Task, r.log); err != nil {
		return nil, err
	}
	if _, err := r.at.Get(ctx, gitref.Selector{Commit: r.status.lastRef}); err != nil {
		return nil, err
	}
	r.content = r.at.Content()
	defer r.content.Close()
	c := &comparison{pull: r, query: q, report: &drift.Report{Namespace: repo.GetNamespace(), Repository: repo.GetName(),
		Commit: r.at.Ref.Hash, Checked: p.o.Client.Now(), Items: []drift.Item{}}}
	target, isSink, err := p.sinkOf(repo)
	if r.sink = isSink; err == nil && isSink {
		err = c.directory(ctx, target)
	} else if err == nil {
		err = c.objects(ctx)
	}
	slices.SortFunc(c.report.Items, func(a, b drift.Item) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Name, b.Name), strings.Compare(a.State, b.State))
	})
	return c.report, err
}

// comparison is one comparison of a server with a commit.
type comparison struct {
	*pull
	query    DriftQuery
	versions map[uint64]uint64 // see state.Store.PutVersions
	rules    [][]string
	changed  bool // versions
	dryRuns  atomic.Int64

	mu     sync.Mutex // guards what follows, and versions and changed while objects are compared
	report *drift.Report
	bytes  int // of the content in the report
}

// asked reports whether the content of an item is to be in the report.
func (c *comparison) asked(path string) bool {
	return c.query.Full || slices.Contains(c.query.Paths, path)
}

// add adds an item, with its content where that is asked for.
func (c *comparison) add(item drift.Item, git, live json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked(item.Path) && len(git)+len(live) > 0 {
		if c.bytes += len(git) + len(live); c.bytes > maxContentBytes || len(c.report.Items) >= maxContents {
			c.report.Omitted++
		} else {
			item.Git, item.Live = git, live
		}
	}
	c.report.Items = append(c.report.Items, item)
}

func (c *comparison) objects(ctx context.Context) error {
	tree, err := c.tree(ctx)
	if err != nil {
		return err
	}
	if c.server, err = c.Pull.server(ctx, c.Namespace, true); err != nil {
		return err
	}
	c.target.Kinds = c.server.Kinds
	live, err := c.liveItems(ctx, true)
	if err != nil {
		return err
	}
	metas, err := c.folderFiles(ctx, tree, nil)
	if err != nil {
		return err
	}
	plan := resources.Full(c.target, tree, live, metas)
	if err := c.settle(ctx, plan); err != nil {
		return err
	}
	if err := c.known(ctx); err != nil {
		return err
	}
	there := map[uint64]bool{}
	for _, item := range live {
		there[nameSum(item)] = true
	}
	before := len(c.versions)
	maps.DeleteFunc(c.versions, func(name, _ uint64) bool { return !there[name] })
	c.changed = len(c.versions) != before
	for _, change := range plan.WriteFolders {
		c.folder(change)
	}
	for _, change := range slices.Concat(plan.DeleteFiles, plan.DeleteFolders, plan.LateFolders) {
		c.extra(ctx, *change.Existing)
	}
	// What was learned is kept also when the time was too short for all: the next comparison goes on
	// from there.
	return errors.Join(c.files(ctx, plan, plan.WriteFiles), c.keep(context.WithoutCancel(ctx)))
}

// known reads the ignore rules and the versions of objects that are equal to their files.
func (c *comparison) known(ctx context.Context) (err error) {
	c.versions = map[uint64]uint64{}
	if c.rules, err = api.ParsePointers(api.Annotation(c.Repo, api.AnnoDriftIgnore)); err != nil {
		return fmt.Errorf("annotation %s: %w", api.AnnoDriftIgnore, err)
	}
	if c.o.Store != nil {
		c.versions, err = c.o.Store.Versions(ctx, c.Namespace, c.target.Repository, string(c.Repo.GetUID()))
	}
	return err
}

// keep stores the versions where they have changed.
func (c *comparison) keep(ctx context.Context) error {
	if !c.changed || c.o.Store == nil {
		return nil
	}
	return c.o.Store.PutVersions(ctx, c.Namespace, c.target.Repository, string(c.Repo.GetUID()), c.versions)
}

// files compares the files whose objects a plan holds with them, and those of further changes.
func (c *comparison) files(ctx context.Context, plan *resources.Plan, changes []resources.Change) error {
	var list []resources.Change
	for _, item := range plan.Held() {
		if c.versions[nameSum(item)] != c.versionSum(item) || item.ResourceVersion == "" {
			list = append(list, resources.Change{Action: resources.Updated, Path: item.Path, Hash: item.Hash, Existing: &item})
		}
	}
	unread := map[string]string{}
	for _, f := range c.unread.before.Files {
		unread[f.Path] = f.Hash
	}
	for _, change := range changes {
		if hash, is := unread[change.Path]; !is || hash != change.Hash {
			list = append(list, change)
		}
	}
	c.content.FetchLarge(ctx, wantedBy(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(resources.DefaultParallel)
	for _, change := range list {
		g.Go(func() error { return c.file(ctx, plan, change) })
	}
	return g.Wait()
}

// file compares one file with its object. A file that is no resource is none of its business.
func (c *comparison) file(ctx context.Context, plan *resources.Plan, change resources.Change) error {
	data, err := c.content.Read(ctx, change.Hash)
	if err != nil {
		if resources.IsWarning(err) {
			return nil
		}
		return fmt.Errorf("read %s: %w", change.Path, err)
	}
	f := resources.File{Repository: c.target.Repository, Namespace: c.Namespace, Path: change.Path, Kinds: c.target.Kinds}
	if change.Existing != nil {
		f.Known = change.Existing.Name
	}
	o, err := resources.Parse(f, data)
	if err != nil {
		return nil
	}
	ref := resources.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Name: o.Name,
		Resource: c.target.Kinds.Of(o.GVK.Group, o.GVK.Kind).Resource}
	item := drift.Item{State: drift.Missing, Group: o.GVK.Group, Kind: o.GVK.Kind, Name: o.Name, Path: change.Path}
	stamp := resources.Stamp{Namespace: c.Namespace, Repository: c.target.Repository, Path: change.Path, Checksum: change.Hash,
		Folder: plan.FolderOf(o.GVK.Group, o.GVK.Kind, change.Path)}
	body := o.Body(o.GVK.Version, stamp)
	var live *resources.Live
	if change.Action != resources.Created {
		if live, err = c.server.Get(ctx, ref, true); err != nil && !apierrors.IsNotFound(err) {
			return c.skip(ctx, item, fmt.Errorf("read %s: %w", o.Identity(), err))
		}
	}
	if stamp.Replaces = live; live == nil {
		_, git, _, err := drift.Compare(body, nil, c.rules)
		c.add(item, git, nil)
		return err
	}
	item.Version = live.ResourceVersion
	same := resources.Item{Group: ref.Group, Resource: ref.Resource, Name: o.Name, UID: live.UID, ResourceVersion: live.ResourceVersion}
	pointers, git, is, err := drift.Compare(body, live.Raw, c.rules)
	if original := live.Annotations[api.AnnoSourceChecksum] == change.Hash; err == nil && original && len(pointers) > 0 {
		c.mu.Lock()
		_, known := c.versions[nameSum(same)]
		c.mu.Unlock()
		if c.dryRuns.Add(1) > maxDryRuns {
			return c.skip(ctx, item, nil)
		}
		stored, failed := c.server.Stored(ctx, ref, func(version string) []byte { return o.Body(version, stamp) })
		if failed == nil {
			pointers, git, is, err = drift.Compare(stored, live.Raw, c.rules)
		} else if ctx.Err() != nil || jobs.Transient(failed) {
			return failed
		} else if !known { // who has made the difference cannot be told
			pointers = nil
		}
	} else if len(pointers) == 0 && !original {
		pointers = []string{annotation(api.AnnoSourceChecksum)}
	}
	if err != nil {
		return c.skip(ctx, item, err)
	}
	if item.State, item.Pointers = drift.Modified, pointers; len(pointers) > 0 {
		c.add(item, git, is)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report.Compared++; len(pointers) == 0 {
		c.versions[nameSum(same)], c.changed = c.versionSum(same), true
	}
	return nil
}

// skip leaves out an object: it has an error, of which the pull warns, or is left to the next
// check. It returns the errors that are not of this object alone.
func (c *comparison) skip(ctx context.Context, item drift.Item, err error) error {
	if ctx.Err() != nil || jobs.Transient(err) {
		return cmp.Or(err, ctx.Err())
	}
	if err != nil {
		c.log.Warn("object not compared", "step", "compare", "path", item.Path, "err", err)
		c.Progress.Record(ctx, resources.Result{Action: resources.Ignored, Group: item.Group, Kind: item.Kind, Name: item.Name,
			Path: item.Path, Warning: fmt.Errorf("drift not checked: %w", err)})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.NotCompared++
	return nil
}

// folder adds a folder that is missing or differs.
func (c *comparison) folder(change resources.Change) {
	want, old := change.Folder, change.Existing
	item := drift.Item{State: drift.Missing, Group: api.FolderGroup, Kind: "Folder", Name: want.ID, Path: change.Path}
	if old != nil {
		item.State, item.Version = drift.Modified, old.ResourceVersion
		for _, p := range []struct {
			pointer string
			differs bool
		}{{annotation(api.AnnoFolder), old.Folder != want.Parent}, {annotation(api.AnnoSourceChecksum), old.Hash != want.Hash},
			{annotation(api.AnnoSourcePath), old.Path != change.Path}, {"/spec/title", old.Title != want.Title}} {
			if p.differs {
				item.Pointers = append(item.Pointers, p.pointer)
			}
		}
	}
	c.add(item, nil, nil)
}

// extra adds an object without a file.
func (c *comparison) extra(ctx context.Context, old resources.Item) {
	item := drift.Item{State: drift.Extra, Group: old.Group, Kind: old.Kind, Name: old.Name, Path: old.Path,
		Version: old.ResourceVersion}
	var is json.RawMessage
	if c.asked(item.Path) {
		live, err := c.server.Get(ctx, resources.Ref{Group: old.Group, Resource: old.Resource, Name: old.Name}, true)
		if err == nil {
			_, _, is, _ = drift.Compare(nil, live.Raw, c.rules)
		}
	}
	c.add(item, nil, is)
}

func (c *comparison) directory(ctx context.Context, target sink.Target) error {
	tree, err := c.gitTree(ctx)
	if err != nil {
		return err
	}
	dir, err := sink.Look(ctx, target, c.owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	c.pull.unread.known = c.unread.before.Ref == c.at.Ref.Hash
	files, _, err := c.sinkFiles(ctx, dir, tree)
	if err != nil {
		return err
	}
	plan, err := dir.Plan(c.at.Ref.Hash, "", files)
	if err != nil {
		return err
	}
	c.report.Compared = len(files)
	add := func(state, name, hash string) {
		item := drift.Item{State: state, Kind: sinkKind, Name: path.Base(name), Path: name}
		var git, live []byte
		if state != drift.Missing {
			live, _ = dir.Read(name, resources.MaxFile)
		}
		if state != drift.Extra {
			git, _ = c.content.Read(ctx, hash)
		}
		if state == drift.Modified {
			if item.Pointers = drift.Files(git, live); bytes.Equal(git, live) {
				item.Pointers = []string{drift.Mode}
			}
		}
		c.add(item, asJSON(git), asJSON(live))
	}
	for _, f := range plan.Added {
		add(drift.Missing, f.Path, f.Hash)
	}
	for _, f := range plan.Changed {
		add(drift.Modified, f.Path, f.Hash)
	}
	for _, name := range plan.Removed {
		add(drift.Extra, name, "")
	}
	return nil
}

// asJSON returns the content of a file, as a string where it is no JSON.
func asJSON(data []byte) json.RawMessage {
	if data == nil || json.Valid(data) {
		return data
	}
	quoted, _ := json.Marshal(string(data)) // text always marshals
	return quoted
}

// liveItems returns what the repository manages, with versions where they are needed: an index of
// Grafana lacks them.
func (r *pull) liveItems(ctx context.Context, versions bool) ([]resources.Item, error) {
	if versions {
		return r.server.Listed(ctx, r.target.Repository)
	}
	return r.server.Managed(ctx, r.target.Repository)
}

// rewriteDrifted adds the objects to a plan that are not what they were made from.
func (r *pull) rewriteDrifted(ctx context.Context, plan *resources.Plan) error {
	c := &comparison{pull: r, report: new(drift.Report)}
	if err := c.known(ctx); err != nil {
		return err
	}
	if err := c.files(ctx, plan, nil); err != nil {
		return err
	}
	drifted := map[resources.Identity]bool{}
	for _, item := range c.report.Items {
		drifted[resources.Identity{Group: item.Group, Kind: item.Kind, Name: item.Name}] = true
	}
	plan.Rewrite(drifted)
	return c.keep(ctx)
}

// keepVersions stores the versions of the objects that the run has written. Without them the next
// check reads the objects.
func (r *pull) keepVersions(ctx context.Context) {
	if r.server == nil { // it came to no object
		return
	}
	written := r.server.Written()
	if len(written) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	c := &comparison{pull: r, changed: true}
	err := c.known(ctx)
	for _, item := range written {
		c.versions[nameSum(item)] = c.versionSum(item)
	}
	if err == nil {
		err = c.keep(ctx)
	}
	if err != nil {
		r.log.Warn("versions of the objects not kept", "step", "status", "err", err)
	}
}

func nameSum(i resources.Item) uint64 { return sum(i.Group, i.Resource, i.Name) }

// versionSum is that of an object in one version. Other ignore rules are another version.
func (c *comparison) versionSum(i resources.Item) uint64 {
	return sum(i.UID, i.ResourceVersion, fmt.Sprintf("%q", c.rules))
}

func sum(parts ...string) uint64 {
	s := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(s[:])
}
