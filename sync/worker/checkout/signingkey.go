package checkout

import (
	"context"
	"fmt"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// SigningKey returns the key that signs the commits of a Repository at a time, with the place where
// it was found; nil if there is no key and the Repository requires none. It reads the key each
// time, so that a new one is used at once; a key with a passphrase takes as long as its key
// derivation. An error is either transient or names the setting to change; it holds no secret. A
// nil source has no keys.
func SigningKey(
	ctx context.Context, from auth.Source, l auth.Lookup, repo api.Repository, now time.Time,
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
	if from != nil {
		if found, err = from(ctx, l); err != nil {
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

// LookAtSigningKey describes the key that signs the commits of jobs in a Repository. An error means
// that such jobs fail. It makes no request to a Git host.
func LookAtSigningKey(
	ctx context.Context, from auth.Source, namespace, name string, repo api.Repository, now time.Time,
) (look KeysLook, err error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return KeysLook{}, err
	}
	key, place, err := SigningKey(ctx, from, src.lookup, repo, now)
	if err != nil || key == nil {
		return KeysLook{}, err
	}
	until, left := expiry(key.Expires(), now)
	if left != "" {
		left = "it" + left
	}
	return KeysLook{text.Line(key.String()+until+", "+place, maxVerdict), left}, nil
}
