package repos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
)

// Registry is where the webhooks of one repository are. *forge.Remote is one.
type Registry interface {
	Get(ctx context.Context, id string) (*forge.Hook, error)
	Create(ctx context.Context, h forge.Hook) (forge.Hook, error)
	Edit(ctx context.Context, h forge.Hook) (forge.Hook, error)
	Delete(ctx context.Context, id string) error
	Events() []string
}

var _ Registry = (*forge.Remote)(nil)

// Hooks are the webhooks that a controller makes. It runs by polling wherever one
// cannot be made: a webhook that fails makes no Repository unhealthy.
type Hooks struct {
	// Base is the address at which hosts reach the receiver of this agent, where a
	// Repository does not name one; "" = nowhere.
	Base string
	// Registry finds the webhooks of a Repository. The error wraps forge.ErrNone
	// when its host has none.
	Registry func(ctx context.Context, repo *unstructured.Unstructured, creds *auth.Credentials) (Registry, error)
	// Store keeps what webhooks are signed with, one per line and the present one
	// first, and what they were made for. *state.Store is one.
	Store hookStore
}

type hookStore interface {
	PutFact(ctx context.Context, key string, data []byte) error
	Fact(ctx context.Context, key string) ([]byte, error)
	DeleteFact(ctx context.Context, key string) error

	PutSecret(ctx context.Context, name string, plain []byte) error
	Secret(ctx context.Context, name string) ([]byte, error)
	DeleteSecret(ctx context.Context, name string) error
}

var _ hookStore = (*state.Store)(nil)

const (
	// rotateAfter is the age at which the secret of a webhook is replaced. Source:
	// Grafana.
	rotateAfter = 30 * 24 * time.Hour
	// refusedCooldown is the next try where the right is missing.
	refusedCooldown = time.Hour
	// hookTimeout bounds all calls for one webhook.
	hookTimeout = 40 * time.Second
)

// hookURL is where the webhook of a Repository sends to, "" when it is to have
// none: it is not wanted, or the Repository is only read. It is not known where
// this agent receives nothing; then a webhook that is there is somebody else's.
func hookURL(base string, k Key, repo api.Repository) (url string, known bool) {
	if w := repo.Spec.Webhook; w != nil {
		if w.Disabled {
			return "", true
		}
		if w.BaseURL != "" {
			base = w.BaseURL
		}
	}
	if len(repo.Spec.Workflows) == 0 || repo.Spec.Type == typeLocal {
		return "", true
	}
	return HookURL(base, k), base != ""
}

// HookURL is the address of the webhook of a Repository below the base address of
// a receiver.
func HookURL(base string, k Key) string {
	return fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/repositories/%s/webhook", strings.TrimRight(base, "/"), api.ProvisioningGroup, api.Repositories.Version, k.Namespace, k.Name)
}

// hookDue says why the webhook of a Repository has to be looked at; "" is not at
// all. want is its URL.
func hookDue(want string, has *api.WebhookStatus, specChanged bool, now time.Time) trigger {
	there := has != nil && (has.ID != 0 || has.UUID != "")
	switch {
	case want == "" && !there:
		return ""
	case want == "":
		return specChangedHook
	case !there:
		return webhookMissing
	case specChanged || has.URL != want:
		return specChangedHook
	case age(has.LastRotated, now) > rotateAfter:
		return webhookRotation
	}
	return ""
}

// Triggers of webhooks.
const (
	webhookMissing  trigger = "webhook_missing"
	webhookRotation trigger = "webhook_secret_rotation"
	specChangedHook         = specChanged
)

// hookID is the name by which the host knows a webhook.
func hookID(has *api.WebhookStatus) string {
	switch {
	case has == nil:
		return ""
	case has.UUID != "":
		return has.UUID
	case has.ID != 0:
		return strconv.FormatInt(has.ID, 10)
	}
	return ""
}

