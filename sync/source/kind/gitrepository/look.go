package gitrepository

import (
	"context"

	"limpet/sync/git"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/source/controller"
)

// Look asks the host what the ref stands for: one ls-remote.
func (u *upstream) Look(ctx context.Context) (found controller.Found, err error) {
	s, o := u.spec, u.spec.kind.o
	remote := func(ctx context.Context) (git.Remote, error) {
		r, err := s.git.Remote(ctx, o.Credentials, o.AllowInsecure)
		r.Demands = u.submodules()
		return r, err
	}
	if u.remote, err = remote(ctx); err != nil { // a provider of tokens counts as the host
		return found, fetchFailed(err)
	}
	if u.ref, _, err = reconcile.Resolve(ctx, o.Git, &u.remote, s.git.Selector, remote); err != nil {
		return found, fetchFailed(err)
	}
	return controller.Found{Revision: s.git.Revision(u.ref), Checksum: u.checksumOf(u.ref), Note: u.ref.Via.String()}, nil
}

// Fetch brings the commit and its submodules into the mirrors, and verifies it.
func (u *upstream) Fetch(ctx context.Context) (received int64, err error) {
	limited, cancel := context.WithTimeout(ctx, u.visit.Timeout)
	defer cancel()
	mirrors := u.spec.kind.o.Git
	stats, err := mirrors.Fetch(limited, u.remote, u.ref)
	if err == nil && u.spec.content.Submodules { // what packs waits for no host
		_, err = mirrors.WholeTree(limited, u.remote, u.ref.Hash, "")
	}
	if err != nil {
		return stats.Bytes, fetchFailed(err)
	}
	return stats.Bytes, u.verify(ctx)
}

// fetchFailed is the failure of an error about the Git host or the way to it.
func fetchFailed(err error) error {
	if git.KindOf(err) == git.Unverified { // a submodule
		return &controller.Failure{Condition: controller.SourceVerified, Reason: reasonCommit, Err: err}
	}
	return &controller.Failure{Condition: controller.FetchFailed, Reason: source.Reason(err), Err: err}
}
