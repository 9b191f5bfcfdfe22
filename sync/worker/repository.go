package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// repository is a Repository as a run has read it.
type repository struct {
	object *unstructured.Unstructured
	view   api.Repository
	kinds  resources.Kinds // that its files may hold
}

// read returns a Repository as a run works on it.
func (p *Pull) read(object *unstructured.Unstructured) (repository, error) {
	view, err := api.RepositoryView(object)
	return repository{object, view, p.o.Kinds}, err
}

func (r repository) name() string      { return r.object.GetName() }
func (r repository) namespace() string { return r.object.GetNamespace() }
func (r repository) uid() string       { return string(r.object.GetUID()) }

// strict reports whether its directory gets no file that Grafana would not load.
func (r repository) strict() bool { return r.object.GetAnnotations()[api.AnnoSinkStrict] == "true" }

// target returns where the resources go.
func (r repository) target() resources.Target {
	t := resources.Target{Repository: r.name(), Kinds: r.kinds}
	if r.view.Spec.Sync.Target == "folder" {
		t.Root, t.RootTitle = t.Repository, cmp.Or(r.view.Spec.Title, t.Repository)
	}
	return t
}

// grafanaURL returns the base of the pages of Grafana, "" where the API is not Grafana's. base is that
// of the agent.
func (r repository) grafanaURL(base string) string {
	if hook := r.view.Spec.Webhook; hook != nil && base != "" {
		base = cmp.Or(hook.BaseURL, base)
	}
	return strings.TrimRight(base, "/")
}

// sourceHash is a hash of what a pull depends on beside the commit: pulls of one commit with equal
// hashes have one result.
func (r repository) sourceHash() string {
	notes, block := r.object.GetAnnotations(), r.view.Spec.Block()
	if block == nil {
		block = &api.GitBlock{}
	}
	_, sink := notes[api.AnnoSinkDir]
	root := ""
	if r.view.Spec.Sync.Target == "folder" {
		root = r.view.Spec.Title
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %t %t %t %t %+v", block.URL, block.Branch, strings.Trim(block.Path, "/"),
		r.view.Spec.Sync.Target, root, sink, r.strict(), checkout.Submodules(r.object), notes[api.AnnoGitLFS] == "false", r.kinds))
	return hex.EncodeToString(sum[:8])
}

// checkout opens the Git side of a Repository for a pull.
func (p *Pull) checkout(ctx context.Context, r repository, progress *jobs.Progress, log *slog.Logger) (*checkout.Checkout, error) {
	return p.o.Source.Open(ctx, r.object, r.view, checkout.Options{Mirrors: true, Last: r.view.Status.Sync.LastRef,
		Progress: progress, Meter: progress.Transfer, Log: log})
}

// server returns the servers of the objects of a namespace.
func (p *Pull) server(ctx context.Context, namespace string, last bool) (*target.API, error) {
	servers := target.Servers{Dashboards: p.o.Dashboards, Folders: p.o.Folders, Others: p.o.Client}
	return target.Open(ctx, servers, p.o.Kinds, namespace, last)
}

// objects returns the resources of a Repository on the API. content is that of the commit.
func (p *Pull) objects(
	ctx context.Context, r repository, content *checkout.Content, progress *jobs.Progress, last bool,
) (*target.Objects, error) {
	server, err := p.server(ctx, r.namespace(), last)
	if err != nil {
		return nil, err
	}
	spec := r.target()
	spec.Kinds = server.Kinds
	return &target.Objects{API: server, Spec: spec, Namespace: r.namespace(), Content: content, Progress: progress,
		Parallel: p.o.Parallel, Max: r.view.Status.Quota.MaxResourcesPerRepository}, nil
}

// sinkOf returns the directory of the Repository, and whether it has one.
func (p *Pull) sinkOf(repo *unstructured.Unstructured) (sink.Target, bool, error) {
	dir, named := repo.GetAnnotations()[api.AnnoSinkDir]
	if !named {
		return sink.Target{}, false, nil
	}
	t, err := sink.Permit(dir, p.o.SinkPrefixes)
	if err != nil {
		return t, true, fmt.Errorf("annotation %s of repository %s: %w", api.AnnoSinkDir, repo.GetName(), err)
	}
	return t, true, nil
}

// directory returns the directory of the Repository, nil for one without.
func (p *Pull) directory(r repository, progress *jobs.Progress) (*target.Directory, error) {
	at, named, err := p.sinkOf(r.object)
	if !named || err != nil {
		return nil, err
	}
	drift := api.Annotation(r.object, api.AnnoDrift) // without it edits are taken back, as ever
	return &target.Directory{
		At:        at,
		Spec:      r.target(),
		Namespace: r.namespace(),
		Source:    r.sourceHash(),
		Strict:    r.strict(),
		KeepEdits: drift == api.DriftReport || drift == api.DriftOff,
		Exec:      api.Annotation(r.object, api.AnnoSinkExec) != "",
		Max:       r.view.Status.Quota.MaxResourcesPerRepository,
		Progress:  progress,
	}, nil
}
