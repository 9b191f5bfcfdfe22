package repos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"limpet/state"
)

// A webhook is signed with what its host was told last, and nobody can ask the
// host what that is. So a new secret is kept before the host has it, as the third
// line: behind the one that the host is known to have, and the one before, whose
// deliveries may be under way. A delivery may be signed with any of them. As long
// as the host has not confirmed the third, it is offered again: with another one
// each time the secret that the host goes on signing with would be pushed out.

// hookSecret is where the secrets of a webhook are kept, one per line.
func (k Key) hookSecret() string { return "webhook/" + k.Namespace + "/" + k.Name }

// nextSecret is the secret to offer to the host: it is kept when this returns.
func (r *reconciling) nextSecret(ctx context.Context) (string, error) {
	kept, err := r.secrets(ctx)
	if err != nil {
		return "", err
	}
	if len(kept) == 3 {
		return kept[2], nil
	}
	next := rand.Text()
	switch len(kept) {
	case 0:
		kept = []string{next, next}
	case 1:
		kept = append(kept, kept[0])
	}
	return next, r.keepSecrets(ctx, append(kept, next))
}

// confirmSecret notes that the host has the secret that was offered.
func (r *reconciling) confirmSecret(ctx context.Context) error {
	kept, err := r.secrets(ctx)
	if err != nil || len(kept) != 3 {
		return err
	}
	now := []string{kept[2]}
	if kept[0] != kept[2] {
		now = append(now, kept[0])
	}
	return r.keepSecrets(ctx, now)
}

func (r *reconciling) secrets(ctx context.Context) ([]string, error) {
	kept, err := r.o.Hooks.Store.Secret(ctx, r.key.hookSecret())
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("read the secret of the webhook: %w", err)
	}
	return strings.Fields(string(kept)), nil
}

func (r *reconciling) keepSecrets(ctx context.Context, lines []string) error {
	if err := r.o.Hooks.Store.PutSecret(ctx, r.key.hookSecret(), []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		return fmt.Errorf("keep the secret of the webhook: %w", err)
	}
	return nil
}

func (r *reconciling) dropSecret(ctx context.Context) error {
	r.note.hooked = ""
	return errors.Join(r.o.Hooks.Store.DeleteFact(ctx, HookedKey(r.key)), r.o.Hooks.Store.DeleteSecret(ctx, r.key.hookSecret()))
}
