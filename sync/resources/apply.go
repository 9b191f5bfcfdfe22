package resources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/kube"
)

// Source: Grafana's sync worker.
const (
	DefaultParallel = 10               // of Apply
	ItemTimeout     = 15 * time.Second // for the calls of one change
)

// Ref names one object of a server. An empty Version means the preferred one.
type Ref struct{ Group, Version, Resource, Name string }

func (r Ref) counted() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// Server is an API server for Apply, in one namespace. Its methods retry retryable
// errors; their errors are those of apimachinery.
type Server interface {
	// Get returns the object; with whole it has Raw.
	Get(ctx context.Context, ref Ref, whole bool) (*Live, error)
	// Create and Update send what body makes for the version that is written.
	// strict asks the server to refuse unknown fields.
	Create(ctx context.Context, ref Ref, strict bool, body func(version string) []byte) error
	Update(ctx context.Context, ref Ref, strict bool, body func(version string) []byte) error
	// Delete deletes the object if it still is the given one.
	Delete(ctx context.Context, ref Ref, uid, resourceVersion string) error
}

// Reader reads blobs of the repository. Larger ones than MaxFile are refused
// with a *TooLargeError before they are read.
type Reader interface {
	Read(ctx context.Context, hash string) ([]byte, error)
	// Recycle takes content back that was read and is not used any more.
	Recycle(content []byte)
}

// Prepared has objects of files that were judged before.
type Prepared interface {
	// Take returns the object of a file, once.
	Take(path, hash string) (*Object, bool)
}

// Recorder receives each result.
type Recorder interface {
	Record(ctx context.Context, r Result)
	// TooManyErrors returns an error when the work has to stop.
	TooManyErrors() error
}

// Result is the outcome of one change. At most one of Err and Warning is set.
type Result struct {
	Action             Action
	Group, Kind, Name  string
	Path, PreviousPath string
	Err, Warning       error
}

// Apply carries plans out.
type Apply struct {
	Server    Server
	Reader    Reader
	Prepared  Prepared // nil = none
	Recorder  Recorder
	Namespace string
	Parallel  int // files that are written or deleted at a time; 0 means DefaultParallel
	// MaxResources is the quota of the repository; 0 means none. Count is what it has before the plan.
	MaxResources, Count int64
	// DryRun reports that Server writes nothing: objects of folders that the run creates are written
	// to the root.
	DryRun bool
	// Phase, when set, receives the duration of each phase. The names are Grafana's: file_deletions,
	// folder_deletions, folder_creations, file_creations, old_folder_cleanup.
	Phase func(name string, took time.Duration)
}

// Tally is what a run of a plan changed on the server. What it took over counts as created.
type Tally struct {
	Created, Deleted map[schema.GroupResource]int64
}

// run is one run of a plan.
type run struct {
	apply  Apply
	plan   *Plan
	claims claims
	writes chan struct{} // has a value for each file that is being written

	mu     sync.Mutex // guards the fields below
	tally  Tally
	room   int64            // creations left under the quota
	failed map[string]bool  // directories with a failed change in or below them
	broken map[string]error // directories whose folder could not be made, and why
	// occupied are folders that hold an object which could not be changed.
	occupied map[string]bool
	fatal    error // a fault that leaves nothing to build on
}

// Run carries out p. Faults of single changes are recorded and the rest goes on; the error is the
// reason to stop: too many errors, or the cause of ctx. All that was begun has ended when Run
// returns. Whatever was done may be done again: a second run changes nothing that the first one has
// made right.
func (a Apply) Run(ctx context.Context, p *Plan) (Tally, error) {
	a.Parallel = cmp.Or(a.Parallel, DefaultParallel)
	r := &run{apply: a, plan: p, writes: make(chan struct{}, a.Parallel), room: a.MaxResources - a.Count,
		tally:  Tally{Created: map[schema.GroupResource]int64{}, Deleted: map[schema.GroupResource]int64{}},
		failed: map[string]bool{}, broken: map[string]error{}, occupied: map[string]bool{}}
	r.claims.init(p)
	err := r.all(ctx)
	return r.tally, err
}

