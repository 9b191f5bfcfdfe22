package repos

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/forge"
)

// Cleanup removes what a Repository has at its host. It may be repeated. *WebhookCleanup
// is one.
type Cleanup interface {
	Clean(ctx context.Context, repo *unstructured.Unstructured) error
}

// WebhookCleanup removes the webhook of a deleted Repository, and what is stored of it.
type WebhookCleanup struct {
	Remotes Remotes
	Hosts   Hosts
	Store   Store
	Base    string // see Options.WebhookBase
	Logger  *slog.Logger
}

// Clean implements Cleanup. A webhook that does not exist is removed, and so is one whose
// host refuses the credentials: it could never be removed. Source: Grafana. One that the
// status does not name may exist all the same, made just before a power cut: it is
// searched once, and a failure of that is ignored.
func (w *WebhookCleanup) Clean(ctx context.Context, u *unstructured.Unstructured) error {
	k := Key{u.GetNamespace(), u.GetName()}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return err
	}
	if id := webhookID(repo.Status.Webhook); id != "" {
		err := w.remove(ctx, u, repo, id)
		if err != nil && forge.KindOf(err) != forge.Unauthorized && !errors.Is(err, forge.ErrNone) {
			return err
		}
	} else if _, err := w.Store.Secret(ctx, WebhookSecretKey(k)); err == nil {
		if err := w.remove(ctx, u, repo, ""); err != nil {
			w.Logger.Debug("cannot search for a webhook", "repo", k.Name, "namespace", k.Namespace, "err", err)
		}
	}
	return dropWebhook(ctx, w.Store, k)
}

// remove removes the webhook with an id, "" = the one that sends to this agent.
func (w *WebhookCleanup) remove(ctx context.Context, u *unstructured.Unstructured, repo api.Repository, id string) error {
	k := Key{u.GetNamespace(), u.GetName()}
	remote, err := w.Remotes.Remote(ctx, k.Namespace, k.Name, repo)
	if err != nil {
		return err
	}
	if remote.Down != nil {
		return remote.Down
	}
	host, err := w.Hosts.Host(ctx, u, remote.Creds)
	if err != nil {
		return err
	}
	if id == "" {
		base := w.Base
		if spec := repo.Spec.Webhook; spec != nil {
			base = cmp.Or(spec.BaseURL, base)
		}
		found, err := host.Find(ctx, WebhookURL(base, k))
		if err != nil || found == nil {
			return err
		}
		id = found.ID
	}
	return host.Delete(ctx, id)
}
