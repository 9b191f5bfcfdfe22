package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// Files in a directory are no objects of an API. They are counted under a group of our own.
const (
	sinkGroup = "limpet"
	SinkKind  = "File"
)

// SinkFiles are the files of a directory in Counts.
var SinkFiles = schema.GroupResource{Group: sinkGroup, Resource: "files"}

// Directory is a directory of a host that gets the files of a Repository instead of an API: there
// may be a Grafana on that host that provisions them.
type Directory struct {
	At        sink.Target
	Spec      resources.Target
	Namespace string
	Source    string // stands for all that the files depend on beside the commit
	Strict    bool   // it gets no file that Grafana would not load
	Thorough  bool   // every file is read, whatever the disk says of it
	KeepEdits bool   // edited files stay as they are, until they change in Git
	Exec      bool   // a program follows its switch
	Max       int64  // files that there may be; 0 = no limit
	Progress  Progress
}

// Owner returns the name of the Repository in the manifest of the directory.
func (d *Directory) Owner() string { return d.Namespace + "/" + d.Spec.Repository }

// Open opens the directory for a write.
func (d *Directory) Open(ctx context.Context) (*sink.Dir, error) {
	return sink.Open(ctx, d.At, d.Owner())
}

// Holds returns an error unless the directory is at a commit and of the present source, as far as
// the sizes and the times of its files tell. Another host that has pulled the same commit from
// another path leaves this one's source as it was.
func (d *Directory) Holds(commit string) error {
	has, source, err := sink.Check(d.At, d.Owner())
	switch {
	case err != nil:
		return err
	case has != commit:
		return fmt.Errorf("%s is at commit %s", d.At, checkout.ShortHash(has))
	case source != "" && source != d.Source:
		return fmt.Errorf("%s was written with other settings", d.At)
	}
	return nil
}

// Commit is what a directory is made equal to.
type Commit struct {
	Hash    string
	Files   []checkout.File
	Content *checkout.Content
	// Unread are the files that the last pull could not use. Known reports that they are those of what
	// the directory has.
	Unread []state.UnreadFile
	Known  bool
}

// DirectoryPlan is what makes a Directory equal to a commit.
type DirectoryPlan struct {
	*sink.Plan
	LeftOut []resources.Result // files that are not written, each with a warning
	Warning string             // about the whole tree; "" = none
	Files   int                // that the directory gets
	mu      sync.Mutex         // guards Bad while files are read
	Bad     map[string]error   // why Grafana would not load some of them

	of     *Directory
	dir    *sink.Dir
	commit Commit
	tree   int         // files of the commit
	hidden int         // of them
	files  []sink.File // that are wanted, until they are compared
	first  bool        // its files are judged while they are written
}

// Compare plans what makes the open directory equal to a commit. The plan has what is left out also
// with an error.
func (d *Directory) Compare(ctx context.Context, dir *sink.Dir, commit Commit) (*DirectoryPlan, error) {
	d.Progress.SetMessage(ctx, "compare with "+d.At.String())
	p := &DirectoryPlan{of: d, dir: dir, commit: commit, tree: len(commit.Files), Bad: map[string]error{}}
	if err := dir.Load(); err != nil {
		return p, err
	}
	if err := p.choose(ctx); err != nil {
		return p, err
	}
	dir.Thorough = d.Thorough
	dir.KeepEdits = d.KeepEdits
	dir.Exec = d.Exec
	plan, err := dir.Plan(commit.Hash, d.Source, p.files)
	if err != nil {
		return p, err
	}
	plan.Hidden = p.hidden
	p.Plan = plan
	p.Files = len(p.files)
	p.files, p.commit.Files = nil, nil // megabytes of a large tree
	if over := p.Files - int(d.Max); d.Max > 0 && over > 0 {
		for _, f := range plan.LeaveOut(over) {
			p.Files--
			delete(p.Bad, f.Path)
			p.leaveOut(f.Path, &resources.QuotaError{Path: f.Path, Max: d.Max})
		}
	}
	return p, nil
}