func (r *run) all(ctx context.Context) error {
	for i := range r.plan.Skipped {
		c := &r.plan.Skipped[i]
		r.record(ctx, ctx, c, Identity{}, Ignored, c.Warning)
	}
	steps := []struct {
		phase string
		do    func(context.Context) error
	}{
		{"file_deletions", func(ctx context.Context) error { return r.parallel(ctx, r.plan.DeleteFiles, r.deleteFile) }},
		{"folder_deletions", func(ctx context.Context) error { return r.serial(ctx, r.plan.DeleteFolders, r.deleteFolder) }},
		{"folder_creations", r.writeFolders},
		{"file_creations", r.writeFiles},
		{"old_folder_cleanup", r.cleanUp},
	}
	for _, step := range steps {
		began := time.Now()
		err := step.do(ctx)
		if r.apply.Phase != nil {
			r.apply.Phase(step.phase, time.Since(began))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanUp deletes what files had before they named another object, unless another file has taken it
// over, and then the folders that are empty after the other changes.
func (r *run) cleanUp(ctx context.Context) error {
	var changes []Change
	for _, c := range r.plan.WriteFiles {
		for _, item := range c.Replaces {
			if !r.claims.taken(item.Identity()) {
				changes = append(changes, Change{Action: Deleted, Path: c.Path, Existing: &item})
			}
		}
	}
	if err := r.parallel(ctx, changes, r.deleteFile); err != nil {
		return err
	}
	return r.serial(ctx, r.plan.LateFolders, r.deleteFolder)
}

// stop returns why no further change may begin.
func (r *run) stop(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	fatal := r.fatal
	r.mu.Unlock()
	if fatal != nil {
		return fatal
	}
	return r.apply.Recorder.TooManyErrors()
}

func (r *run) serial(ctx context.Context, changes []Change, do func(context.Context, *Change)) error {
	for i := range changes {
		if err := r.stop(ctx); err != nil {
			return err
		}
		do(ctx, &changes[i])
	}
	return r.stop(ctx)
}

func (r *run) parallel(ctx context.Context, changes []Change, do func(context.Context, *Change)) error {
	var g errgroup.Group
	g.SetLimit(r.apply.Parallel)
	for i := range changes {
		if r.stop(ctx) != nil {
			break
		}
		g.Go(func() error { do(ctx, &changes[i]); return nil })
	}
	_ = g.Wait() // changes record their faults
	return r.stop(ctx)
}

// item bounds the calls for one change.
func (r *run) item(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, ItemTimeout, fmt.Errorf("no answer within %s", ItemTimeout))
}

// record reports the outcome of a change whose calls ran under item, a child of ctx,
// and remembers what later changes depend on. A change that was cut by the end of
// ctx, or by an unavailable server, has no outcome: then no further change begins.
func (r *run) record(ctx, item context.Context, c *Change, id Identity, done Action, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil && item.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(item), err)
	}
	if errors.As(err, new(*kube.UnavailableError)) {
		r.stopFor(err)
		return
	}
	res := Result{Action: done, Group: id.Group, Kind: id.Kind, Name: id.Name, Path: c.Path, PreviousPath: c.From, Err: err}
	if err != nil && IsWarning(err) {
		res.Action, res.Warning, res.Err = Ignored, err, nil
	}
	// A new file that fails leaves nothing behind in any folder.
	if err != nil && c.Action != Ignored && c.Action != Created {
		r.fail(c.Path)
		r.fail(c.From)
		if c.Existing != nil {
			r.keepFolder(c.Existing.Folder)
		}
	}
	r.apply.Recorder.Record(ctx, res)
}

// stopFor lets no further change begin.
func (r *run) stopFor(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fatal == nil {
		r.fatal = err
	}
}

// fail keeps the folders above path from being deleted.
func (r *run) fail(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range repopath.Ancestors(path) {
		r.failed[dir] = true
	}
}

// keepFolder keeps a folder and those above it from being deleted: an object that should have left
// it is still there.
func (r *run) keepFolder(folder string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for folder != "" && !r.occupied[folder] {
		r.occupied[folder] = true
		folder = r.plan.live[Identity{Group: api.FolderGroup, Kind: folderKind, Name: folder}].Folder
	}
}

// missingFolder returns why path, a file or directory in the directories above place, is left out:
// the folder of one of them could not be made. nil = all are there.
func (r *run) missingFolder(place, path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range repopath.Ancestors(place) {
		if err := r.broken[dir]; errors.As(err, new(*QuotaError)) {
			return &QuotaError{Path: path, Max: r.apply.MaxResources}
		} else if err != nil {
			return &SkippedError{Reason: "not written, because the folder of " + dir + " could not be made"}
		}
	}
	return nil
}

// create creates an object under the quota.
func (r *run) create(ctx context.Context, ref Ref, path string, strict bool, body func(version string) []byte) error {
	r.mu.Lock()
	full := r.apply.MaxResources > 0 && r.room <= 0
	if !full {
		r.room--
	}
	r.mu.Unlock()
	if full {
		return &QuotaError{Path: path, Max: r.apply.MaxResources}
	}
	err := r.apply.Server.Create(ctx, ref, strict, body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.room++
		return err
	}
	r.tally.Created[ref.counted()]++
	return nil
}

// deleteFile deletes the object of a file that is gone.
func (r *run) deleteFile(ctx context.Context, c *Change) {
	item, cancel := r.item(ctx)
	defer cancel()
	done, err := r.remove(item, *c.Existing)
	r.record(ctx, item, c, c.Existing.Identity(), done, err)
}

