package target

import (
	"cmp"
	"context"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api/repopath"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

// Objects are the resources of a Repository on an API.
type Objects struct {
	API       *API
	Spec      resources.Target
	Namespace string
	Content   *checkout.Content
	Progress  Progress
	Parallel  int   // concurrent writes; 0 means resources.DefaultParallel
	Max       int64 // objects that there may be; 0 = no limit
	// Prepared are objects of files that need not be read; nil = none.
	Prepared *Prepared
}

// Progress shows the steps of a plan.
type Progress interface {
	SetMessage(ctx context.Context, text string)
	SetTotal(ctx context.Context, n int)
}

// ObjectsPlan is what makes the objects equal to a commit.
type ObjectsPlan struct {
	*resources.Plan
	Counts Counts // of the objects before; nil = unknown

	objects *Objects
}

// Live returns the objects that the Repository manages, with versions where they are needed: an
// index of Grafana lacks them.
func (o *Objects) Live(ctx context.Context, versions bool) ([]resources.Item, error) {
	if versions {
		return o.API.Listed(ctx, o.Spec.Repository)
	}
	return o.API.Managed(ctx, o.Spec.Repository)
}

// Full plans what makes live objects equal to a tree.
func (o *Objects) Full(ctx context.Context, tree resources.Tree, live []resources.Item) (*ObjectsPlan, error) {
	metas, err := o.folderFiles(ctx, tree, nil)
	if err != nil {
		return nil, err
	}
	plan := &ObjectsPlan{resources.Full(o.Spec, tree, live, metas), Count(live), o}
	return plan, o.settle(ctx, plan.Plan)
}

// mostNear is how many folders are read one by one rather than listed.
const mostNear = 32

// Near returns the live folders of the directories of a tree, with the root folder. known is false
// where one of them is not as its name or its folder file says: any other folder may be its.
func (o *Objects) Near(ctx context.Context, tree resources.Tree) (folders []resources.Item, known bool, err error) {
	metas, err := o.folderFiles(ctx, tree, nil)
	dirs := resources.Directories(tree)
	if err != nil || len(dirs) > mostNear {
		return nil, false, err
	}
	if o.Spec.Root != "" {
		dirs = append(dirs, "")
	}
	folders = make([]resources.Item, len(dirs))
	g, ctx := errgroup.WithContext(ctx)
	for i, dir := range dirs {
		name := cmp.Or(metas[dir].UID, resources.FolderID(o.Spec.Repository, dir))
		if dir == "" {
			name = o.Spec.Root
		}
		g.Go(func() (err error) {
			folders[i], err = o.API.ManagedFolder(ctx, o.Spec.Repository, name)
			return err
		})
	}
	err = g.Wait()
	for i, dir := range dirs {
		if folders[i].Name == "" || folders[i].Path != dir {
			return nil, false, err
		}
	}
	return folders, true, err
}

// Increment plans the changes since a commit. tree is the new one, or what is near the changes of it,
// and folders are the live ones of its directories. The changes get the identities of the old files.
func (o *Objects) Increment(
	ctx context.Context, tree resources.Tree, folders []resources.Item, changes []resources.FileChange, counts Counts,
) (*ObjectsPlan, error) {
	var old []checkout.Blob
	var at []int
	for i, c := range changes {
		if p := c.OldFile(); p != "" {
			old, at = append(old, checkout.Blob{Path: p, Hash: c.FromHash}), append(at, i)
		}
	}
	ids, err := o.identities(ctx, old)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		changes[at[i]].Previous = id
	}
	metas, err := o.folderFiles(ctx, tree, folders)
	if err != nil {
		return nil, err
	}
	plan := &ObjectsPlan{resources.Increment(o.Spec, tree, folders, metas, changes), counts, o}
	return plan, o.settle(ctx, plan.Plan)
}

// folderFiles reads the folder files that a plan needs, by directory; those of live folders are
// known. Without live ones it reads all, so that a title that was edited is seen.
func (o *Objects) folderFiles(
	ctx context.Context, tree resources.Tree, live []resources.Item,
) (map[string]resources.FolderMeta, error) {
	var list []checkout.Blob
	for _, f := range resources.FolderFilesToRead(tree, live) {
		list = append(list, checkout.Blob{Path: f.Path, Hash: f.Hash})
	}
	metas := make([]resources.FolderMeta, len(list))
	err := o.Content.ReadEach(ctx, list, func(i int, data []byte, err error) {
		metas[i] = resources.ParseFolderFile(list[i].Path, list[i].Hash, data)
		if err != nil {
			metas[i] = resources.FolderMeta{Hash: list[i].Hash, Err: &resources.FolderFileError{Path: list[i].Path, Err: err}}
		}
	})
	out := make(map[string]resources.FolderMeta, len(list))
	for i, f := range list {
		out[repopath.Parent(f.Path)] = metas[i]
	}
	return out, err
}