// choose finds the files of the tree to write, and why Grafana would not load some of them: a strict
// directory does not get these. What the directory has is judged by the list of unread files where
// that is known; a large file always is.
func (p *DirectoryPlan) choose(ctx context.Context) error {
	var fresh []sink.File
	var check []checkout.Blob
	strict, before := p.of.Strict, map[string]state.UnreadFile{}
	known := p.commit.Known && p.dir.KnowsUIDs()
	p.first = p.isFirst()
	p.files = make([]sink.File, 0, p.tree)
	for _, f := range p.commit.Unread {
		before[f.Path] = f
	}
	for _, f := range p.commit.Files {
		if strict && !repopath.IsResourceFile(f.Path) || !p.usable(f) {
			continue
		}
		file, warning, err := p.commit.Content.SinkFile(ctx, f)
		if err != nil {
			return err
		}
		if warning != nil {
			p.leaveOut(f.Path, warning)
			continue
		}
		if p.first {
			p.files = append(p.files, file)
			continue
		}
		has, old := p.dir.Has(file), before[f.Path]
		if !has {
			fresh = append(fresh, file)
		} else {
			last, _ := p.dir.Last(f.Path)
			file.UID = last.UID
		}
		p.files = append(p.files, file)
		switch _, large := checkout.PointerOf(file); {
		case !strict && !isJSON(f.Path):
		case !has || !known && !large:
			check = append(check, checkout.Blob{Path: f.Path, Hash: f.Hash})
		case old.Hash == f.Hash && file.UID == "": // else what was wrong was its twin
			p.Bad[f.Path] = &resources.ParseError{Path: f.Path, Err: errors.New(old.Reason)}
		}
	}
	if p.first {
		return nil
	}
	check = p.keepMissing(ctx, fresh, check)
	uids, err := p.judgeAll(ctx, check)
	p.findTwins(uids)
	if err != nil || !strict {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.Bad)) {
		p.leaveOut(name, p.Bad[name])
	}
	p.files = slices.DeleteFunc(p.files, func(f sink.File) bool { return p.Bad[f.Path] != nil })
	p.Bad = nil
	p.Files = len(p.files)
	p.warnOfNone()
	return nil
}

// warnOfNone sets the warning about a strict directory that gets no file.
func (p *DirectoryPlan) warnOfNone() {
	if p.Files == 0 && p.tree > 0 {
		p.Warning = "no file is a dashboard, so nothing is written; annotation " + api.AnnoSinkStrict +
			" with the value false writes all files"
	}
}

// usable reports whether a file of the tree is written. It counts hidden files, and leaves out one
// that is too large.
func (p *DirectoryPlan) usable(f checkout.File) bool {
	if repopath.Check(f.Path, true) != nil {
		p.hidden++
		return false
	}
	if f.Size > resources.MaxFile {
		p.leaveOut(f.Path, &resources.TooLargeError{What: "the file", Size: f.Size, Limit: resources.MaxFile})
		return false
	}
	return true
}

// keepMissing keeps the last version of files whose content Git LFS does not have. It returns the
// rest of those to judge.
func (p *DirectoryPlan) keepMissing(ctx context.Context, fresh []sink.File, check []checkout.Blob) []checkout.Blob {
	p.commit.Content.FetchFiles(ctx, fresh)
	for _, f := range fresh {
		last, has := p.dir.Last(f.Path)
		if !has {
			continue // git cannot write the tree either
		}
		if warning := p.commit.Content.Missing(ctx, f); warning != nil {
			p.files[slices.Index(p.files, f)] = last
			check = slices.DeleteFunc(check, func(w checkout.Blob) bool { return w.Path == f.Path })
			p.leaveOut(f.Path, warning)
		}
	}
	return check
}

