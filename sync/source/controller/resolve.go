package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/signature"
)

// resolve asks the host what the ref stands for: one ls-remote. It ends the reconcile when the
// artifact is that of the answer, made of the same as now.
func (c *Controller) resolve(ctx context.Context, a *attempt) (done bool, err error) {
	remote := func(ctx context.Context) (git.Remote, error) {
		r, err := a.git.Remote(ctx, c.o.Credentials, c.o.AllowInsecure)
		r.Demands = c.submodules(a)
		return r, err
	}
	address, err := auth.ParseAddress(a.git.URL)
	if err != nil {
		return true, fetchFailed(err)
	}
	leave, err := c.Enter(address) // a host that does not answer must not hold all workers
	if err != nil {
		return true, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	if a.remote, err = remote(limited); err != nil { // a provider of tokens counts as the host
		return true, passOn(err, fetchFailed)
	}
	if a.ref, _, err = reconcile.Resolve(limited, c.o.Git, &a.remote, a.git.Selector, remote); err != nil {
		return true, fetchFailed(err)
	}
	a.revision, a.checksum = a.git.Revision(a.ref), a.checksumOf(a.ref)
	list, _, _ := unstructured.NestedSlice(a.obj.Object, "status", "conditions")
	_, verified := api.FindCondition(list, condVerified) // another commit may have failed since
	same := a.artifact.Revision == a.revision && a.artifact.Checksum == a.checksum && (len(a.demands) == 0 || verified["status"] == "True")
	_, ready := api.FindCondition(list, condReady) // the state of an upstream may change while the commit stays
	a.unchanged = same && a.lost.Revision == "" && ready["message"] == a.readyMessage()
	return same, nil
}

// fetch brings the commit and its submodules into the mirrors. A source that is new or has another
// spec says in the status what takes long.
func (c *Controller) fetch(ctx context.Context, a *attempt) (done bool, err error) {
	address, err := auth.ParseAddress(a.git.URL)
	if err != nil {
		return true, fetchFailed(err)
	}
	leave, ok := c.fetching.Enter(address.HostPort())
	if !ok {
		return true, reconcile.ErrBusy
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	fetched := make(chan error, 1)
	go func() {
		stats, err := c.o.Git.Fetch(limited, a.remote, a.ref)
		c.fetched.Add(stats.Bytes)
		if err == nil && a.spec.Submodules { // what packs waits for no host
			_, err = c.o.Git.WholeTree(limited, a.remote, a.ref.Hash, "")
		}
		fetched <- err
	}()
	slow := time.NewTimer(progressAfter)
	defer slow.Stop()
	select {
	case err = <-fetched:
	case <-slow.C:
		unwritten := c.writeProgress(ctx, a)
		if err = <-fetched; err == nil {
			return unwritten != nil, unwritten
		}
	}
	if err != nil {
		return true, fetchFailed(err)
	}
	return false, nil
}

// demand finds what has to be signed and the keys that may sign: those of the spec, and those of
// the configuration.
func (c *Controller) demand(ctx context.Context, a *attempt) (done bool, err error) {
	if a.git.Verify != "" {
		found, err := a.git.NamedSigners(ctx, c.o.Places)
		var keys *signature.Keys
		if err == nil {
			keys, err = signature.ParseKeys(found.Files, found.Place)
		}
		if err == nil && keys.Len() == 0 {
			err = errors.New(found.Place + ": there is no key in it")
		}
		if err != nil {
			return true, passOn(err, unverifiable)
		}
		a.demands = append(a.demands, git.Verification{Mode: a.git.Verify, Keys: keys})
	}
	ruled, err := c.o.Signers.Ruled(a.key.Namespace, a.key.Name, a.git.URL)
	a.demands = append(a.demands, ruled...)
	return err != nil, passOn(err, unverifiable)
}

// submodules returns what is demanded of the signatures of submodules.
func (c *Controller) submodules(a *attempt) func(url string) ([]git.Verification, error) {
	return c.o.Signers.Submodules(a.key.Namespace, a.key.Name, c.o.Now, a.git.URL)
}

// unverifiable is the failure of an error about the keys.
func unverifiable(err error) error {
	return &failure{condition: condVerified, reason: auth.ReasonVerify, err: err}
}

// Reasons of SourceVerified. Source: Flux.
const (
	reasonNoSignature = "InvalidGitObject"
	reasonTag         = "InvalidTagSignature"
	reasonCommit      = "InvalidCommitSignature"
)

// verify checks the signatures of the tag object and of the commit, as the modes say.
func (c *Controller) verify(ctx context.Context, a *attempt) (done bool, err error) {
	var texts []string
	for _, d := range a.demands {
		for _, one := range []struct {
			wanted bool
			mode   signature.Mode
			reason string
		}{{d.Mode.Tag(), signature.TagOnly, reasonTag}, {d.Mode.Head(), signature.HEAD, reasonCommit}} {
			if !one.wanted {
				continue
			}
			d.Mode, d.Now = one.mode, c.o.Now()
			found, err := c.o.Git.Verify(ctx, a.remote, a.ref, d)
			if err != nil {
				return true, badSignature(a, one.mode, one.reason, err)
			}
			for _, v := range found {
				texts = append(texts, fmt.Sprintf("%s with key %s", v.Object, v.Signer))
			}
		}
	}
	if len(texts) > 0 {
		a.verified = "verified signature of " + strings.Join(texts, " and of ")
	}
	return false, nil
}

// badSignature is the failure of an error of a verification.
func badSignature(a *attempt, mode signature.Mode, reason string, err error) error {
	f := &failure{condition: condVerified, reason: reason, err: err}
	switch kind := signature.KindOf(err); {
	case kind == "":
		return fetchFailed(err)
	case mode == signature.TagOnly && !strings.HasPrefix(a.ref.Name, "refs/tags/"):
		f.reason, f.stalled = auth.ReasonVerifyMode, true
	case mode == signature.TagOnly && (kind == signature.WrongMode || kind == signature.Unsigned):
		f.reason = reasonNoSignature
	}
	return f
}

// passOn returns the failure of an error, unless that is about the API: then nothing can be said of
// the source.
func passOn(err error, failed func(error) error) error {
	if _, away := errors.AsType[*kube.UnavailableError](err); err == nil || away {
		return err
	}
	return failed(err)
}
