package workers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/signature"
	"limpet/sync/view"
)

// A Repository may ask that what is pulled is signed. It is asked of every pull,
// after the fetch and before anything is planned, also of one with nothing new: keys
// may have been taken away since. What was judged by is written to the Repository
// with the outcome, so that the next look sees when the keys are others now, or the
// tag was made anew. A pull that is cut off between the two verifies again.

// committer is the principal that stands for who made the commit or tag, as it says.
const committer = "committer"

// trust is what a Repository asks for, with the keys that are there. Digest changes
// with any of it.
type trust struct {
	git.Verification
	digest string
}

// trustOf reads what has to be signed and by whom; nil when nothing has to be. An
// error is a *signature.Error, but where the keys cannot be read for the moment;
// the digest is that of what is known.
func trustOf(ctx context.Context, repo api.Repository, l auth.Lookup, from auth.TrustSource) (*trust, error) {
	if repo.GitVerify == "" {
		return nil, nil
	}
	t := &trust{}
	var found *auth.Trust
	finish := func(err error) (*trust, error) {
		text := []string{repo.GitVerify, repo.GitVerifyPrincipals, t.Keys.Digest()}
		if err != nil {
			text = append(text, err.Error())
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%q", text))
		t.digest = hex.EncodeToString(sum[:8])
		return t, err
	}
	wrong := func(kind signature.Kind, err error) (*trust, error) {
		return finish(&signature.Error{Kind: kind, Err: err})
	}
	mode, err := signature.ParseMode(repo.GitVerify)
	if err != nil {
		return wrong(signature.WrongMode, fmt.Errorf("annotation %s: %w", api.AnnoGitVerify, err))
	}
	t.Mode = mode
	for name := range strings.SplitSeq(repo.GitVerifyPrincipals, ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
		case committer:
			t.OfMaker = true
		default:
			t.Principals = append(t.Principals, name)
		}
	}
	if from != nil {
		if found, err = from(ctx, l); err != nil {
			if _, away := errors.AsType[*api.AwayError](err); away || ctx.Err() != nil {
				return nil, err
			}
			return wrong(signature.NoKeys, fmt.Errorf("the keys that may sign cannot be read: %w", err))
		}
	}
	if found == nil {
		return wrong(signature.NoKeys, fmt.Errorf("annotation %s asks for signatures, and there are no keys that may sign: put *.asc, *.sshpub or %s into the secret of the repository or below --credentials-dir in %s.%s/",
			api.AnnoGitVerify, signature.AllowedSigners, l.Namespace, l.Repository))
	}
	if t.Keys, err = signature.ParseKeys(found.Files, found.Place); err != nil {
		return wrong(signature.NoKeys, fmt.Errorf("%s: %w", found.Place, err))
	}
	if t.Keys.Len() == 0 {
		return wrong(signature.NoKeys, fmt.Errorf("%s: there is no key in %s", found.Place, strings.Join(slices.Sorted(maps.Keys(found.Files)), ", ")))
	}
	return finish(nil)
}

// TrustDigest changes when what a Repository asks of signatures does, or the keys
// that may make them; "" when it asks for none. An error is one of the moment.
func TrustDigest(ctx context.Context, namespace, name string, repo api.Repository, from auth.TrustSource) (string, error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return "", err
	}
	t, err := trustOf(ctx, repo, src.lookup, from)
	switch {
	case t != nil:
		return t.digest, nil
	case err != nil:
		return "", err
	}
	return "", nil
}

// trusted reads what this pull asks for.
func (r *pull) trusted(ctx context.Context) (err error) {
	r.trust, err = trustOf(ctx, r.Repository, r.src.lookup, r.o.Trust)
	switch {
	case r.trust != nil && err != nil:
		r.judge(nil, err)
	case err == nil && r.trust == nil:
		r.verified = &api.Condition{Type: api.ConditionVerified} // nobody asks for it any more
	}
	return err
}

// verify verifies what was fetched.
func (r *pull) verify(ctx context.Context) error {
	if r.trust == nil {
		return nil
	}
	r.Progress.SetMessage(ctx, "verify "+short(r.ref.Hash))
	v := r.trust.Verification
	v.Now = r.status.now()
	found, err := r.o.Git.Verify(ctx, r.remote, r.ref, v)
	if err == nil || git.KindOf(err) == git.Unverified {
		r.judge(found, err)
	}
	return err
}

// judge notes the outcome for the status of the Repository.
func (r *pull) judge(found []git.Verified, err error) {
	c := &api.Condition{Type: api.ConditionVerified, Status: "True", Reason: "Verified"}
	var texts []string
	for _, one := range found {
		texts = append(texts, fmt.Sprintf("%s is signed by %s", one.Object, one.Signer))
	}
	text := strings.Join(texts, ", ")
	if err != nil {
		c.Status, c.Reason, text = "False", reasonOf(signature.KindOf(err)), err.Error()
		if e, ok := errors.AsType[*git.Error](err); ok {
			text = e.Err.Error()
		}
	}
	verdict := api.Verdict{Trust: r.trust.digest, Object: r.ref.Hash}
	if r.trust.Mode.Tag() && r.ref.Tag != "" {
		verdict.Object = r.ref.Tag
	}
	c.Message = verdict.Message(cut(view.Clean(text)))
	r.verified = c
}

// maxVerdict bounds the text of a condition: a key may have many owners. Unit: bytes.
const maxVerdict = 1000

func cut(text string) string {
	if len(text) <= maxVerdict {
		return text
	}
	return strings.ToValidUTF8(text[:maxVerdict], "") + "..."
}

// reasonOf is a kind as the reason of a condition: "unknown-key" is UnknownKey.
func reasonOf(kind signature.Kind) string {
	var out strings.Builder
	for part := range strings.SplitSeq(string(kind), "-") {
		if part != "" {
			out.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return orWord(out.String(), "NotVerified")
}
