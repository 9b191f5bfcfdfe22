package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/commit"
	"limpet/sync/worker/export"
	"limpet/sync/worker/target"
)

// How objects of the API become files: package export lays them out, and the commit is made as for
// every write. The bodies are read page by page, and each becomes a compressed blob at once.

// maxFolders is the number of folders from which on nothing is exported. Source: Grafana.
const maxFolders = 10_000

// pushOrder writes copies of the folders and dashboards without a manager, or of some dashboards,
// to the branch of a Repository or to another one. Nothing is pulled.
func pushOrder(w *Write, t *jobs.Task) (order, error) {
	o, err := w.exportOrder(t, t.Job.Spec.Push, false)
	return order{Order: o, then: linkOnly}, err
}

// exportOrder returns the order of a job that exports; keep reports whether objects keep their UIDs.
func (w *Write) exportOrder(t *jobs.Task, o *api.ExportOptions, keep bool) (commit.Order, error) {
	var none commit.Order
	if o == nil {
		return none, fmt.Errorf("the job has no options: spec.%s is missing", t.Job.Spec.Action)
	}
	for _, ref := range o.Resources {
		if ref.Name == "" || ref.Kind != "Dashboard" || ref.Group != "" && ref.Group != api.DashboardGroup {
			return none, fmt.Errorf("spec.%s.resources: %s %q cannot be exported; only dashboards can", t.Job.Spec.Action, ref.Kind, ref.Name)
		}
	}
	path := repopath.AsDir(strings.Trim(o.Path, "/"))
	if err := repopath.CheckPath(path); err != nil {
		return none, fmt.Errorf("spec.%s.path: %w", t.Job.Spec.Action, err)
	}
	if err := checkRef(t, "branch", o.Branch); err != nil {
		return none, err
	}
	changes := func(ctx context.Context, r *commit.Run) (commit.Changes, error) {
		if keep && !t.Repository.Spec.Sync.Enabled && (o.Branch == "" || o.Branch == r.Saved.Own) {
			return commit.Changes{}, fmt.Errorf("sync is not enabled for repository %q, so it cannot take objects over; "+
				"set spec.sync.enabled to true", t.Repo.GetName())
		}
		server, err := w.pull.server(ctx, t.Namespace, t.Last)
		if err != nil {
			return commit.Changes{}, err
		}
		x := &exporting{
			task:     t,
			checkout: r.Checkout,
			base:     r.Base.Hash,
			git:      w.pull.o.Source.Git,
			options:  o,
			path:     path,
			keep:     keep,
			server:   server,
			files:    map[string]string{},
			changes:  commit.Changes{Wrote: map[uint64]uint64{}},
		}
		err = x.run(ctx, w.pull.o.Store)
		if !keep {
			x.changes.Wrote = nil
		}
		return x.changes, cmp.Or(err, x.failed)
	}
	message := cmp.Or(strings.TrimSpace(o.Message), "Export from Grafana "+t.Name)
	return commit.Order{Ref: o.Branch, Message: message, Changes: changes}, nil
}

// exporting is one export to the base of a commit.
type exporting struct {
	task     *jobs.Task
	checkout *checkout.Checkout
	base     string // commit
	git      checkout.Git
	options  *api.ExportOptions
	path     string
	keep     bool // the UIDs
	server   *target.API
	layout   *export.Layout
	files    map[string]string // hashes of the files of the base
	created  int64
	failed   error // to read the base
	// changes are those so far. Wrote has the files of the base and of the commit that migrations have
	// written: sums of path and hash.
	changes commit.Changes
}

func (x *exporting) run(ctx context.Context, store *state.Store) error {
	if err := x.quota(); err != nil {
		return err
	}
	x.task.Progress.SetMessage(ctx, "read folders")
	folders, err := x.server.Folders(ctx, maxFolders)
	if err != nil {
		return err
	}
	tree, err := x.tree(ctx)
	if err != nil {
		return err
	}
	before := map[uint64]uint64{}
	if store != nil {
		if before, err = store.Versions(ctx, x.task.Namespace, x.task.Repo.GetName()+commit.WroteBy, string(x.task.Repo.GetUID())); err != nil {
			return err
		}
	}
	for path, hash := range x.files {
		if file := sum(path, hash); before[file] != 0 {
			x.changes.Wrote[file] = 1
		}
	}
	x.layout = export.New(export.Options{Repository: x.task.Repo.GetName(), Namespace: x.task.Namespace, Kinds: x.server.Kinds,
		Salt: string(x.task.Repo.GetUID()),
		Path: x.path, KeepUIDs: x.keep, KeepFolderUIDs: x.keep && !x.options.GenerateNewFolderIDs, Tree: tree,
		Object: func(path string) resources.Identity { return x.object(ctx, path) }, Find: x.finder(ctx)}, folders)
	x.task.Progress.SetMessage(ctx, "read dashboards")
	if len(x.options.Resources) > 0 {
		return x.some(ctx)
	}
	return x.all(ctx, folders)
}