// deleteFolder deletes the folder of a directory that is gone, or that has
// another one now, unless something in it is still there.
func (r *run) deleteFolder(ctx context.Context, c *Change) {
	item, cancel := r.item(ctx)
	defer cancel()
	id := c.Existing.Identity()
	r.mu.Lock()
	kept := r.failed[c.Path] || r.broken[c.Path] != nil || r.occupied[c.Existing.Name]
	r.mu.Unlock()
	if kept {
		r.keepFolder(c.Existing.Folder)
		reason := fmt.Sprintf("%s was not deleted, because a change in %s did not succeed", id, c.Path)
		r.record(ctx, item, c, id, Ignored, &SkippedError{Reason: reason})
		return
	}
	done, err := r.remove(item, *c.Existing)
	r.record(ctx, item, c, id, done, err)
}

// remove deletes the object if it still is what the item says: managed by this repository and made
// from that path. An object that is gone already counts as deleted; one that belongs to another
// path now is left to that path.
func (r *run) remove(ctx context.Context, item Item) (Action, error) {
	ref := Ref{Group: item.Group, Resource: item.Resource, Name: item.Name}
	old := item.live()
	var err error
	for range conflicts {
		if old == nil {
			if old, err = r.apply.Server.Get(ctx, ref, false); apierrors.IsNotFound(err) {
				break
			} else if err != nil {
				return Deleted, err
			}
			if err = checkManaged(r.plan.target.Repository, item.Identity(), old.Annotations); err != nil {
				return Deleted, err
			}
			if was := (Item{Group: item.Group, Path: old.Annotations[api.AnnoSourcePath]}).normal().Path; was != item.Path {
				return Ignored, nil
			}
		}
		if err = r.apply.Server.Delete(ctx, ref, old.UID, old.ResourceVersion); !apierrors.IsConflict(err) {
			break
		}
		old = nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return Deleted, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Deleted[ref.counted()]++
	r.room++
	return Deleted, nil
}

// DuplicateError reports that two files of one tree name one object. It is a warning; the second
// file is not written.
type DuplicateError struct {
	Object      Identity
	Path, Other string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate resource name: %s is in %s and in %s; give one of the files another uid", e.Object, e.Path, e.Other)
}

// SkippedError reports that a change was left out because another one did not
// succeed. It is a warning; the other change carries the cause.
type SkippedError struct{ Reason string }

func (e *SkippedError) Error() string { return e.Reason }

// QuotaError reports that a file was left out because the repository may not hold more resources.
// It is a warning.
type QuotaError struct {
	Path string
	Max  int64
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("resource quota of %d exceeded, skipping creation of %s", e.Max, e.Path)
}

// reasons are the kinds of errors of one resource: few, and none depends on what Git or a server
// sends. A warning lets the job go on: a person has to repair a file or an object, and no
// repetition would change that.
var reasons = []struct {
	name    string
	issue   string // Grafana's word for it; "" = none
	warning bool
	is      func(error) bool
}{
	{"path", "ResourceInvalid", true, as[*repopath.PathError]},
	{"too_large", "ResourceInvalid", true, as[*TooLargeError]},
	{"parse", "ResourceInvalid", true, as[*ParseError]},
	{"folder_file", "InvalidFolderMetadata", true, as[*FolderFileError]},
	{"ownership", "ResourceInvalid", true, as[*OwnershipError]},
	{"duplicate", "ResourceInvalid", true, as[*DuplicateError]},
	{"skipped", "", true, as[*SkippedError]},
	{"quota", "QuotaExceeded", true, as[*QuotaError]},
	{"conflict", "", false, apierrors.IsConflict},
	{"forbidden", "", false, apierrors.IsForbidden},
	{"unauthorized", "", false, apierrors.IsUnauthorized},
	{"not_found", "", false, apierrors.IsNotFound},
	{"exists", "", false, apierrors.IsAlreadyExists},
	{"invalid", "ResourceInvalid", false, func(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }},
	{"too_large", "ResourceInvalid", false, apierrors.IsRequestEntityTooLargeError},
	{"busy", "", false, func(err error) bool { return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) }},
	{"timeout", "", false, func(err error) bool { return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) }},
	{"server", "", false, func(err error) bool {
		return apierrors.IsInternalError(err) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	}},
}

func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// Reason returns a short name of the kind of err: one of a fixed set, "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if r.is(err) {
			return r.name
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "other"
}

// IssueReason returns Grafana's word for the kind of err, "" where it has none.
func IssueReason(err error) string {
	for _, r := range reasons {
		if r.is(err) {
			return r.issue
		}
	}
	return ""
}

// IsWarning reports whether err lets a job go on and end as a warning.
func IsWarning(err error) bool {
	for _, r := range reasons {
		if r.warning && r.is(err) {
			return true
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusBadRequest || code == http.StatusUnprocessableEntity || code == http.StatusRequestEntityTooLarge
}
