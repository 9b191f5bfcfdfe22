package apiserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
)

// Manifests make the embedded API equal to a directory of files:
//
//   - a file is applied whole or not at all, independently of the others;
//   - a file overrides the fields of other writers, when the file changes and at
//     the start;
//   - an object that was applied from a file and that no file declares any more
//     is deleted, but never while any file has an error: that file may declare it;
//   - the annotation limpet/manifest marks the objects that come from files, so
//     that these rules hold across restarts.
//
// The files are polled: a poll of unchanged files costs one stat each, follows
// editors' renames and Kubernetes' symlink swaps alike, works on network file
// systems, and needs no dependency.

const (
	// annoManifest names the file that an object came from.
	annoManifest    = "limpet/manifest"
	manifestManager = "limpet-manifests"
	// manifestNamespace is the namespace of objects that have none.
	manifestNamespace = "default"
	// manifestInterval is the time between two polls: a change is in effect
	// within 5 s, the time to apply it included.
	manifestInterval = 2 * time.Second
)

// ManifestOptions configure Manifests.
type ManifestOptions struct {
	Dir    string
	Logger *slog.Logger // nil = slog.Default()
}

// Manifests applies a directory to a Server. Run is its only goroutine.
type Manifests struct {
	server   *Server
	dir      string
	log      *slog.Logger
	interval time.Duration                    // between two polls
	lookup   func(name string) (string, bool) // reads the environment

	// files holds the last state of each file by its base name.
	files map[string]*manifestFile
	// made are the objects that come from files; nil until they have been listed.
	made map[manifestKey]string
	// filled reports whether a pass has found a declared object. Nothing is deleted
	// before that: while a host starts, a missing mount is an empty directory.
	filled bool
	// problems are the faults of the last pass, so that each is logged once.
	problems []error

	problemMu sync.Mutex // guards problem
	problem   string     // the result of Problem
}

type manifestKey struct{ group, plural, namespace, name string }

func keyOf(o manifestObject) manifestKey {
	return manifestKey{o.Kind.Group, o.Kind.Plural, o.Object.GetNamespace(), o.Object.GetName()}
}

// NewManifests returns an error if the directory does not exist.
func NewManifests(s *Server, o ManifestOptions) (*Manifests, error) {
	info, err := os.Stat(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open manifests: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open manifests: %s is not a directory", o.Dir)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Manifests{server: s, dir: o.Dir, log: o.Logger, interval: manifestInterval, lookup: os.LookupEnv,
		files: map[string]*manifestFile{}}, nil
}

