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

// SigningKeys finds what the commits are signed with that jobs make. Keys are read at each
// look, so that a new one is used at once. Safe for concurrent use; a nil *SigningKeys has
// no keys.
type SigningKeys struct {
	from auth.SigningSource
}

// NewSigningKeys returns that of an agent. A nil source has no keys.
func NewSigningKeys(from auth.SigningSource) *SigningKeys { return &SigningKeys{from} }

// Key is what the commits of a Repository are signed with at a time, with the place where
// it was found; nil where there is no key and the Repository asks for none. Reading a key
// with a passphrase takes as long as that wants. An error says what a person has to
// change, or is one of the moment; it holds no secret.
func (s *SigningKeys) Key(ctx context.Context, l auth.Lookup, repo api.Repository, now time.Time) (key *signature.SigningKey, place string, err error) {
	const methodField = "spec.commit.signingMethod"
	asked := ""
	if c := repo.Spec.Commit; c != nil {
		asked = c.SigningMethod
	}
	method, err := signature.ParseMethod(asked)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", methodField, err)
	}
	var found *auth.Signing
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
		return nil, "", fmt.Errorf("%s asks for signed commits, and this agent finds no key: put %s into a secret of the repository or below --credentials-dir in %s.%s/",
			field, signature.SigningKeyName, l.Namespace, l.Repository)
	}
	if key, err = signature.ParseSigningKey(found.Key, found.Passphrase, now); err != nil {
		return nil, "", fmt.Errorf("%s in %s: %w", signature.SigningKeyName, found.Place, err)
	}
	if method != "" && method != key.Method() {
		return nil, "", fmt.Errorf("%s in %s is one of %s, and %s is %s: change the one or the other", signature.SigningKeyName, found.Place, key.Method(), methodField, method)
	}
	return key, found.Place, nil
}

// SigningLook is what a look at a key to sign with has shown, for people.
type SigningLook struct {
	Text string // what signs, until when and where it was found; "" = commits are not signed
	Soon string // why it is of no use soon, or of no use to this agent; "" = nothing
}

// Look says what the commits are signed with that jobs make in a Repository, and whether
// they would be pulled, by what of signers is asked for there. An error says that such
// jobs fail. It makes no request to a Git host.
func (s *SigningKeys) Look(ctx context.Context, namespace, name string, repo api.Repository, signers *Signers, now time.Time) (look SigningLook, err error) {
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
		look.Text = key.String()
		if end := key.Expires(); !end.IsZero() {
			look.Text += " until " + end.UTC().Format(time.DateOnly)
			if left := end.Sub(now); left <= EndsSoon {
				soon = append(soon, fmt.Sprintf("it ends in %s", text.Age(max(left, 0))))
			}
		}
		look.Text += ", " + place
	}
	if key != nil || len(repo.Spec.Workflows) > 0 {
		if t, err := signers.of(ctx, repo, src.lookup); err == nil && t != nil { // what is wrong with those keys is told elsewhere
			_, committer := people(repo.Spec.Commit)
			if err := t.takes(key, committer.Mail, now); err != nil {
				soon = append(soon, err.Error())
			}
		}
	}
	if look.Text == "" && len(soon) > 0 {
		look.Text = "none"
	}
	look.Text, look.Soon = text.Clean(cut(look.Text)), text.Clean(cut(strings.Join(soon, "; ")))
	return look, nil
}

// takes reports whether a commit would be pulled that is signed by a key, nil for none, and
// committed by a person.
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
