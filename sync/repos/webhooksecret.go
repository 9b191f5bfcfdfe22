package repos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"limpet/state"
)

// A webhook is signed with the secret that its host was given last, and a host does not
// return it. So a new secret is stored before the host has it, as the third line: behind
// the one that the host is known to have, and the one before, whose deliveries may be
// under way. A delivery may be signed with any of them. As long as the host has not
// confirmed the third, it is offered again: with another one each time the secret that
// the host goes on signing with would be pushed out.
type webhookSecrets struct {
	store Store
	key   Key
}

// webhookSecretKey returns where the secrets of a webhook are stored, one per line.
func webhookSecretKey(k Key) string { return "webhook/" + k.Namespace + "/" + k.Name }

// next returns the secret to offer to the host: it is stored when this returns.
func (s webhookSecrets) next(ctx context.Context) (string, error) {
	lines, err := s.read(ctx)
	if err != nil {
		return "", err
	}
	if len(lines) == 3 {
		return lines[2], nil
	}
	next := rand.Text()
	switch len(lines) {
	case 0:
		lines = []string{next, next}
	case 1:
		lines = append(lines, lines[0])
	}
	return next, s.write(ctx, append(lines, next))
}

// confirm notes that the host has the secret that was offered.
func (s webhookSecrets) confirm(ctx context.Context) error {
	lines, err := s.read(ctx)
	if err != nil || len(lines) != 3 {
		return err
	}
	now := []string{lines[2]}
	if lines[0] != lines[2] {
		now = append(now, lines[0])
	}
	return s.write(ctx, now)
}

func (s webhookSecrets) read(ctx context.Context) ([]string, error) {
	data, err := s.store.Secret(ctx, webhookSecretKey(s.key))
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("read the secret of the webhook: %w", err)
	}
	return strings.Fields(string(data)), nil
}

func (s webhookSecrets) write(ctx context.Context, lines []string) error {
	if err := s.store.PutSecret(ctx, webhookSecretKey(s.key), []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		return fmt.Errorf("store the secret of the webhook: %w", err)
	}
	return nil
}

// dropWebhook drops what is stored of the webhook of a Repository.
func dropWebhook(ctx context.Context, store Store, k Key) error {
	return errors.Join(store.DeleteFact(ctx, WebhookSumKey(k)), store.DeleteSecret(ctx, webhookSecretKey(k)))
}