// identities returns the identities of blobs, in the order of the list; nil for a blob that is no
// resource, which its write reports.
func (o *Objects) identities(ctx context.Context, list []checkout.Blob) ([]*resources.Identity, error) {
	out := make([]*resources.Identity, len(list))
	o.Content.FetchLarge(ctx, list)
	return out, o.Content.ReadEach(ctx, list, func(i int, data []byte, err error) {
		if err != nil {
			return
		}
		object, err := resources.Parse(o.File(list[i].Path), data)
		if err == nil {
			id := object.Identity()
			out[i] = &id
		}
	})
}

// File returns the file of a path, for its parser.
func (o *Objects) File(path string) resources.File {
	return resources.File{Repository: o.Spec.Repository, Namespace: o.Namespace, Path: path, Kinds: o.Spec.Kinds}
}

// settle finds the objects that move from one file to another.
func (o *Objects) settle(ctx context.Context, plan *resources.Plan) error {
	list := Blobs(plan.Unread())
	ids, err := o.identities(ctx, list)
	if err != nil {
		return err
	}
	found := map[string]resources.Identity{}
	for i, id := range ids {
		if id != nil {
			found[list[i].Path] = *id
		}
	}
	plan.Settle(found)
	return nil
}

// Blobs returns the files that changes write.
func Blobs(changes []resources.Change) []checkout.Blob {
	list := make([]checkout.Blob, len(changes))
	for i, c := range changes {
		list[i] = checkout.Blob{Path: c.Path, Hash: c.Hash}
	}
	return list
}

// Fetch brings the content of the files to write.
func (p *ObjectsPlan) Fetch(ctx context.Context) {
	p.objects.Progress.SetTotal(ctx, p.Len())
	p.objects.Content.FetchLarge(ctx, Blobs(p.WriteFiles))
}

// Rehearse records what Apply would do, and writes nothing.
func (p *ObjectsPlan) Rehearse(ctx context.Context, to resources.Recorder) error {
	p.Fetch(ctx)
	_, err := p.apply(p.objects.API.ReadOnly(), to).Run(ctx, p.Plan)
	return err
}

// Validate has the API of a DryRun validate the writes of the plan.
func (p *ObjectsPlan) Validate(ctx context.Context, to resources.Recorder) error {
	run := p.apply(p.objects.API, to)
	run.DryRun = true
	run.MaxResources = 0
	_, err := run.Run(ctx, p.Plan)
	return err
}

// Phase is the duration of a part of Apply.
type Phase struct {
	Name string
	Took time.Duration
}

// Apply carries the plan out. It returns the numbers of the objects afterwards, also with an error.
func (p *ObjectsPlan) Apply(ctx context.Context, to resources.Recorder) (counts Counts, phases []Phase, err error) {
	p.objects.Progress.SetMessage(ctx, "full comparison")
	run := p.apply(p.objects.API, to)
	if p.objects.Prepared != nil {
		run.Prepared = p.objects.Prepared
	}
	run.Phase = func(name string, took time.Duration) { phases = append(phases, Phase{name, took}) }
	tally, err := run.Run(ctx, p.Plan)
	return p.Counts.after(tally), phases, err
}

func (p *ObjectsPlan) apply(server resources.Server, to resources.Recorder) resources.Apply {
	return resources.Apply{
		Server:       server,
		Reader:       p.objects.Content,
		Recorder:     to,
		Namespace:    p.objects.Namespace,
		Parallel:     p.objects.Parallel,
		MaxResources: p.objects.Max,
		Count:        p.Counts.Total(),
	}
}

// Counts are the numbers of objects by resource; nil means unknown.
type Counts map[schema.GroupResource]int64

// Count counts a list of managed objects by resource.
func Count(items []resources.Item) Counts {
	c := Counts{}
	for _, i := range items {
		c[schema.GroupResource{Group: i.Group, Resource: i.Resource}]++
	}
	return c
}

// Total returns the number of all objects.
func (c Counts) Total() int64 {
	var n int64
	for _, count := range c {
		n += count
	}
	return n
}

// after returns the numbers after a run; nil for unknown numbers.
func (c Counts) after(t resources.Tally) Counts {
	if c == nil {
		return nil
	}
	out := maps.Clone(c)
	for resource, count := range t.Created {
		out[resource] += count
	}
	for resource, count := range t.Deleted {
		out[resource] = max(0, out[resource]-count)
	}
	return out
}
