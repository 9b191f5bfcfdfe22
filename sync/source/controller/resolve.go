package controller

import (
	"context"
	"errors"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/repos"
	"limpet/sync/signature"
)

// resolve asks the host what the ref stands for: one ls-remote. It ends the reconcile when the artifact is that of the
// answer, made of the same as now.
func (c *Controller) resolve(ctx context.Context, a *attempt) (done bool, err error) {
	if a.git.Verify != "" {
		if a.signers, err = c.signersOf(ctx, a); err != nil {
			return true, err
		}
	}
	remote := func(ctx context.Context) (git.Remote, error) {
		return a.git.Remote(ctx, c.o.Credentials, c.o.AllowInsecure)
	}
	if a.remote, err = remote(ctx); err != nil {
		return true, passOn(err, fetchFailed)
	}
	address, err := auth.ParseAddress(a.git.URL)
	if err != nil {
		return true, fetchFailed(err)
	}
	if a.leave, err = c.Enter(address); err != nil {
		return true, err
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	if a.ref, _, err = repos.Resolve(limited, c.o.Git, &a.remote, a.git.Selector, remote); err != nil {
		return true, fetchFailed(err)
	}
	a.revision, a.checksum = a.git.Revision(a.ref), a.checksumOf(a.ref)
	return a.artifact.Revision == a.revision && a.artifact.Checksum == a.checksum, nil
}

// fetch brings the commit into the mirror. A source that has no artifact yet, or another spec, says so in the status.
func (c *Controller) fetch(ctx context.Context, a *attempt) (done bool, err error) {
	if err := c.writeProgress(ctx, a); err != nil {
		return true, err
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	began := time.Now()
	stats, err := c.o.Git.Fetch(limited, a.remote, a.ref)
	a.leave()
	if a.leave = nil; err != nil {
		return true, fetchFailed(err)
	}
	c.o.Logger.Debug("fetched", "name", a.key.Name, "namespace", a.key.Namespace, "revision", a.revision, "bytes", stats.Bytes,
		"requests", stats.Requests, "took", time.Since(began))
	return false, nil
}

// signersOf returns the keys that may sign.
func (c *Controller) signersOf(ctx context.Context, a *attempt) (*signature.Keys, error) {
	found, err := a.git.NamedSigners(ctx, c.o.Places)
	var keys *signature.Keys
	if err == nil {
		keys, err = signature.ParseKeys(found.Files, found.Place)
	}
	if err == nil && keys.Len() == 0 {
		err = errors.New(found.Place + ": there is no key in it")
	}
	return keys, passOn(err, func(err error) error {
		return &failure{condition: condVerified, reason: auth.ReasonVerify, err: err}
	})
}
