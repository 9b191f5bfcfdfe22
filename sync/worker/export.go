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
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/auth"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/export"
)

// How objects of the API become files: package export lays them out, and the commit is made as for
// every write. The bodies are read page by page, and each becomes a compressed blob at once.

// wroteBy follows the name of a Repository in the key of what migrations have written.
const wroteBy = "/migrated"

// maxFolders is the number of folders from which on nothing is exported. Source: Grafana.
const maxFolders = 10_000

// NewPush returns the worker of push jobs, which write copies of the folders and dashboards without
// a manager, or of some dashboards, to the branch of a Repository or to another one. p is not run;
// keys may be nil.
func NewPush(p *Pull, keys auth.Source) *Write {
	return &Write{p, keys, "push", func(t *jobs.Task) (order, error) {
		return exportOrder(t, t.Job.Spec.Push, false, func(_ context.Context, r *staging) error {
			r.link()
			return nil
		})
	}}
}

// exportOrder returns the order of a job that exports.
func exportOrder(t *jobs.Task, o *api.ExportOptions, keep bool, then func(context.Context, *staging) error) (order, error) {
	if o == nil {
		return order{}, fmt.Errorf("the job has no options: spec.%s is missing", t.Job.Spec.Action)
	}
	for _, ref := range o.Resources {
		if ref.Name == "" || ref.Kind != "Dashboard" || ref.Group != "" && ref.Group != api.DashboardGroup {
			return order{}, fmt.Errorf("spec.%s.resources: %s %q cannot be exported; only dashboards can", t.Job.Spec.Action, ref.Kind, ref.Name)
		}
	}
	path := repopath.AsDir(strings.Trim(o.Path, "/"))
	if err := repopath.CheckPath(path); err != nil {
		return order{}, fmt.Errorf("spec.%s.path: %w", t.Job.Spec.Action, err)
	}
	if err := checkRef(t, "branch", o.Branch); err != nil {
		return order{}, err
	}
	return order{o.Branch, cmp.Or(strings.TrimSpace(o.Message), "Export from Grafana "+t.Name),
		func(ctx context.Context, r *staging) ([]edit, error) {
			if keep && !r.Repository.Spec.Sync.Enabled && (o.Branch == "" || o.Branch == r.note.Own) {
				return nil, fmt.Errorf("sync is not enabled for repository %q, so it cannot take objects over; "+
					"set spec.sync.enabled to true", r.Repo.GetName())
			}
			server, err := r.server(ctx, r.Namespace, r.Last)
			if err != nil {
				return nil, err
			}
			x := &exporting{staging: r, options: o, path: path, keep: keep, files: map[string]string{}, wrote: map[uint64]uint64{},
				server: server}
			if err = x.run(ctx); keep {
				r.wrote = x.wrote
			}
			return x.edits, cmp.Or(err, x.failed)
		}, then}, nil
}

// exporting is one export to the base of a commit.
type exporting struct {
	*staging
	options *api.ExportOptions
	path    string
	keep    bool // the UIDs
	server  *server
	layout  *export.Layout
	files   map[string]string // hashes of the files of the base
	edits   []edit
	created int64
	failed  error             // to read the base
	wrote   map[uint64]uint64 // files of the base and of the commit that migrations have written: sums of path and hash
}

