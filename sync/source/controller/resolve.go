package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
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

// Reasons of SourceVerified. Source: Flux.
const (
	reasonNoSignature = "InvalidGitObject"
	reasonTag         = "InvalidTagSignature"
	reasonCommit      = "InvalidCommitSignature"
)

// verify checks the signatures of the tag object and of the commit, as the mode says.
func (c *Controller) verify(ctx context.Context, a *attempt) (done bool, err error) {
	if a.git.Verify == "" {
		return false, nil
	}
	var texts []string
	for _, one := range []struct {
		wanted bool
		mode   signature.Mode
		reason string
	}{{a.git.Verify.Tag(), signature.TagOnly, reasonTag}, {a.git.Verify.Head(), signature.HEAD, reasonCommit}} {
		if !one.wanted {
			continue
		}
		found, err := c.o.Git.Verify(ctx, a.remote, a.ref, git.Verification{Mode: one.mode, Keys: a.signers, Now: c.o.Now()})
		if err != nil {
			f := &failure{condition: condVerified, reason: one.reason, err: err}
			switch kind := signature.KindOf(err); {
			case kind == signature.WrongMode && a.ref.Tag == "" || kind == signature.Unsigned && one.mode == signature.TagOnly:
				f.reason = reasonNoSignature
			case kind == signature.WrongMode:
				f.reason, f.stalled = auth.ReasonVerifyMode, true
			case kind == "":
				return true, fetchFailed(err)
			}
			return true, f
		}
		for _, v := range found {
			texts = append(texts, fmt.Sprintf("%s with key %s", v.Object, v.Signer))
		}
	}
	a.verified = "verified signature of " + strings.Join(texts, " and of ")
	return false, nil
}

// passOn returns the failure of an error, unless that is about the API: then nothing can be said of the source.
func passOn(err error, failed func(error) error) error {
	if _, away := errors.AsType[*kube.UnavailableError](err); err == nil || away {
		return err
	}
	return failed(err)
}