// all exports the folders and dashboards without a manager.
func (x *exporting) all(ctx context.Context, folders []*resources.Live) error {
	root := x.options.Folder
	if root != "" && !slices.ContainsFunc(folders, func(f *resources.Live) bool { return f.Name == root }) {
		return fmt.Errorf("spec.push.folder: there is no folder %q", root)
	}
	for _, f := range folders {
		if !resources.Managed(f.Annotations) && x.layout.Within(f.Name, root) {
			if err := x.layout.Folder(f.Name); err != nil {
				x.changes.Edits = append(x.changes.Edits, commit.Edit{Result: resources.Result{Action: resources.Ignored, Group: api.FolderGroup, Kind: "Folder",
					Name: f.Name, Warning: err}})
			}
		}
	}
	x.add(x.layout.Markers()...)
	ref := resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource}
	err := target.Each(ctx, x.server, ref, "", func(version string, page []json.RawMessage) error {
		for _, raw := range page {
			live, err := resources.ParseLive(raw)
			if err != nil {
				return err
			}
			if resources.Managed(live.Annotations) || !x.layout.Within(live.Annotations[api.AnnoFolder], root) {
				continue
			}
			if err := x.dashboard(ctx, live, version, raw); err != nil {
				return err
			}
		}
		return x.quota()
	})
	if apierrors.IsResourceExpired(err) {
		return &jobs.TransientError{Err: err}
	}
	return err
}

// some exports the dashboards that the job names.
func (x *exporting) some(ctx context.Context) error {
	seen := map[string]bool{}
	for _, named := range x.options.Resources {
		if seen[named.Name] {
			continue
		}
		seen[named.Name] = true
		ref := resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource, Name: named.Name}
		res := resources.Result{Action: resources.Ignored, Group: ref.Group, Kind: "Dashboard", Name: ref.Name}
		live, err := x.server.Get(ctx, ref, true)
		switch {
		case jobs.Transient(err) || ctx.Err() != nil:
			return err
		case err != nil:
			res.Action, res.Err = resources.Created, fmt.Errorf("read dashboard %s: %w", ref.Name, err)
		default:
			id := resources.Identity{Group: ref.Group, Kind: "Dashboard", Name: ref.Name}
			res.Warning = resources.CheckUnmanaged(x.task.Repo.GetName(), id, live.Annotations)
			if resources.Manages(x.task.Repo.GetName(), live.Annotations) {
				res.Warning = fmt.Errorf("%s is in the repository already", id)
			}
		}
		if res.Err != nil || res.Warning != nil {
			x.changes.Edits = append(x.changes.Edits, commit.Edit{Result: res, Others: apierrors.IsNotFound(res.Err) && !x.keep})
		} else if err := x.dashboard(ctx, live, "", live.Raw); err != nil {
			return err
		}
	}
	return x.quota()
}

// dashboard adds the file of a dashboard, in the version that the server has stored, and the files
// of new directories.
func (x *exporting) dashboard(ctx context.Context, live *resources.Live, version string, raw []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("read dashboard %s: %w", live.Name, err)
	}
	if object["apiVersion"] == nil { // items of a list may lack it
		object["apiVersion"], object["kind"] = fmt.Appendf(nil, "%q", api.DashboardGroup+"/"+version), json.RawMessage(`"Dashboard"`)
		raw, _ = json.Marshal(object) // it was read as JSON
	}
	var status struct {
		Conversion struct{ StoredVersion string }
	}
	_ = json.Unmarshal(object["status"], &status) // a status of another form has no version
	if stored := status.Conversion.StoredVersion; stored != "" && !strings.HasSuffix(string(object["apiVersion"]), "/"+stored+`"`) {
		ref := resources.Ref{Group: api.DashboardGroup, Version: stored, Resource: resources.DashboardResource, Name: live.Name}
		whole, err := x.server.Get(ctx, ref, true)
		switch {
		case apierrors.IsNotFound(err): // deleted meanwhile
			return nil
		case jobs.Transient(err) || ctx.Err() != nil:
			return err
		case err != nil:
			x.changes.Edits = append(x.changes.Edits, commit.Edit{Result: resources.Result{Action: resources.Ignored, Group: ref.Group, Kind: "Dashboard", Name: ref.Name,
				Warning: fmt.Errorf("read version %s, which is stored: %w", stored, err)}})
			return nil
		}
		live, raw = whole, whole.Raw
	}
	f := x.layout.Dashboard(live, raw)
	x.add(append(x.layout.Markers(), f)...)
	return nil
}