// Run applies the directory at once and after each change until ctx ends, and
// then returns nil. Faults of files are logged once each and do not end it. It
// may be called once.
func (m *Manifests) Run(ctx context.Context) error {
	tick := time.NewTicker(m.interval)
	defer tick.Stop()
	for {
		if r := m.apply(ctx); ctx.Err() == nil {
			m.report(r)
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
func (m *Manifests) Problem() string {
	m.problemMu.Lock()
	defer m.problemMu.Unlock()
	return m.problem
}

// report publishes the result of a pass, and logs each fault once.
func (m *Manifests) report(r manifestPass) {
	before := m.problems
	m.problems = r.Problems
	summary := ""
	if n := len(r.Problems); n > 0 {
		if summary = "manifest not applied: " + r.Problems[0].Error(); n > 1 {
			summary += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	m.problemMu.Lock()
	m.problem = summary
	m.problemMu.Unlock()
	for _, problem := range r.Problems {
		if !slices.ContainsFunc(before, func(b error) bool { return b.Error() == problem.Error() }) {
			m.log.Error("manifest not applied", "err", problem)
		}
	}
	for _, warning := range r.Warnings {
		m.log.Warn("manifest", "warning", warning)
	}
	if r.Applied > 0 || r.Deleted > 0 {
		m.log.Info("applied manifests", "dir", m.dir, "objects", r.Applied, "deleted", r.Deleted)
	}
}

// manifestPass is the result of one pass.
type manifestPass struct {
	Applied  int // objects of files that are new or changed
	Deleted  int
	Problems []error
	Warnings []string // of files that are new or changed
}

// apply does one pass: it polls every file and applies those that have changed
// since the last one.
func (m *Manifests) apply(ctx context.Context) manifestPass {
	var r manifestPass
	names, err := m.list()
	if err != nil {
		r.Problems = []error{fmt.Errorf("read manifests: %w", err)}
		return r
	}
	changed := m.poll(names, &r)
	declared := map[manifestKey]string{}
	for _, name := range names {
		f := m.files[name]
		if f.unread != nil {
			r.Problems = append(r.Problems, f.unread)
			continue
		}
		if changed && f.err != nil {
			f.done = false // the cause of the error may be gone
		}
		if clash := declareObjects(declared, name, f); clash != nil {
			f.err, f.done = clash, true
		}
		if !f.done {
			m.applyFile(ctx, name, f, &r)
		}
		if f.err != nil {
			r.Problems = append(r.Problems, f.err)
		}
	}
	if len(r.Problems) == 0 && ctx.Err() == nil {
		m.prune(ctx, declared, &r)
	}
	return r
}

// declareObjects adds the objects of a file to declared. It returns an error for
// an object that is declared already.
func declareObjects(declared map[manifestKey]string, name string, f *manifestFile) error {
	for _, o := range f.content.Objects {
		key := keyOf(o)
		if first, taken := declared[key]; taken {
			return &manifestError{File: name, Line: o.Line, Document: o.Document,
				Err: fmt.Errorf("%s %s/%s is declared before, in %s", o.Object.GetKind(), key.namespace, key.name, first)}
		}
		declared[key] = fmt.Sprintf("%s:%d", name, o.Line)
	}
	return nil
}

// applyFile writes the objects of a file after a dry run of all of them.
func (m *Manifests) applyFile(ctx context.Context, name string, f *manifestFile, r *manifestPass) {
	f.err = nil
	for _, dryRun := range []bool{true, false} {
		for _, o := range f.content.Objects {
			if err := m.applyObject(ctx, name, o, dryRun); err != nil {
				f.err = &manifestError{File: name, Line: o.Line, Document: o.Document, Err: err}
				// An invalid object stays invalid until the file changes; any
				// other error is retried in the next pass.
				f.done = apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
				return
			}
			if !dryRun {
				r.Applied++
				if m.made != nil {
					m.made[keyOf(o)] = name
				}
			}
		}
	}
	f.done = true
}

func (m *Manifests) applyObject(ctx context.Context, file string, o manifestObject, dryRun bool) error {
	obj := o.Object.DeepCopy()
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annoManifest] = file
	obj.SetAnnotations(annotations)
	patch, err := encodeObject(obj.Object)
	if err != nil {
		return err
	}
	_, err = m.server.patchObject(ctx, o.Kind, obj.GetNamespace(), obj.GetName(), types.ApplyPatchType, patch, writeOptions{
		Version: obj.GroupVersionKind().Version, Manager: manifestManager, Force: true, DryRun: dryRun, Validation: "Strict",
	})
	return err
}

// prune deletes the objects that came from files and that none declares any more.
func (m *Manifests) prune(ctx context.Context, declared map[manifestKey]string, r *manifestPass) {
	if err := m.listMade(ctx); err != nil {
		r.Problems = append(r.Problems, fmt.Errorf("list objects of manifests: %w", err))
		return
	}
	if m.filled = m.filled || len(declared) > 0; !m.filled {
		if len(m.made) > 0 {
			r.Problems = append(r.Problems, fmt.Errorf(
				"%s declares nothing: kept %d objects that came from it before; delete them by hand if that is meant", m.dir, len(m.made)))
		}
		return
	}
	for key, file := range m.made {
		if _, stays := declared[key]; stays {
			continue
		}
		k, _ := kindOf(key.group, key.plural)
		err := m.deleteMade(ctx, k, key)
		if apierrors.IsNotFound(err) {
			delete(m.made, key)
			continue
		}
		if err != nil {
			r.Problems = append(r.Problems, fmt.Errorf(
				"delete %s %s/%s, which %s no longer declares: %w", k.Singular, key.namespace, key.name, file, err))
			continue
		}
		delete(m.made, key)
		r.Deleted++
	}
}

// deleteMade deletes an object unless its annotation has been removed, by which
// a user keeps it.
func (m *Manifests) deleteMade(ctx context.Context, k api.Kind, key manifestKey) error {
	obj, err := m.server.getObject(ctx, k, key.namespace, key.name)
	if err != nil {
		return err
	}
	if _, ours := obj.GetAnnotations()[annoManifest]; !ours {
		return nil
	}
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return m.server.deleteObject(ctx, k, key.namespace, key.name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// listMade lists, once, the objects that came from files before this process
// started. Kinds that programs write by the thousand are not searched.
func (m *Manifests) listMade(ctx context.Context) error {
	if m.made != nil {
		return nil
	}
	made := map[manifestKey]string{}
	for _, k := range api.Kinds {
		if slices.Contains([]string{"jobs", "historicjobs", "events", "leases"}, k.Plural) {
			continue
		}
		all, err := m.server.listObjects(ctx, k, "", labels.Everything())
		if err != nil {
			return err
		}
		for _, obj := range all {
			if file, ours := obj.GetAnnotations()[annoManifest]; ours {
				made[manifestKey{k.Group, k.Plural, obj.GetNamespace(), obj.GetName()}] = file
			}
		}
	}
	m.made = made
	return nil
}

// manifestRacy is the age below which a file is read although its stat is
// unchanged: two writes may fall within the granularity of its time stamp. It is
// twice the coarsest granularity in use (2 s, FAT).
const manifestRacy = 4 * time.Second

// manifestFile is the last state of one file.
type manifestFile struct {
	watched map[string]watchedFile // the file itself and those that it refers to
	content parsed
	unread  error // of reading the file; permanent until the file changes
	err     error // of applying its objects
	done    bool  // applied, or failed until something changes
}

// watchedFile is the last seen state of a file.
type watchedFile struct {
	info   fs.FileInfo // nil = stat failed
	sum    [sha256.Size]byte
	looked time.Time
}

// list returns the names of the manifest files. Names that begin with a dot
// belong to editors and Kubernetes.
func (m *Manifests) list() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		if info, err := os.Stat(filepath.Join(m.dir, name)); err == nil && info.IsDir() {
			continue
		}
		names = append(names, name)
	}
	return names, nil // ReadDir sorts
}

// poll parses new and changed files and forgets deleted ones.
func (m *Manifests) poll(names []string, r *manifestPass) (changed bool) {
	for name := range m.files {
		if !slices.Contains(names, name) {
			delete(m.files, name)
			changed = true
		}
	}
	for _, name := range names {
		if f := m.files[name]; f == nil || f.changed() {
			f = m.read(name)
			r.Warnings = append(r.Warnings, f.content.Warnings...)
			m.files[name] = f
			changed = true
		}
	}
	return changed
}

func (m *Manifests) read(name string) *manifestFile {
	path := filepath.Join(m.dir, name)
	x := &expander{lookup: m.lookup, dir: m.dir}
	f := &manifestFile{watched: map[string]watchedFile{path: watch(path)}}
	data, err := readBounded(path, maxManifest)
	if err != nil {
		f.unread = &manifestError{File: name, Err: err}
	} else {
		f.content, f.unread = parseManifest(name, data, manifestNamespace, x)
	}
	for _, named := range x.files {
		f.watched[named] = watch(named)
	}
	return f
}

// changed reports whether the file, or one that it refers to, has changed.
func (f *manifestFile) changed() bool {
	for path, before := range f.watched {
		info, err := os.Stat(path)
		if (err != nil) != (before.info == nil) {
			return true
		}
		if err != nil {
			continue
		}
		same := os.SameFile(info, before.info) && info.Size() == before.info.Size() && info.ModTime().Equal(before.info.ModTime())
		if same && before.looked.Sub(info.ModTime()) > manifestRacy {
			continue
		}
		now := watch(path)
		if now.sum != before.sum {
			return true
		}
		f.watched[path] = now
	}
	return false
}

func watch(path string) watchedFile {
	w := watchedFile{looked: time.Now()}
	info, err := os.Stat(path)
	if err != nil {
		return w
	}
	w.info = info
	if data, err := readBounded(path, maxManifest); err == nil {
		w.sum = sha256.Sum256(data)
	}
	return w
}
