package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/checkout"
)

// Fault is one thing that is wrong with a file.
type Fault struct {
	File     string `json:"file"`     // its path behind the one that was asked for
	Severity string `json:"severity"` // error: the file is left out; warning: a folder gets other names than its file says
	Code     string `json:"code"`     // see resources.Reason
	Message  string `json:"message"`
}

// Validator judges files as a pull does, without a server.
type Validator struct {
	Namespace string // of the Repository
	Kinds     resources.Kinds
	Sink      bool // the files are for a strict directory
	Log       *slog.Logger
}

// Validate judges one file, or those below a directory: by a preview of a pull without an API. It
// writes to the temporary directory of the host alone. The faults are sorted by file; the error is
// of what could not be judged at all.
func (v Validator) Validate(ctx context.Context, path string) ([]Fault, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	var faults []Fault
	switch {
	case info.IsDir():
		faults, err = v.tree(ctx, dir)
	case info.Mode().IsRegular():
		faults, err = v.file(dir, info.Size())
		path = filepath.Dir(path)
	default:
		err = fmt.Errorf("%s is neither a file nor a directory", path)
	}
	for i, f := range faults {
		faults[i].File = repopath.Quote(filepath.Join(path, f.File))
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return strings.Compare(a.File, b.File) })
	return faults, err
}

func (v Validator) file(name string, size int64) ([]Fault, error) {
	f := resources.File{Repository: "validate", Namespace: v.Namespace, Path: filepath.Base(name), Kinds: v.Kinds, Directory: v.Sink}
	if size > resources.MaxFile {
		large := &resources.TooLargeError{What: "the file", Size: size, Limit: resources.MaxFile}
		return faultsOf(PreviewChange{Path: f.Path, why: large}), nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := PreviewChange{Path: f.Path, why: repopath.Check(f.Path, v.Sink)}
	switch {
	case c.why != nil:
	case repopath.IsFolderFile(f.Path):
		c.why = resources.ParseFolderFile(f.Path, "", data).Err
	default:
		_, c.why = resources.Judge(f, data)
	}
	return faultsOf(c), nil
}

// tree previews the pull of a directory into nothing: by a Repository of type local, with a mirror
// of its own.
func (v Validator) tree(ctx context.Context, dir string) (faults []Fault, err error) {
	scratch, err := os.MkdirTemp("", "limpet-validate-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	mirrors, err := git.Open(filepath.Join(scratch, "mirrors"), git.Options{AllowDirs: []string{dir}, Logger: v.Log})
	if err != nil {
		return nil, err
	}
	defer mirrors.Close()
	repo := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"type": "local",
		"local": map[string]any{"path": dir}, "sync": map[string]any{"enabled": true, "target": "instance"}}}}
	repo.SetName("validate")
	repo.SetNamespace(v.Namespace)
	if v.Sink {
		repo.SetAnnotations(map[string]string{api.AnnoSinkDir: filepath.Join(scratch, "sink"), api.AnnoSinkStrict: "true"})
	}
	p := NewPull(PullOptions{Source: checkout.Source{Git: mirrors}, Kinds: v.Kinds, LocalDirs: []string{dir}, SinkPrefixes: []string{scratch}, Logger: v.Log})
	of, err := p.read(repo)
	if err != nil {
		return nil, err
	}
	out, err := p.previewOf(ctx, of, PreviewQuery{})
	if err != nil {
		return nil, err
	}
	for _, c := range out.Changes {
		faults = append(faults, faultsOf(c)...)
	}
	tree, err := mirrors.Tree(ctx, git.Remote{URL: checkout.URLs(of.view)[0]}, out.To, "")
	for _, r := range tree.Refused {
		if !repopath.IsHidden(repopath.CheckPath(r.Path)) && (repopath.IsResourceFile(r.Path) || !r.ByMode()) {
			faults = append(faults, Fault{repopath.Unquote(r.Path), "error", "path", r.Reason})
		}
	}
	return faults, err
}

// faultsOf returns what is wrong with a file, each fault for itself.
func faultsOf(c PreviewChange) (faults []Fault) {
	if c.why == nil {
		return nil
	}
	severity, code, why := "error", resources.Reason(c.why), c.why
	if code == "folder_file" {
		severity = "warning"
	}
	if code == "folder_file" || code == "parse" || code == "too_large" {
		why = cmp.Or(errors.Unwrap(why), why) // without the path
	}
	all, are := errors.AsType[resources.Faults](why)
	if !are {
		all = resources.Faults{why}
	}
	for _, one := range all {
		code := cmp.Or(resources.FaultCode(one), code)
		faults = append(faults, Fault{c.Path, severity, code, text.Redact(text.Line(one.Error(), maxReason))})
	}
	return faults
}