// add adds the edits of files.
func (x *exporting) add(files ...export.File) {
	for _, f := range files {
		e := commit.Edit{Result: resources.Result{Action: resources.Ignored, Group: f.Object.Group, Kind: f.Object.Kind, Name: f.Object.Name,
			Path: f.Path, Warning: f.Warning}}
		there, old := x.files[f.Path], cmp.Or(f.From, f.Path)
		blob := git.NewBlob(f.Data)
		if was := x.files[old]; x.keep && f.Warning == nil && was != "" && was != blob.ID.String() && x.changes.Wrote[sum(old, was)] == 0 {
			e.Result.Warning = fmt.Errorf("%s, which no migration has written, is replaced by %s of the API; it is in the commit before",
				old, f.Object)
			if x.task.Repository.Spec.Type == "local" { // without a commit before
				f.Warning = fmt.Errorf("%s, which no migration has written, differs from %s of the API and stays; "+
					"try: delete one of them, and migrate again", old, f.Object)
				e.Result.Warning = f.Warning
			}
		}
		if f.Warning == nil && f.Path != "" && there != blob.ID.String() {
			e.File, x.changes.Wrote[sum(f.Path, blob.ID.String())] = git.Edit{Path: within(x.checkout.Dir, f.Path), Blob: blob}, 1
			if e.Result.Action = resources.Updated; there == "" {
				e.Result.Action = resources.Created
				x.created++
			}
		}
		if f.From != "" && f.Warning == nil {
			gone := e.Result
			gone.Action, gone.Path = resources.Deleted, f.From
			x.changes.Edits = append(x.changes.Edits, commit.Edit{File: git.Edit{Path: within(x.checkout.Dir, f.From)}, Result: gone})
			x.created--
		}
		x.changes.Edits = append(x.changes.Edits, e)
		if x.keep && f.Warning == nil {
			x.changes.Exported = append(x.changes.Exported, commit.Exported{Kind: f.Object.Kind, Name: f.Object.Name, Version: f.Version})
		}
	}
}

// tree returns the paths of the base below the directory of the Repository.
func (x *exporting) tree(ctx context.Context) (paths []string, err error) {
	if x.base == "" {
		return nil, nil
	}
	t, err := x.git.Tree(ctx, x.checkout.Remote, x.base, x.checkout.Dir)
	if err != nil && git.KindOf(err) != git.PathNotFound {
		return nil, err
	}
	for _, dir := range t.Dirs {
		paths = append(paths, repopath.AsDir(dir))
	}
	for _, f := range t.Files {
		paths, x.files[f.Path] = append(paths, f.Path), f.Hash
	}
	for _, f := range t.Refused {
		paths = append(paths, f.Path)
	}
	return paths, nil
}

// finder returns a function that finds the files of the base by the objects in them, for a
// migration: a file that an earlier one has written may have another place or title. It reads all
// files when it is called first.
func (x *exporting) finder(ctx context.Context) func(resources.Identity) string {
	if !x.keep {
		return nil
	}
	var paths map[resources.Identity]string
	return func(id resources.Identity) string {
		if paths == nil {
			paths = map[resources.Identity]string{}
			for _, path := range slices.Sorted(maps.Keys(x.files)) {
				if repopath.IsResourceFile(path) && !repopath.IsFolderFile(path) && repopath.CheckPath(path) == nil {
					paths[x.object(ctx, path)] = path
				}
			}
		}
		return paths[id]
	}
}

// object returns the object of a file of the base, without a name for none.
func (x *exporting) object(ctx context.Context, path string) (none resources.Identity) {
	hash := x.files[path]
	if hash == "" {
		return none
	}
	data, err := x.git.Blob(ctx, x.checkout.Remote, hash, resources.MaxFile)
	if err != nil && !errors.As(err, new(*git.TooLargeError)) {
		x.failed = cmp.Or(x.failed, err)
	}
	if repopath.IsFolderFile(path) {
		return resources.Identity{Group: api.FolderGroup, Kind: "Folder", Name: resources.ParseFolderFile(path, hash, data).UID}
	}
	o, err := resources.Parse(resources.File{Repository: x.task.Repo.GetName(), Namespace: x.task.Namespace, Path: path, Kinds: x.server.Kinds}, data)
	if err != nil {
		return none
	}
	return o.Identity()
}

// quota returns an error if the Repository may not hold more objects than it does.
func (x *exporting) quota() error {
	most := x.task.Repository.Status.Quota.MaxResourcesPerRepository
	have := x.created
	for _, count := range x.task.Repository.Status.Stats {
		have += count.Count
	}
	if most > 0 && have > most {
		return fmt.Errorf("resource quota of %d exceeded: repository %q would have %d, so nothing was pushed", most, x.task.Repo.GetName(), have)
	}
	return nil
}
