// Package manifests makes an API equal to a directory of files:
//
//   - a file is applied whole or not at all, independently of the others;
//   - a file overrides the fields of other writers, when the file changes, at the
//     start and every half minute: an object that was changed or deleted by hand
//     comes back, except for jobs;
//   - an object that was applied from a file and that no file declares for half a
//     minute is deleted, but never while any file has an error or is empty: that file
//     may declare it. On the API of another server that has to be asked for (Options.Prune);
//   - the annotation limpet/manifest marks the objects that come from files, so
//     that these rules hold across restarts. On the API of another server
//     limpet/manifest-owner names the directory that they come from: an object of
//     another one is left alone, so that two never write against each other.
//
// Every two seconds the files whose stamps have changed are read again, and every half minute all
// of them: that follows editors' renames and Kubernetes' symlink swaps alike, and works on network
// file systems.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
)

const (
	fieldManager = "limpet-manifests"
	// defaultNamespace is that of objects that have none.
	defaultNamespace = "default"
	// pollInterval is the time between two polls: a change is in effect within 5 s, the time to apply
	// it included.
	pollInterval = 2 * time.Second
	// healInterval is the time between two comparisons of all objects with their files, and that for
	// which no file declares an object before it is deleted: a file may be read while it is copied.
	healInterval = 30 * time.Second
)

// transient are kinds whose objects end, or that programs write by the thousand.
var transient = []string{"jobs", "historicjobs", "events", "leases"}

// Options configure an Applier. Client, Store, Dir, Validation and Logger are required.
type Options struct {
	Client *kube.Client
	Store  *state.Store // keeps what was applied, sealed
	Dir    string
	// Server is the URL of the server of another process, and Host the name of this host, which is
	// part of the owner of the objects there. An empty Server means the embedded API of this process,
	// where objects are deleted in any case.
	Server, Host string
	Namespace    string          // of objects without one, and of those that may be deleted; "" = default, and all
	Selector     labels.Selector // of the objects to apply; nil = all
	Prune        bool            // delete what no file declares any more
	Validation   string          // of unknown fields, as in PatchOptions
	Logger       *slog.Logger
}

// Applier applies a directory to an API. Run is its only goroutine.
type Applier struct {
	Options
	owner    string                           // of the objects
	former   string                           // the owner as it was written before; an object that has it is taken over
	interval time.Duration                    // between two polls
	lookup   func(name string) (string, bool) // reads the environment
	pause    time.Duration                    // after a failure
	retry    time.Time                        // when what failed is tried again

	// files holds the last state of each file by its base name.
	files map[string]*file
	// made are the files that objects come from; nil until they have been listed.
	made map[key]string
	// gone holds since when no file declares an object; a pass with a fault begins the time anew.
	gone map[key]time.Time
	// filled reports whether a pass has found a declared object. Nothing is deleted
	// before that: while a host starts, a missing mount is an empty directory.
	filled bool
	healed time.Time // when all objects were compared with their files
	// versions are the resourceVersions of the objects of a collection by their names, as the comparison
	// that is under way has listed them; nil outside of one.
	versions map[collection]map[string]string
	// problems are the faults of the last pass, so that each is logged once.
	problems []error
	problem  atomic.Value // string, the result of Problem
}

type key struct {
	resource        schema.GroupVersionResource // in its first version
	namespace, name string
}

func resource(k api.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}
}

// resource returns the resource of an object in the version of its file.
func (o *object) resource() schema.GroupVersionResource {
	return o.GroupVersionKind().GroupVersion().WithResource(o.kind.Plural)
}