// judgeAll returns the uids of dashboards by path, "" for a file that is none.
func (p *DirectoryPlan) judgeAll(ctx context.Context, check []checkout.Blob) (map[string]string, error) {
	uids := map[string]string{} // guarded by p.mu
	err := p.commit.Content.ReadEach(ctx, check, func(i int, data []byte, err error) {
		uid := ""
		if err == nil {
			uid, err = p.of.judge(check[i], data)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if uids[check[i].Path] = uid; err != nil {
			p.Bad[check[i].Path] = err
		}
	})
	return uids, err
}

// findTwins sets the uids of the files.
func (p *DirectoryPlan) findTwins(uids map[string]string) {
	owners := uidOwners{}
	for i := range p.files {
		f := &p.files[i]
		if uid, judged := uids[f.Path]; judged {
			f.UID = uid
		}
		if err := owners.claim(*f); err != nil {
			p.Bad[f.Path] = err
		}
	}
}

// uidOwners are the files of uids. Grafana loads the first file of a uid, by path.
type uidOwners map[string]string

// claim returns an error for a file whose uid a file before it has.
func (o uidOwners) claim(f sink.File) error {
	first, twin := o[f.UID]
	switch {
	case f.UID == "":
		return nil
	case twin:
		object := resources.Identity{Kind: "Dashboard", Name: f.UID}
		return &resources.DuplicateError{Object: object, Path: f.Path, Other: first}
	}
	o[f.UID] = f.Path
	return nil
}

func isJSON(name string) bool { return strings.EqualFold(path.Ext(name), ".json") }

// judge returns the uid of the dashboard in a JSON file, and why Grafana's file provisioning does
// not load the file. One that is neither a dashboard nor a folder is wrong in a strict directory;
// in another one it has to be JSON.
func (d *Directory) judge(f checkout.Blob, data []byte) (uid string, err error) {
	if d.Strict && repopath.IsFolderFile(f.Path) {
		return "", resources.ParseFolderFile(f.Path, f.Hash, data).Err
	}
	o, err := resources.Judge(resources.File{Repository: d.Spec.Repository, Namespace: d.Namespace, Path: f.Path,
		Kinds: d.Spec.Kinds, Directory: true}, data)
	switch {
	case o == nil && !d.Strict:
		return "", resources.CheckJSON(f.Path, data)
	case err == nil && isJSON(f.Path) && o.GVK.Kind == "Dashboard":
		return o.Name, nil
	}
	return "", err
}

// leaveOut keeps the warning for a file that is not written.
func (p *DirectoryPlan) leaveOut(path string, warning error) {
	p.LeftOut = append(p.LeftOut, fileResult(resources.Ignored, path, warning))
}

func fileResult(action resources.Action, name string, warning error) resources.Result {
	return resources.Result{Action: action, Group: sinkGroup, Kind: SinkKind, Name: path.Base(name), Path: name, Warning: warning}
}

// Unchanged reports that nothing is written, and nothing is bad.
func (p *DirectoryPlan) Unchanged() bool { return p.Empty() && len(p.Bad) == 0 }

// actions returns the files that are written.
func (p *DirectoryPlan) actions() map[string]resources.Action {
	out := map[string]resources.Action{}
	for _, f := range p.Added {
		out[f.Path] = resources.Created
	}
	for _, f := range p.Changed {
		out[f.Path] = resources.Updated
	}
	return out
}

// Fetch brings the content of the files to write.
func (p *DirectoryPlan) Fetch(ctx context.Context) {
	p.of.Progress.SetTotal(ctx, len(p.Added)+len(p.Changed)+len(p.Removed))
	p.of.Progress.SetMessage(ctx, "write "+p.of.At.String())
	p.commit.Content.FetchFiles(ctx, slices.Concat(p.Added, p.Changed))
}

// Rehearse records what Apply would do, and writes nothing.
func (p *DirectoryPlan) Rehearse(ctx context.Context, to resources.Recorder) {
	for name, action := range p.actions() {
		to.Record(ctx, fileResult(action, name, p.Bad[name]))
	}
	for _, name := range p.Removed {
		to.Record(ctx, fileResult(resources.Deleted, name, p.Bad[name]))
	}
}

// Apply carries the plan out. It records the changes, and those files that stay and are bad.
func (p *DirectoryPlan) Apply(ctx context.Context, to resources.Recorder) (Counts, error) {
	if p.first {
		return p.applyFirst(ctx, to)
	}
	action := p.actions()
	err := p.dir.Write(ctx, p.Plan, p.commit.Content.OpenFile, func(f sink.File) {
		to.Record(ctx, fileResult(action[f.Path], f.Path, p.Bad[f.Path]))
	})
	if err != nil {
		return nil, err
	}
	for _, name := range p.Removed {
		to.Record(ctx, fileResult(resources.Deleted, name, nil))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Bad)) {
		if action[name] == "" {
			to.Record(ctx, fileResult(resources.Ignored, name, p.Bad[name]))
		}
	}
	return Counts{SinkFiles: int64(p.Files)}, nil
}
