package gitrepository

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/signature"
	"limpet/sync/source/controller"
)

// demand finds what has to be signed and the keys that may sign: those of the spec, and those of
// the configuration.
func (u *upstream) demand(ctx context.Context) error {
	s, o := u.spec, u.spec.kind.o
	if s.git.Verify != "" {
		found, err := s.git.NamedSigners(ctx, o.Places)
		var keys *signature.Keys
		if err == nil {
			keys, err = signature.ParseKeys(found.Files, found.Place)
		}
		if err == nil && keys.Len() == 0 {
			err = errors.New(found.Place + ": there is no key in it")
		}
		if err != nil {
			return unverifiable(err)
		}
		u.demands = append(u.demands, git.Verification{Mode: s.git.Verify, Keys: keys})
	}
	ruled, err := o.Signers.Ruled(s.namespace, s.name, s.git.URL)
	u.demands = append(u.demands, ruled...)
	if err != nil {
		return unverifiable(err)
	}
	return nil
}

// submodules returns what is demanded of the signatures of submodules.
func (u *upstream) submodules() func(url string) ([]git.Verification, error) {
	o := u.spec.kind.o
	return o.Signers.Submodules(u.spec.namespace, u.spec.name, o.Now, u.spec.git.URL)
}

// unverifiable is the failure of an error about the keys.
func unverifiable(err error) error {
	return &controller.Failure{Condition: controller.SourceVerified, Reason: auth.ReasonVerify, Err: err}
}

// Reasons of SourceVerified. Source: Flux.
const (
	reasonNoSignature = "InvalidGitObject"
	reasonTag         = "InvalidTagSignature"
	reasonCommit      = "InvalidCommitSignature"
)

// verify checks the signatures of the tag object and of the commit, as the modes say.
func (u *upstream) verify(ctx context.Context) error {
	o := u.spec.kind.o
	var texts []string
	for _, d := range u.demands {
		for _, one := range []struct {
			wanted bool
			mode   signature.Mode
			reason string
		}{{d.Mode.Tag(), signature.TagOnly, reasonTag}, {d.Mode.Head(), signature.HEAD, reasonCommit}} {
			if !one.wanted {
				continue
			}
			d.Mode, d.Now = one.mode, o.Now()
			found, err := o.Git.Verify(ctx, u.remote, u.ref, d)
			if err != nil {
				return u.badSignature(one.mode, one.reason, err)
			}
			for _, v := range found {
				texts = append(texts, fmt.Sprintf("%s with key %s", v.Object, v.Signer))
			}
		}
	}
	if len(texts) > 0 {
		u.verified = "verified signature of " + strings.Join(texts, " and of ")
	}
	return nil
}

// badSignature is the failure of an error of a verification.
func (u *upstream) badSignature(mode signature.Mode, reason string, err error) error {
	f := &controller.Failure{Condition: controller.SourceVerified, Reason: reason, Err: err}
	switch kind := signature.KindOf(err); {
	case kind == "":
		return fetchFailed(err)
	case mode == signature.TagOnly && !strings.HasPrefix(u.ref.Name, "refs/tags/"):
		f.Reason, f.Stalled = auth.ReasonVerifyMode, true
	case mode == signature.TagOnly && (kind == signature.WrongMode || kind == signature.Unsigned):
		f.Reason = reasonNoSignature
	}
	return f
}

// Signatures returns whether any are demanded, and what has been verified.
func (u *upstream) Signatures() (demanded bool, verified string) {
	return len(u.demands) > 0, u.verified
}
