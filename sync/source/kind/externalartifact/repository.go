package externalartifact

import (
	"context"
	"errors"
	"fmt"
	"io"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/source/archive"
	"limpet/sync/source/controller"
	synced "limpet/sync/source/upstream"
)

// repository is the commit of a Repository in one reconcile: that of its last pull, which has
// verified it.
type repository struct {
	upstream
	ref    git.Ref
	remote git.Remote
}

// Look finds the commit, without a request.
func (r *repository) Look(context.Context) (controller.Found, error) {
	c, err := synced.Of(r.obj)
	r.spec.kind.o.References.Observe(r.spec.of, versionOf(c, err))
	if errors.Is(err, synced.ErrUnverified) {
		return controller.Found{}, waiting(&controller.Failure{Condition: controller.FetchFailed, Reason: reasonVerify, Err: err})
	}
	if err != nil {
		return controller.Found{}, waiting(fetchFailed(err))
	}
	r.remote, r.ref = c.Remote, r.spec.kind.o.Mirrors.Named(c.Remote, c.Hash, c.Selector)
	found := controller.Found{Revision: r.ref.Short() + "@sha1:" + c.Hash, Checksum: archive.Version + " " + c.Remote.URL}
	r.ref = git.Ref{Name: c.Hash, Hash: c.Hash, Pinned: true}
	return found, nil
}

// versionOf returns a text that changes when a Repository has synced another commit.
func versionOf(c synced.Commit, err error) string {
	return fmt.Sprint(c.Hash, " ", c.Remote.URL, " ", err)
}

// Fetch brings the commit to this host, if another one has pulled it.
func (r *repository) Fetch(ctx context.Context) (received int64, err error) {
	o := r.spec.kind.o
	view, err := api.RepositoryView(r.obj)
	if err != nil {
		return 0, fetchFailed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.visit.Timeout)
	defer cancel()
	if r.remote, err = o.Checkout.Remote(ctx, r.spec.of.Namespace, r.spec.of.Name, view); err != nil {
		return 0, fetchFailed(err)
	}
	stats, err := o.Mirrors.Fetch(ctx, r.remote, r.ref)
	if err != nil {
		return stats.Bytes, fetchFailed(err)
	}
	return stats.Bytes, nil
}

// Pack returns the tree of the commit, as that of a GitRepository.
func (r *repository) Pack(ctx context.Context) (controller.Content, error) {
	o := r.spec.kind.o
	commit, err := o.Mirrors.Commit(ctx, r.remote, r.ref.Hash)
	if err != nil {
		return controller.Content{}, fetchFailed(err)
	}
	tree := archive.Tree{Mirrors: o.Mirrors, Remote: r.remote, Commit: r.ref.Hash}
	return controller.Content{Subject: commit.Subject, Write: func(w io.Writer) (archive.Digests, error) {
		d, err := archive.Write(ctx, w, tree, archive.Options{MaxBytes: o.MaxBytes, MaxFiles: o.MaxFiles})
		if _, is := errors.AsType[*git.Error](err); is {
			err = fetchFailed(err)
		}
		return d, err
	}}, nil
}