// New returns an error if the directory does not exist.
func New(ctx context.Context, o Options) (*Applier, error) {
	info, err := os.Stat(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open manifests: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open manifests: %s is not a directory", o.Dir)
	}
	a := &Applier{Options: o, owner: embeddedOwner, interval: pollInterval, lookup: os.LookupEnv, files: map[string]*file{}}
	if o.Server == "" {
		a.Prune = true
		return a, nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	host, err := first(ctx, o.Store, "manifests/host", o.Host)
	if err != nil {
		return nil, err
	}
	id, err := first(ctx, o.Store, "manifests/id", fmt.Sprintf("%08x", rand.Uint32()))
	a.owner, a.former = host+"-"+id+":"+dir, host+":"+dir
	return a, err
}

// first returns the value that a part of the owner had first: a container has another name after
// each start, and two hosts of one image have the same.
func first(ctx context.Context, store *state.Store, fact, value string) (string, error) {
	has, err := store.Fact(ctx, fact)
	if errors.Is(err, state.ErrNotFound) {
		has, err = []byte(value), store.PutFact(ctx, fact, []byte(value))
	}
	if err != nil {
		return "", fmt.Errorf("read the name of the owner of manifests: %w", err)
	}
	return string(has), nil
}

// Run applies the directory at once and after each change until ctx ends, and then returns nil.
// Faults of files are logged once each and do not end it. It may be called once.
func (a *Applier) Run(ctx context.Context) error {
	for {
		if r := a.runOnce(ctx); ctx.Err() == nil {
			a.report(r)
		}
		if kube.Sleep(ctx, a.interval) != nil {
			return nil
		}
	}
}

// Problem returns the first fault of the last pass and the number of others; "" if
// there was none. It may be called at any time.
func (a *Applier) Problem() string {
	problem, _ := a.problem.Load().(string)
	return problem
}

// report publishes the result of a pass, and logs each fault once.
func (a *Applier) report(r result) {
	summary := ""
	if n := len(r.problems); n > 0 {
		if summary = "manifest not applied: " + r.problems[0].Error(); n > 1 {
			summary += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	a.problem.Store(summary)
	for _, problem := range r.problems {
		if !slices.ContainsFunc(a.problems, func(b error) bool { return b.Error() == problem.Error() }) {
			a.Logger.Error("manifest not applied", "err", problem)
		}
	}
	a.problems = r.problems
	for _, object := range r.healed {
		a.Logger.Warn("restored an object of a manifest that was changed or deleted by hand", "object", object)
	}
	for _, warning := range r.warnings {
		a.Logger.Warn("manifest", "warning", warning)
	}
	if r.applied > 0 || r.deleted > 0 {
		a.Logger.Info("applied manifests", "dir", a.Dir, "objects", r.applied, "deleted", r.deleted)
	}
}

// result is that of one pass.
type result struct {
	applied  int // objects of files that are new or changed
	deleted  int
	healed   []string // objects that were changed or deleted by others
	problems []error
	warnings []string // of files that are new or changed
}

// errAway stands for all errors of an API that does not answer, so that they are logged once.
var errAway = errors.New("API unavailable, retrying; try: limpet doctor")

// runOnce does one pass: it polls every file and applies those that have changed since the last
// one.
func (a *Applier) runOnce(ctx context.Context) (r result) {
	gone := a.gone
	a.gone = nil
	heal := time.Since(a.healed) >= healInterval
	names, changed, err := a.poll(heal, &r)
	if err != nil {
		r.problems = []error{fmt.Errorf("read manifests: %w", err)}
		return r
	}
	declared := map[key]string{}
	due := changed || !time.Now().Before(a.retry)
	if heal {
		a.healed, a.versions = time.Now(), map[collection]map[string]string{}
	}
	failed := false
	for _, name := range names {
		f := a.files[name]
		if clash := f.declare(declared); clash != nil {
			f.err, f.done = clash, true
		}
		switch {
		case !f.done && due:
			f.err, f.done = a.apply(ctx, f, false, &r)
			failed = failed || !f.done
		case heal && f.done && f.err == nil:
			f.err, _ = a.apply(ctx, f, true, &r)
			f.done = f.err == nil
		}
		if f.err != nil {
			r.problems = append(r.problems, f.err)
		}
		if errors.Is(f.err, errAway) { // it does not answer for the others either
			r.problems = []error{f.err}
			break
		}
	}
	a.versions = nil
	if len(r.problems) == 0 && ctx.Err() == nil && a.Prune && due {
		a.prune(ctx, declared, gone, &r)
		failed = len(r.problems) > 0 && len(declared) > 0
	}
	switch {
	case failed:
		a.pause = min(max(2*a.pause, a.interval), healInterval)
		a.retry = time.Now().Add(a.pause + rand.N(a.pause/10+1))
	case due:
		a.pause = 0
	}
	for _, name := range names {
		r.problems = append(r.problems, a.files[name].foreign...)
	}
	return r
}

// poll reads new and changed files, forgets deleted ones, and returns the names of all, and whether
// there is another one than before. Names that begin with a dot belong to editors and Kubernetes.
// With whole all files are read.
func (a *Applier) poll(whole bool, r *result) (names []string, changed bool, err error) {
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		return nil, false, err
	}
	before := a.files
	a.files = map[string]*file{}
	for _, entry := range entries { // sorted
		name := entry.Name()
		if entry.IsDir() || strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			if info, err := os.Stat(filepath.Join(a.Dir, name)); err == nil && info.IsDir() {
				continue
			}
		}
		f := before[name]
		if f == nil || f.changed(whole) {
			f, changed = a.read(name), true
			r.warnings = append(r.warnings, f.warnings...)
		}
		a.files[name] = f
		names = append(names, name)
	}
	changed = changed || len(names) != len(before)
	for _, f := range a.files {
		if changed && f.err != nil && len(f.objects) > 0 {
			f.done = false // the cause of the error may be gone
		}
	}
	return names, changed, nil
}

// apply writes the objects of a file after a dry run of all of them. done is false for an error
// that may pass: an invalid object stays invalid until a file changes. With heal the unchanged ones
// are not counted.
func (a *Applier) apply(ctx context.Context, f *file, heal bool, r *result) (err error, done bool) {
	writes := make([]*write, len(f.objects))
	var ours []int
	f.foreign = nil
	for i, o := range f.objects {
		if heal && a.settled(ctx, o) {
			ours = append(ours, i)
			continue
		}
		writes[i], err = a.plan(ctx, f.name, o)
		if foreign, is := errors.AsType[*errForeign](err); is {
			f.foreign = append(f.foreign, fmt.Errorf("%s: %s %s/%s: %w", o.where, o.kind.Singular, o.GetNamespace(), o.GetName(), foreign))
		} else if err != nil {
			return failure(o, err)
		} else {
			ours = append(ours, i)
		}
	}
	for _, i := range ours {
		o := f.objects[i]
		if err := a.write(ctx, f.name, o, writes[i]); err != nil {
			return failure(o, err)
		}
		switch {
		case writes[i] != nil && writes[i].again:
			r.healed = append(r.healed, fmt.Sprintf("%s %s/%s of %s", o.kind.Singular, o.GetNamespace(), o.GetName(), f.name))
		case writes[i] != nil || !heal:
			r.applied++
		}
		if a.made != nil {
			a.made[o.key()] = f.name
		}
	}
	return nil, true
}

// failure returns the error of an object of a file, and whether it stays until a file changes.
func failure(o *object, err error) (error, bool) {
	if _, away := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err)); away {
		return errAway, false
	}
	return fmt.Errorf("%s: %w", o.where, err), apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// prune deletes the objects that came from files and that none has declared since the times of
