package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/drift"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

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

// DriftOf is Drift for a Repository as it was seen last: it compares the target with the commit of
// the last pull.
func (p *Pull) DriftOf(ctx context.Context, object *unstructured.Unstructured, q DriftQuery) (*drift.Report, error) {
	repo, err := p.read(object)
	if err != nil {
		return nil, err
	}
	last := repo.view.Status.Sync.LastRef
	if last == "" {
		return nil, fmt.Errorf("repository %s was not pulled yet", repo.name())
	}
	progress := jobs.NewProgress()
	unread, err := newUnread(ctx, p.o.Store, repo, progress)
	if err != nil {
		return nil, err
	}
	at, err := p.checkout(ctx, repo, progress, p.o.Logger)
	if err != nil {
		return nil, err
	}
	if _, err := at.Get(ctx, gitref.Selector{Commit: last}); err != nil {
		return nil, err
	}
	content := at.Content()
	defer content.Close()
	c := &comparison{query: q, unread: unread.before.Files, progress: progress, log: p.o.Logger,
		report: &drift.Report{Namespace: repo.namespace(), Repository: repo.name(), Commit: at.Ref.Hash,
			Checked: p.o.Client.Now(), Items: []drift.Item{}}}
	tree, err := content.Tree(ctx)
	if err != nil {
		return c.report, err
	}
	directory, err := p.directory(repo, progress)
	switch {
	case err != nil:
	case directory != nil:
		err = c.directory(ctx, directory, target.Commit{Hash: at.Ref.Hash, Files: tree.Files, Content: content,
			Unread: unread.before.Files, Known: unread.before.Ref == at.Ref.Hash})
	default:
		if c.objects, err = p.objects(ctx, repo, content, progress, true); err != nil {
			break
		}
		if c.versions, err = newVersions(ctx, p.o.Store, repo); err == nil {
			err = c.all(ctx, treeOf(tree))
		}
	}
	slices.SortFunc(c.report.Items, func(a, b drift.Item) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Name, b.Name), strings.Compare(a.State, b.State))
	})
	return c.report, err
}

