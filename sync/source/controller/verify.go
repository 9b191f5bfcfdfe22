package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/signature"
)

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
