// Package manifests makes an API equal to a directory of files:
//
//   - a file is applied whole or not at all, independently of the others;
//   - a file overrides the fields of other writers, when the file changes, at the
//     start and every half minute: an object that was changed or deleted by hand
//     comes back, except for jobs;
//   - an object that was applied from a file and that no file declares any more
//     is deleted, but never while any file has an error: that file may declare it;
//   - the annotation limpet/manifest marks the objects that come from files, so
//     that these rules hold across restarts.
//
// The files are read again every two seconds: that follows editors' renames and
// Kubernetes' symlink swaps alike, and works on network file systems.
package manifests

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
)

const (
	fieldManager = "limpet-manifests"
	// defaultNamespace is that of objects that have none.
	defaultNamespace = "default"
	// pollInterval is the time between two polls: a change is in effect within 5 s, the time to apply it included.
	pollInterval = 2 * time.Second
	// healInterval is the time between two comparisons of all objects with their files.
	healInterval = 30 * time.Second
)

// transient are kinds whose objects end, or that programs write by the thousand.
var transient = []string{"jobs", "historicjobs", "events", "leases"}

// Applier applies a directory to an API. Run is its only goroutine.
type Applier struct {
	client     *kube.Client
	dir        string
	validation string // of unknown fields, as in PatchOptions
	log        *slog.Logger
	interval   time.Duration                    // between two polls
	lookup     func(name string) (string, bool) // reads the environment

	// files holds the last state of each file by its base name.
	files map[string]*file
	// made are the files that objects come from; nil until they have been listed.
	made map[key]string
	// filled reports whether a pass has found a declared object. Nothing is deleted
	// before that: while a host starts, a missing mount is an empty directory.
	filled bool
	healed time.Time // when all objects were compared with their files
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
func (o object) resource() schema.GroupVersionResource {
	return o.GroupVersionKind().GroupVersion().WithResource(o.kind.Plural)
}

// New returns an error if the directory does not exist. validation says what becomes of unknown fields, as in
// PatchOptions.
func New(client *kube.Client, dir, validation string, log *slog.Logger) (*Applier, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open manifests: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open manifests: %s is not a directory", dir)
	}
	return &Applier{client: client, dir: dir, validation: validation, log: log, interval: pollInterval, lookup: os.LookupEnv,
		files: map[string]*file{}}, nil
}