// comparison is one comparison of a target with a commit.
type comparison struct {
	objects  *target.Objects // nil for a directory
	versions *versions
	unread   []state.UnreadFile // that the last pull could not use
	query    DriftQuery
	progress *jobs.Progress
	log      *slog.Logger
	dryRuns  atomic.Int64

	mu     sync.Mutex // guards the fields below while objects are compared
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

// all compares the objects with the tree.
func (c *comparison) all(ctx context.Context, tree resources.Tree) error {
	live, err := c.objects.Live(ctx, true)
	if err != nil {
		return err
	}
	plan, err := c.objects.Full(ctx, tree, live)
	if err != nil {
		return err
	}
	c.versions.keepOnly(live)
	for _, change := range plan.WriteFolders {
		c.folder(change)
	}
	for _, change := range slices.Concat(plan.DeleteFiles, plan.DeleteFolders, plan.LateFolders) {
		c.extra(ctx, *change.Existing)
	}
	// What was learned is kept also when the time was too short for all: the next comparison goes on
	// from there.
	return errors.Join(c.files(ctx, plan.Plan, plan.WriteFiles), c.versions.save(context.WithoutCancel(ctx)))
}

// files compares the files whose objects a plan holds with them, and those of further changes.
func (c *comparison) files(ctx context.Context, plan *resources.Plan, changes []resources.Change) error {
	var list []resources.Change
	for _, item := range plan.Held() {
		if _, same := c.versions.has(item); !same || item.ResourceVersion == "" {
			list = append(list, resources.Change{Action: resources.Updated, Path: item.Path, Hash: item.Hash, Existing: &item})
		}
	}
	unread := map[string]string{}
	for _, f := range c.unread {
		unread[f.Path] = f.Hash
	}
	for _, change := range changes {
		if hash, is := unread[change.Path]; !is || hash != change.Hash {
			list = append(list, change)
		}
	}
	c.objects.Content.FetchLarge(ctx, target.Blobs(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(resources.DefaultParallel)
	for _, change := range list {
		g.Go(func() error { return c.file(ctx, plan, change) })
	}
	return g.Wait()
}

// file compares one file with its object. A file that is no resource is none of its business.
func (c *comparison) file(ctx context.Context, plan *resources.Plan, change resources.Change) error {
	spec := c.objects.Spec
	data, err := c.objects.Content.Read(ctx, change.Hash)
	if err != nil {
		if resources.IsWarning(err) {
			return nil
		}
		return fmt.Errorf("read %s: %w", change.Path, err)
	}
	f := c.objects.File(change.Path)
	if change.Existing != nil {
		f.Known = change.Existing.Name
	}
	o, err := resources.Parse(f, data)
	if err != nil {
		return nil
	}
	ref := resources.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Name: o.Name,
		Resource: spec.Kinds.Of(o.GVK.Group, o.GVK.Kind).Resource}
	item := drift.Item{State: drift.Missing, Group: o.GVK.Group, Kind: o.GVK.Kind, Name: o.Name, Path: change.Path}
	stamp := resources.Stamp{Namespace: c.objects.Namespace, Repository: spec.Repository, Path: change.Path, Checksum: change.Hash,
		Folder: plan.FolderOf(o.GVK.Group, o.GVK.Kind, change.Path)}
	body := o.Body(o.GVK.Version, stamp)
	var live *resources.Live
	if change.Action != resources.Created {
		if live, err = c.objects.API.Get(ctx, ref, true); err != nil && !apierrors.IsNotFound(err) {
			return c.skip(ctx, item, fmt.Errorf("read %s: %w", o.Identity(), err))
		}
	}
	if stamp.Replaces = live; live == nil {
		_, git, _, err := drift.Compare(body, nil, c.versions.rules)
		c.add(item, git, nil)
		return err
	}
	item.Version = live.ResourceVersion
	same := resources.Item{Group: ref.Group, Resource: ref.Resource, Name: o.Name, UID: live.UID, ResourceVersion: live.ResourceVersion}
	pointers, git, is, err := drift.Compare(body, live.Raw, c.versions.rules)
	if original := live.Annotations[api.AnnoSourceChecksum] == change.Hash; err == nil && original && len(pointers) > 0 {
		known, _ := c.versions.has(same)
		if c.dryRuns.Add(1) > maxDryRuns {
			return c.skip(ctx, item, nil)
		}
		stored, failed := c.objects.API.Stored(ctx, ref, func(version string) []byte { return o.Body(version, stamp) })
		if failed == nil {
			pointers, git, is, err = drift.Compare(stored, live.Raw, c.versions.rules)
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
	if len(pointers) == 0 {
		c.versions.add(same)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Compared++
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
		c.progress.Record(ctx, resources.Result{Action: resources.Ignored, Group: item.Group, Kind: item.Kind, Name: item.Name,
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
		live, err := c.objects.API.Get(ctx, resources.Ref{Group: old.Group, Resource: old.Resource, Name: old.Name}, true)
		if err == nil {
			_, _, is, _ = drift.Compare(nil, live.Raw, c.versions.rules)
		}
	}
	c.add(item, nil, is)
}

// directory compares a directory with the tree.
func (c *comparison) directory(ctx context.Context, directory *target.Directory, commit target.Commit) error {
	dir, err := sink.Look(ctx, directory.At, directory.Owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	directory.KeepEdits = false
	directory.Max = 0
	plan, err := directory.Compare(ctx, dir, commit)
	if err != nil {
		return err
	}
	c.report.Compared = plan.Files
	add := func(state, name, hash string) {
		item := drift.Item{State: state, Kind: target.SinkKind, Name: path.Base(name), Path: name}
		var git, live []byte
		if state != drift.Missing {
			live, _ = dir.Read(name, resources.MaxFile)
		}
		if state != drift.Extra {
			git, _ = commit.Content.Read(ctx, hash)
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