// hook makes, changes or removes the webhook of the Repository if that is due, and
// returns the member of the status that tells so, nil when it is gone. It is done
// before anything of it is written: a webhook whose note was lost is found again by
// its URL.
func (r *reconciling) hook(parent context.Context) (status map[string]any, changed bool) {
	f, has := &r.facts, r.facts.repo.Status.Webhook
	ctx, cancel := context.WithTimeout(parent, hookTimeout)
	defer cancel()
	registry, err := r.o.Hooks.Registry(ctx, r.obj, r.probe.remote.Creds)
	switch {
	case errors.Is(err, forge.ErrNone):
		r.note.hookAfter = f.now.Add(refusedCooldown)
		r.tried(err)
		return nil, false
	case err == nil && r.hookURL == "":
		if err = registry.Delete(ctx, hookID(has)); err == nil || forge.KindOf(err) == forge.Unauthorized {
			r.note.hookOwed = false
			return nil, r.dropSecret(ctx) == nil
		}
	case err == nil:
		var made forge.Hook
		if made, err = r.makeHook(ctx, registry, hookID(has)); err == nil {
			r.note.hookAfter, r.note.hookOwed = time.Time{}, false
			if err := r.keepHooked(ctx, cmp.Or(made.ID, hookID(has))); err != nil {
				r.log.Warn("cannot keep what a webhook was made for", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
			}
			r.tried(nil)
			if made.ID == "" {
				return nil, false
			}
			r.tell(r.key, "info", "webhook registered")
			return wireHook(made, has, f.now), true
		}
	}
	if parent.Err() != nil {
		return nil, false // nobody is to blame
	}
	wait := hookCooldown
	switch forge.KindOf(err) {
	case forge.Unauthorized, forge.Forbidden, forge.NotFound:
		wait = refusedCooldown
	}
	if r.note.hookAfter.IsZero() {
		r.tell(r.key, "warn", "no webhook, changes are found at the interval: "+err.Error())
		r.log.Warn("no webhook, changes are found at the interval", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
	}
	r.note.hookAfter = f.now.Add(wait)
	r.tried(err)
	return nil, false
}

// hookRest is how long a webhook that could not be made is left alone from now on.
// A time that is further away than any rest comes from a clock that was wrong.
func (n *note) hookRest(now time.Time) time.Duration {
	if rest := n.hookAfter.Sub(now); rest > 0 && rest <= refusedCooldown {
		return rest
	}
	return 0
}

// makeHook creates the webhook, or gives one that is there a new secret if it is
// another one or its secret is too old. The zero Hook says that all is well.
func (r *reconciling) makeHook(ctx context.Context, registry Registry, id string) (forge.Hook, error) {
	want := forge.Hook{ID: id, URL: r.hookURL, Events: registry.Events(), Active: true}
	if id != "" {
		there, err := registry.Get(ctx, id)
		if err != nil {
			return forge.Hook{}, err
		}
		rotate := age(r.facts.repo.Status.Webhook.LastRotated, r.facts.now) > rotateAfter
		if there != nil && want.Same(*there) && !rotate && r.facts.repo.Status.Webhook.URL == want.URL {
			return forge.Hook{}, nil
		}
		if there == nil {
			id = ""
		}
	}
	secret, err := r.nextSecret(ctx)
	if err != nil {
		return forge.Hook{}, err
	}
	want.Secret, r.hookSecret = forge.Secret(secret), secret
	write := registry.Edit
	if id == "" {
		write = registry.Create
	}
	made, err := write(ctx, want)
	if err != nil {
		return forge.Hook{}, err
	}
	made.URL = want.URL // a host may write it in its own way, and this is compared
	return made, r.confirmSecret(ctx)
}

// wireHook is status.webhook.
func wireHook(h forge.Hook, before *api.WebhookStatus, now time.Time) map[string]any {
	out := map[string]any{"url": h.URL, "subscribedEvents": list(h.Events), "lastRotated": now.UnixMilli()}
	if n := h.Number(); n != 0 {
		out["id"] = n
	} else {
		out["uuid"] = h.ID
	}
	if before != nil && before.LastEvent > 0 {
		out["lastEvent"] = before.LastEvent
	}
	return out
}