func (x *exporting) run(ctx context.Context) error {
	x.exported = nil
	if err := x.quota(); err != nil {
		return err
	}
	x.Progress.SetMessage(ctx, "read folders")
	folders, err := x.server.folderList(ctx)
	if err != nil {
		return err
	}
	tree, err := x.tree(ctx)
	if err != nil {
		return err
	}
	before := map[uint64]uint64{}
	if x.o.Store != nil {
		if before, err = x.o.Store.Versions(ctx, x.Namespace, x.Repo.GetName()+wroteBy, string(x.Repo.GetUID())); err != nil {
			return err
		}
	}
	for path, hash := range x.files {
		if file := sum(path, hash); before[file] != 0 {
			x.wrote[file] = 1
		}
	}
	x.layout = export.New(export.Options{Repository: x.Repo.GetName(), Namespace: x.Namespace, Kinds: x.server.kinds,
		Salt: string(x.Repo.GetUID()),
		Path: x.path, KeepUIDs: x.keep, KeepFolderUIDs: x.keep && !x.options.GenerateNewFolderIDs, Tree: tree,
		Object: func(path string) resources.Identity { return x.object(ctx, path) }, Find: x.finder(ctx)}, folders)
	x.Progress.SetMessage(ctx, "read dashboards")
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
				x.edits = append(x.edits, edit{result: resources.Result{Action: resources.Ignored, Group: api.FolderGroup, Kind: "Folder",
					Name: f.Name, Warning: err}})
			}
		}
	}
	x.add(x.layout.Markers()...)
	ref := resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource}
	err := pages(ctx, x.server, ref, "", func(version string, page []json.RawMessage) error {
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
			res.Warning = resources.CheckUnmanaged(x.Repo.GetName(), id, live.Annotations)
			if resources.Manages(x.Repo.GetName(), live.Annotations) {
				res.Warning = fmt.Errorf("%s is in the repository already", id)
			}
		}
		if res.Err != nil || res.Warning != nil {
			x.edits = append(x.edits, edit{result: res, others: apierrors.IsNotFound(res.Err) && !x.keep})
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
			x.edits = append(x.edits, edit{result: resources.Result{Action: resources.Ignored, Group: ref.Group, Kind: "Dashboard", Name: ref.Name,
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
		e := edit{result: resources.Result{Action: resources.Ignored, Group: f.Object.Group, Kind: f.Object.Kind, Name: f.Object.Name,
			Path: f.Path, Warning: f.Warning}}
		there, blob, old := x.files[f.Path], git.NewBlob(f.Data), cmp.Or(f.From, f.Path)
		if was := x.files[old]; x.keep && f.Warning == nil && was != "" && was != blob.ID.String() && x.wrote[sum(old, was)] == 0 {
			e.result.Warning = fmt.Errorf("%s, which no migration has written, is replaced by %s of the API; it is in the commit before",
				old, f.Object)
			if x.Repository.Spec.Type == "local" { // without a commit before
				f.Warning = fmt.Errorf("%s, which no migration has written, differs from %s of the API and stays; "+
					"try: delete one of them, and migrate again", old, f.Object)
				e.result.Warning = f.Warning
			}
		}
		if f.Warning == nil && f.Path != "" && there != blob.ID.String() {
			e.file, x.wrote[sum(f.Path, blob.ID.String())] = git.Edit{Path: within(x.at.Dir, f.Path), Blob: blob}, 1
			if e.result.Action = resources.Updated; there == "" {
				e.result.Action = resources.Created
				x.created++
			}
		}
		if f.From != "" && f.Warning == nil {
			gone := e.result
			gone.Action, gone.Path = resources.Deleted, f.From
			x.edits = append(x.edits, edit{file: git.Edit{Path: within(x.at.Dir, f.From)}, result: gone})
			x.created--
		}
		x.edits = append(x.edits, e)
		if x.keep && f.Warning == nil {
			x.exported = append(x.exported, exported{f.Object.Kind, f.Object.Name, f.Version})
		}
	}
}

// tree returns the paths of the base below the directory of the Repository.
func (x *exporting) tree(ctx context.Context) (paths []string, err error) {
	if x.base.Hash == "" {
		return nil, nil
	}
	t, err := x.o.Git.Tree(ctx, x.at.Remote, x.base.Hash, x.at.Dir)
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
	data, err := x.o.Git.Blob(ctx, x.at.Remote, hash, resources.MaxFile)
	if err != nil && !errors.As(err, new(*git.TooLargeError)) {
		x.failed = cmp.Or(x.failed, err)
	}
	if repopath.IsFolderFile(path) {
		return resources.Identity{Group: api.FolderGroup, Kind: "Folder", Name: resources.ParseFolderFile(path, hash, data).UID}
	}
	o, err := resources.Parse(resources.File{Repository: x.Repo.GetName(), Namespace: x.Namespace, Path: path, Kinds: x.server.kinds}, data)
	if err != nil {
		return none
	}
	return o.Identity()
}

// quota returns an error if the Repository may not hold more objects than it does.
func (x *exporting) quota() error {
	most := x.Repository.Status.Quota.MaxResourcesPerRepository
	have := x.created
	for _, count := range x.Repository.Status.Stats {
		have += count.Count
	}
	if most > 0 && have > most {
		return fmt.Errorf("resource quota of %d exceeded: repository %q would have %d, so nothing was pushed", most, x.Repo.GetName(), have)
	}
	return nil
}

// A migration exports objects with their UIDs. On the branch of the Repository a full pull then
// takes them over; on another one they are deleted, and come back when that branch is merged. What
// was exported is kept with the resource versions: an object that somebody has changed since is
// neither overwritten nor deleted.

// exported is an object that is in the commit.
type exported struct {
	Kind    string `json:"k"`
	Name    string `json:"n"`
	Version string `json:"v"` // its resourceVersion
}

func (e exported) identity() resources.Identity {
	if e.Kind == "Folder" {
		return resources.Identity{Group: api.FolderGroup, Kind: e.Kind, Name: e.Name}
	}
	return resources.Identity{Group: api.DashboardGroup, Kind: e.Kind, Name: e.Name}
}

// takeOver returns the objects that a pull takes over, with their resource versions. A folder may
// have changed: its file has all that is synced of it.
func (s *staged) takeOver() map[resources.Identity]string {
	out := map[resources.Identity]string{}
	if s == nil {
		return out
	}
	for _, e := range s.Exported[s.Hash] {
		if out[e.identity()] = e.Version; e.Kind == "Folder" {
			out[e.identity()] = ""
		}
	}
	return out
}

// NewMigrate returns the worker of migrate jobs, which move the folders and dashboards without a
// manager, or some dashboards, into a Repository. p pulls them; keys may be nil.
func NewMigrate(p *Pull, keys auth.Source) *Write {
	return &Write{p, keys, "migrate", func(t *jobs.Task) (order, error) {
		o, target := t.Job.Spec.Migrate, t.Repository.Spec.Sync.Target
		if o != nil && len(o.Resources) > 0 && target == "instance" {
			return order{}, errors.New(`spec.migrate.resources: sync target "instance" takes all; only "folder" and "folderless" take some`)
		}
		if t.Repo.GetAnnotations()[api.AnnoSinkDir] != "" {
			return order{}, fmt.Errorf("repository %q has the annotation %s: a directory cannot take objects over",
				t.Repo.GetName(), api.AnnoSinkDir)
		}
		return exportOrder(t, o, true, func(ctx context.Context, r *staging) error {
			switch {
			case r.order.ref != "" && r.order.ref != r.note.Own:
				if r.link(); o.SkipResourceDeletion {
					return nil
				}
				return r.removeExported(ctx, false)
			case len(r.note.Exported[r.note.Hash]) == 0:
				r.link()
				return nil
			}
			r.order.ref = ""
			err := pullAfter(ctx, r)
			pulled := err == nil && t.Repository.Spec.Sync.Enabled && r.Progress.Outcome(nil).State == api.StateSuccess
			if !pulled || target != "instance" {
				return err
			}
			return r.removeExported(ctx, true)
		})
	}}
}

// removeExported deletes the exported objects that are unchanged and have no manager: the
// dashboards, and with folders those that are empty then.
func (r *staging) removeExported(ctx context.Context, folders bool) error {
	r.Progress.SetMessage(ctx, "delete exported objects")
	versions := map[resources.Identity]string{}
	for _, e := range r.note.Exported[r.note.Hash] {
		versions[e.identity()] = e.Version
	}
	s, err := r.server(ctx, r.Namespace, r.Last)
	if err != nil {
		return err
	}
	inside := map[string]int{} // objects by folder
	var gone []resources.Live
	ref := resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource}
	err = pages(ctx, s, ref, MetadataList, func(_ string, page []resources.Live) error {
		for _, live := range page {
			_, listed := versions[resources.Identity{Group: ref.Group, Kind: "Dashboard", Name: live.Name}]
			if listed && !resources.Managed(live.Annotations) {
				gone = append(gone, live)
			} else {
				inside[live.Annotations[api.AnnoFolder]]++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards inside
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(resources.DefaultParallel)
	for _, live := range gone {
		g.Go(func() error {
			left, err := r.removeOne(within, s, ref, &live, versions)
			if left {
				mu.Lock()
				defer mu.Unlock()
				inside[live.Annotations[api.AnnoFolder]]++
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || !folders {
		return err
	}
	return r.removeFolders(ctx, s, versions, inside)
}

// removeFolders deletes the exported folders that are empty, the deepest first.
func (r *staging) removeFolders(ctx context.Context, s *server, versions map[resources.Identity]string, inside map[string]int) error {
	all, err := s.folderList(ctx)
	if err != nil {
		return err
	}
	for _, f := range all {
		inside[f.Annotations[api.AnnoFolder]]++
	}
	ref := resources.Ref{Group: api.FolderGroup, Resource: resources.FolderResource}
	done := map[string]bool{}
	for more := true; more; {
		more = false
		for _, f := range all {
			_, listed := versions[resources.Identity{Group: ref.Group, Kind: "Folder", Name: f.Name}]
			if done[f.Name] || !listed || resources.Managed(f.Annotations) || inside[f.Name] > 0 {
				continue
			}
			left, err := r.removeOne(ctx, s, ref, f, versions)
			if err != nil {
				return err
			}
			if done[f.Name] = true; !left {
				inside[f.Annotations[api.AnnoFolder]]--
				more = true
			}
		}
	}
	return nil
}

// removeOne deletes an object if it is the exported one, and records that. It reports whether the
// object is left.
func (r *staging) removeOne(ctx context.Context, s *server, ref resources.Ref, live *resources.Live,
	versions map[resources.Identity]string) (left bool, err error) {
	item := live.Item(s.kinds.Named(ref.Group, ref.Resource))
	ref.Name = live.Name
	res := resources.Result{Action: resources.Deleted, Group: ref.Group, Kind: item.Kind, Name: live.Name}
	within, cancel := context.WithTimeoutCause(ctx, resources.ItemTimeout, errors.New("no answer"))
	defer cancel()
	changed := versions[item.Identity()] != live.ResourceVersion
	if !changed {
		err = s.Delete(within, ref, live.UID, live.ResourceVersion)
	}
	switch {
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case jobs.Transient(err):
		return true, err
	case changed || apierrors.IsConflict(err):
		res.Action, res.Warning = resources.Ignored, fmt.Errorf("%s has changed since it was exported, so it was not deleted", item.Identity())
	case err != nil && !apierrors.IsNotFound(err):
		res.Err = err
	}
	r.Progress.Record(ctx, res)
	return res.Err != nil || res.Warning != nil, cmp.Or(failpoint.Pass(failpoint.Applying), r.Progress.TooManyErrors())
}