// Run applies the directory at once and after each change until ctx ends, and then returns nil. Faults of
// files are logged once each and do not end it. It may be called once.
func (a *Applier) Run(ctx context.Context) error {
	tick := time.NewTicker(a.interval)
	defer tick.Stop()
	for {
		if r := a.runOnce(ctx); ctx.Err() == nil {
			a.report(r)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
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
			a.log.Error("manifest not applied", "err", problem)
		}
	}
	a.problems = r.problems
	for _, object := range r.healed {
		a.log.Warn("restored an object of a manifest that was changed or deleted by hand", "object", object)
	}
	for _, warning := range r.warnings {
		a.log.Warn("manifest", "warning", warning)
	}
	if r.applied > 0 || r.deleted > 0 {
		a.log.Info("applied manifests", "dir", a.dir, "objects", r.applied, "deleted", r.deleted)
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

// runOnce does one pass: it polls every file and applies those that have changed since the last one.
func (a *Applier) runOnce(ctx context.Context) (r result) {
	names, err := a.poll(&r)
	if err != nil {
		r.problems = []error{fmt.Errorf("read manifests: %w", err)}
		return r
	}
	declared := map[key]string{}
	heal := time.Since(a.healed) >= healInterval
	if heal {
		a.healed = time.Now()
	}
	for _, name := range names {
		f := a.files[name]
		if clash := f.declare(declared); clash != nil {
			f.err, f.done = clash, true
		}
		switch {
		case !f.done:
			f.err, f.done = a.apply(ctx, f, &r)
		case heal && f.err == nil:
			f.err = a.heal(ctx, f, &r)
			f.done = f.err == nil
		}
		if f.err != nil {
			r.problems = append(r.problems, f.err)
		}
	}
	if len(r.problems) == 0 && ctx.Err() == nil {
		a.prune(ctx, declared, &r)
	}
	return r
}

// poll reads new and changed files, forgets deleted ones, and returns the names of
// all. Names that begin with a dot belong to editors and Kubernetes.
func (a *Applier) poll(r *result) (names []string, err error) {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return nil, err
	}
	before := a.files
	a.files = map[string]*file{}
	changed := false
	for _, entry := range entries { // sorted
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		if info, err := os.Stat(filepath.Join(a.dir, name)); err == nil && info.IsDir() {
			continue
		}
		f := before[name]
		if f == nil || f.changed() {
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
	return names, nil
}

// apply writes the objects of a file after a dry run of all of them. done is false
// for an error that may pass: an invalid object stays invalid until a file changes.
func (a *Applier) apply(ctx context.Context, f *file, r *result) (err error, done bool) {
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		for _, o := range f.objects {
			if _, err := a.applyObject(ctx, f.name, o, dryRun); err != nil {
				return fmt.Errorf("%s: %w", o.where, err), apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
			}
			if dryRun == nil {
				r.applied++
				if a.made != nil {
					a.made[o.key()] = f.name
				}
			}
		}
	}
	return nil, true
}

// heal applies the objects of a file that others have changed or deleted. One without the annotation was released by
// a user. The dry run keeps an object that is as it should be from being written.
func (a *Applier) heal(ctx context.Context, f *file, r *result) error {
	for _, o := range f.objects {
		if slices.Contains(transient, o.kind.Plural) {
			continue
		}
		live, err := a.client.Resource(o.resource()).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("%s: %w", o.where, err)
		case live.GetDeletionTimestamp() != nil || api.Annotation(live, api.AnnoManifest) == "":
			continue
		default:
			planned, err := a.applyObject(ctx, f.name, o, []string{metav1.DryRunAll})
			if err != nil {
				return fmt.Errorf("%s: %w", o.where, err)
			}
			for _, obj := range []*unstructured.Unstructured{planned, live} { // a controller may have written its status meanwhile
				delete(obj.Object, "status")
				obj.SetResourceVersion("")
				obj.SetManagedFields(nil)
			}
			if reflect.DeepEqual(planned.Object, live.Object) {
				continue
			}
		}
		if _, err := a.applyObject(ctx, f.name, o, nil); err != nil {
			return fmt.Errorf("%s: %w", o.where, err)
		}
		r.healed = append(r.healed, fmt.Sprintf("%s %s/%s of %s", o.kind.Singular, o.GetNamespace(), o.GetName(), f.name))
	}
	return nil
}

func (a *Applier) applyObject(ctx context.Context, file string, o object, dryRun []string) (*unstructured.Unstructured, error) {
	obj := o.DeepCopy()
	api.SetAnnotation(obj, api.AnnoManifest, file)
	patch, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	return a.client.Resource(o.resource()).Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(), types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager, Force: new(true), DryRun: dryRun, FieldValidation: a.validation})
}

// prune deletes the objects that came from files and that none declares any more.
func (a *Applier) prune(ctx context.Context, declared map[key]string, r *result) {
	if err := a.listMade(ctx); err != nil {
		r.problems = append(r.problems, fmt.Errorf("list objects of manifests: %w", err))
		return
	}
	if a.filled = a.filled || len(declared) > 0; !a.filled {
		if len(a.made) > 0 {
			r.problems = append(r.problems, fmt.Errorf(
				"%s declares nothing: kept %d objects that came from it before; delete them by hand if that is meant", a.dir, len(a.made)))
		}
		return
	}
	for k, file := range a.made {
		if _, stays := declared[k]; stays {
			continue
		}
		switch err := a.delete(ctx, k); {
		case err == nil:
			r.deleted++
			delete(a.made, k)
		case apierrors.IsNotFound(err):
			delete(a.made, k)
		default:
			r.problems = append(r.problems, fmt.Errorf(
				"delete %s %s/%s, which %s no longer declares: %w", k.resource.Resource, k.namespace, k.name, file, err))
		}
	}
}

// delete deletes an object unless its annotation has been removed, by which a user keeps it.
func (a *Applier) delete(ctx context.Context, k key) error {
	objects := a.client.Resource(k.resource).Namespace(k.namespace)
	obj, err := objects.Get(ctx, k.name, metav1.GetOptions{})
	if err != nil || api.Annotation(obj, api.AnnoManifest) == "" {
		return err
	}
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return objects.Delete(ctx, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// listMade lists, once, the objects that came from files before this process
// started. Those of transient kinds are not searched.
func (a *Applier) listMade(ctx context.Context) error {
	if a.made != nil {
		return nil
	}
	made := map[key]string{}
	for _, k := range api.Kinds {
		if slices.Contains(transient, k.Plural) {
			continue
		}
		all, err := a.client.Resource(resource(k)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, obj := range all.Items {
			if file := api.Annotation(&obj, api.AnnoManifest); file != "" {
				made[key{resource(k), obj.GetNamespace(), obj.GetName()}] = file
			}
		}
	}
	a.made = made
	return nil
}
