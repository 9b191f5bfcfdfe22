package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// SigningKeys finds the key that signs the commits of jobs. It reads the key each time, so
// that a new one is used at once. It is safe for concurrent use; a nil *SigningKeys has no
// keys.
type SigningKeys struct {
	from auth.SourceFunc
}

// NewSigningKeys returns the SigningKeys of an agent. A nil source has no keys.
func NewSigningKeys(from auth.SourceFunc) *SigningKeys { return &SigningKeys{from} }

// Key returns the key that signs the commits of a Repository at a time, with the place
// where it was found; nil if there is no key and the Repository requires none. A key with
// a passphrase takes as long as its key derivation. An error is either transient or names
// the setting to change; it holds no secret.
func (s *SigningKeys) Key(
	ctx context.Context, l auth.Lookup, repo api.Repository, now time.Time,
) (key *signature.SigningKey, place string, err error) {
	const methodField = "spec.commit.signingMethod"
	asked := ""
	if c := repo.Spec.Commit; c != nil {
		asked = c.SigningMethod
	}
	method, err := signature.ParseMethod(asked)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", methodField, err)
	}
	var found *auth.Credentials
	if s != nil && s.from != nil {
		if found, err = s.from(ctx, l); err != nil {
			return nil, "", fmt.Errorf("the key that signs cannot be read: %w", err)
		}
	}
	if found == nil {
		field := "secure." + signature.SigningKeyName
		if method != "" {
			field = methodField
		} else if l.Secure[signature.SigningKeyName] == "" {
			return nil, "", nil
		}
		return nil, "", fmt.Errorf("%s asks for signed commits, and this agent finds no key: "+
			"put %s into a secret of the repository or below --credentials-dir in %s.%s/",
			field, signature.SigningKeyName, l.Namespace, l.Repository)
	}
	if key, err = signature.ParseSigningKey(found.SSHKey, []byte(found.SSHPassphrase), now); err != nil {
		return nil, "", fmt.Errorf("%s in %s: %w", signature.SigningKeyName, found.Source, err)
	}
	if method != "" && method != key.Method() {
		return nil, "", fmt.Errorf("%s in %s is one of %s, and %s is %s: change the one or the other",
			signature.SigningKeyName, found.Source, key.Method(), methodField, method)
	}
	return key, found.Source, nil
}

// SigningLook describes a signing key for users.
type SigningLook struct {
	Text string // the key, its expiry and its place; "" = commits are not signed
	Soon string // why it is unusable, or will be soon; "" = usable
}

// Look describes the key that signs the commits of jobs in a Repository, and reports
// whether pulls would accept these commits by the policy of signers. An error means that
// such jobs fail. It makes no request to a Git host.
func (s *SigningKeys) Look(
	ctx context.Context, namespace, name string, repo api.Repository, signers *Signers, now time.Time,
) (look SigningLook, err error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return SigningLook{}, err
	}
	key, place, err := s.Key(ctx, src.lookup, repo, now)
	if err != nil {
		return SigningLook{}, err
	}
	var soon []string
	if key != nil {
		until, left := expiry(key.Expires(), now)
		if left != "" {
			soon = append(soon, "it"+left)
		}
		look.Text = key.String() + until + ", " + place
	}
	if key != nil || len(repo.Spec.Workflows) > 0 {
		if t, err := signers.of(ctx, repo, src.lookup); err == nil && t != nil { // Signers.Look reports errors of those keys
			_, committer := people(repo.Spec.Commit)
			if err := t.takes(key, committer.Mail, now); err != nil {
				soon = append(soon, err.Error())
			}
		}
	}
	if look.Text == "" && len(soon) > 0 {
		look.Text = "none"
	}
	return SigningLook{text.Line(look.Text, maxVerdict), text.Line(strings.Join(soon, "; "), maxVerdict)}, nil
}

// takes returns an error if pulls would reject a commit of a committer that is signed with
// key; nil means unsigned.
func (t *trust) takes(key *signature.SigningKey, mail string, now time.Time) error {
	for _, d := range t.demands {
		if !d.Mode.Head() {
			continue
		}
		if key == nil {
			return fmt.Errorf("commits that jobs make are not signed, and %s asks for it: they would not be pulled", d.by)
		}
		claim := signature.Claim{Made: now, Now: now, Principals: d.Principals}
		if d.OfMaker {
			claim.Principals = append([]string{mail}, claim.Principals...)
		}
		txt := fmt.Appendf(nil, "committer x <%s> %d +0000\n\n", mail, now.Unix())
		signed, err := key.Sign(txt)
		if err != nil {
			return err
		}
		if _, err := d.Keys.Verify(txt, signed, claim); err != nil {
			if signature.KindOf(err) == signature.UnknownKey {
				err = errors.New("its public key is not among those that may sign")
			}
			return fmt.Errorf("what it signs would not be pulled, by %s: %w", d.by, err)
		}
	}
	return nil
}
