package repos

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/forge"
)

// cleanWebhook removes the webhook of a deleted Repository, and what is stored of it. It
// may be repeated. A webhook that does not exist is removed, and so is one whose host
// refuses the credentials: it could never be removed. Source: Grafana. One that the
// status does not name may exist all the same, made just before a power cut: it is
// searched once, and a failure of that is ignored.
func (c *Controller) cleanWebhook(ctx context.Context, u *unstructured.Unstructured) error {
	if c.o.Hosts == nil || c.o.Store == nil {
		return nil
	}
	k := Key{u.GetNamespace(), u.GetName()}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return err
	}
	if id := webhookID(repo.Status.Webhook); id != "" {
		err := c.removeWebhook(ctx, u, repo, id)
		if err != nil && forge.KindOf(err) != forge.Unauthorized && !errors.Is(err, forge.ErrNone) {
			return err
		}
	} else if _, err := c.o.Store.Secret(ctx, WebhookSecretKey(k)); err == nil {
		if err := c.removeWebhook(ctx, u, repo, ""); err != nil {
			c.log.Debug("cannot search for a webhook", "repo", k.Name, "namespace", k.Namespace, "err", err)
		}
	}
	return dropWebhook(ctx, c.o.Store, k)
}

// removeWebhook removes the webhook with an id, "" = the one that sends to this agent.
func (c *Controller) removeWebhook(ctx context.Context, u *unstructured.Unstructured, repo api.Repository, id string) error {
	k := Key{u.GetNamespace(), u.GetName()}
	remote, err := c.o.Remotes.Remote(ctx, k.Namespace, k.Name, repo)
	if err != nil {
		return err
	}
	if remote.Down != nil {
		return remote.Down
	}
	host, err := c.o.Hosts.Host(ctx, u, remote.Creds)
	if err != nil {
		return err
	}
	if id == "" {
		base := c.o.WebhookBase
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
