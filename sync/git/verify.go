package git

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// Verification says what of a ref has to be signed, and by whom.
type Verification struct {
	Mode signature.Mode
	Keys *signature.Keys
	// Principals, if any, are the persons of whom one has to be the owner of the key;
	// OfMaker asks for the one whose mail address the commit or tag itself names.
	Principals []string
	OfMaker    bool
	Now        time.Time // of a clock that can be trusted
}

// Verified is an object whose signature is good.
type Verified struct {
	Object string // for people: "commit 1a2b3c4", "tag v1.0"
	Signer signature.Signer
}

// Verify says who has signed a ref that was fetched. It reads the objects as they
// are in the mirror and makes no request. Every error is an *Error; it is of kind
// Unverified, and wraps a *signature.Error, when the signature is what is wrong.
func (m *Mirrors) Verify(ctx context.Context, r Remote, ref Ref, v Verification) (found []Verified, err error) {
	err = m.read(ctx, "verify", r, func(g *reading) error {
		found = nil
		if v.Mode.Tag() {
			one, err := g.verifyTag(ref, v)
			if err != nil {
				return unverified(err)
			}
			found = append(found, one)
		}
		if v.Mode.Head() {
			one, err := g.verifyCommit(ref, v)
			if err != nil {
				return unverified(err)
			}
			found = append(found, one)
		}
		return nil
	})
	return found, err
}

// unverified is what a signature that is not good means for a caller.
func unverified(err error) error {
	e, ok := errors.AsType[*signature.Error](err)
	if !ok {
		return err
	}
	out := &Error{Kind: Unverified, Err: e}
	switch e.Kind {
	case signature.Unsigned:
		out.Hint = "nothing of it is used; sign it and push it again"
	case signature.UnknownKey:
		out.Hint = "add its key to those that may sign, if it is one of yours"
	}
	return out
}

func (g *reading) verifyCommit(ref Ref, v Verification) (Verified, error) {
	id, ok := pack.ParseID(ref.Hash)
	if !ok {
		return Verified{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a commit", text.Line(ref.Hash, 60))}
	}
	data, err := g.store.ReadKind(id, pack.CommitKind, g.limits.ObjectBytes)
	if err != nil {
		return Verified{}, err
	}
	what := "commit " + id.String()[:7]
	s, err := splitCommit(data)
	if err != nil {
		return Verified{}, &signature.Error{Kind: signature.Malformed, Err: fmt.Errorf("%s %w", what, err)}
	}
	return s.check(what, v)
}

func (g *reading) verifyTag(ref Ref, v Verification) (Verified, error) {
	name, isTag := strings.CutPrefix(ref.Name, "refs/tags/")
	what := "tag " + text.Line(name, 100)
	wrong := func(kind signature.Kind, format string, args ...any) (Verified, error) {
		return Verified{}, &signature.Error{Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case !isTag:
		return wrong(signature.WrongMode, "%s is no tag, and a signed tag is asked for", text.Line(ref.Name, 100))
	case ref.Tag == "":
		return wrong(signature.WrongMode, "%s is only a name of a commit, which nobody can sign: make it with git tag -s", what)
	}
	id, ok := pack.ParseID(ref.Tag)
	if !ok {
		return Verified{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a tag", text.Line(ref.Tag, 60))}
	}
	data, err := g.store.ReadKind(id, pack.TagKind, g.limits.ObjectBytes)
	if err != nil {
		return Verified{}, err
	}
	t, err := splitTag(data)
	switch {
	case err != nil:
		return wrong(signature.Malformed, "%s %w", what, err)
	case t.kind != "commit" || t.object.String() != ref.Hash:
		return wrong(signature.Malformed, "%s is not one of commit %.7s itself", what, ref.Hash)
	}
	found, err := t.check(what, v)
	if err == nil && t.name != name {
		// Somebody has given a signed tag another name: an old release as the newest.
		return wrong(signature.Bad, "%s was signed as tag %s", what, text.Line(t.name, 100))
	}
	return found, err
}