// gone.
func (a *Applier) prune(ctx context.Context, declared map[key]string, gone map[key]time.Time, r *result) {
	if err := a.listMade(ctx); err != nil {
		r.problems = append(r.problems, fmt.Errorf("list objects of manifests: %w", err))
		return
	}
	if a.filled = a.filled || len(declared) > 0; !a.filled || len(declared) == 0 && a.Server != "" {
		if len(a.made) > 0 {
			r.problems = append(r.problems, fmt.Errorf(
				"%s declares nothing: kept %d objects that came from it before; delete them by hand if that is meant", a.Dir, len(a.made)))
		}
		return
	}
	a.gone = map[key]time.Time{}
	for k, file := range a.made {
		if _, stays := declared[k]; stays || a.elsewhere(k) {
			continue
		}
		since, known := gone[k]
		if !known {
			since = time.Now()
		}
		if a.gone[k] = since; time.Since(since) < healInterval {
			continue
		}
		deleted, err := a.delete(ctx, k)
		if err != nil && !apierrors.IsNotFound(err) {
			r.problems = append(r.problems, fmt.Errorf(
				"delete %s %s/%s, which %s no longer declares: %w", k.resource.Resource, k.namespace, k.name, file, err))
			continue
		}
		if deleted {
			r.deleted++
		}
		delete(a.made, k)
	}
}

// delete deletes an object unless it has another owner or none: by removing the annotation a user
// keeps it.
func (a *Applier) delete(ctx context.Context, k key) (deleted bool, err error) {
	objects := a.Client.Resource(k.resource).Namespace(k.namespace)
	obj, err := objects.Get(ctx, k.name, metav1.GetOptions{})
	if err != nil || owner(obj) != a.owner {
		return false, err
	}
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	err = objects.Delete(ctx, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	return err == nil, err
}

// elsewhere reports whether a file declares an object that the selector does not take.
func (a *Applier) elsewhere(k key) bool {
	for _, f := range a.files {
		if slices.Contains(f.others, k) {
			return true
		}
	}
	return false
}

// listMade lists, once, the objects that came from files before this process
// started. Those of transient kinds, and of large ones on another server, are not searched.
func (a *Applier) listMade(ctx context.Context) error {
	if a.made != nil {
		return nil
	}
	made := map[key]string{}
	for _, k := range api.Kinds {
		if a.Server != "" && large(k) || slices.Contains(transient, k.Plural) {
			continue
		}
		all, err := a.Client.Resource(resource(k)).Namespace(a.Namespace).List(ctx, metav1.ListOptions{})
		if a.Server != "" && (kube.NotServed(err) || k.Group != api.ProvisioningGroup && apierrors.IsUnauthorized(err)) {
			continue // a token may be for one group alone
		}
		if err != nil {
			return err
		}
		for _, obj := range all.Items {
			if owner(&obj) == a.owner {
				made[key{resource(k), obj.GetNamespace(), obj.GetName()}] = api.Annotation(&obj, api.AnnoManifest)
			}
		}
	}
	a.made = made
	return nil
}
