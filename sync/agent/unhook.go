package agent

import (
	"context"
	"errors"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/repos"
	"limpet/sync/worker"
)

// unhook removes the webhook that the status of a Repository knows from its
// host. One that is gone is removed, and so is one whose host does not take the
// credentials any more: nobody could ever remove it. Source: Grafana. One that the
// status does not know may be there all the same, made just before the power went:
// it is looked for once, and holds up nobody.
func (a *Agent) unhook(ctx context.Context, u *unstructured.Unstructured, from auth.Source) error {
	id, _, _ := unstructured.NestedString(u.Object, "status", "webhook", "uuid")
	if number, _, _ := unstructured.NestedInt64(u.Object, "status", "webhook", "id"); number != 0 {
		id = strconv.FormatInt(number, 10)
	}
	key := hookSecretKey(u.GetNamespace(), u.GetName())
	if id != "" {
		err := a.unhookAt(ctx, u, id, from)
		if kind := forge.KindOf(err); err != nil && kind != forge.Unauthorized && !errors.Is(err, forge.ErrNone) {
			return err
		}
	} else if _, err := a.cfg.Store.Secret(ctx, key); err == nil {
		if err := a.unhookAt(ctx, u, "", from); err != nil {
			a.log.Debug("no webhook that was never noted is found", "repo", u.GetName(), "namespace", u.GetNamespace(), "err", err)
		}
	}
	at := repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}
	return errors.Join(a.cfg.Store.DeleteFact(ctx, repos.HookedKey(at)), a.cfg.Store.DeleteSecret(ctx, key))
}

// unhookAt removes the webhook with an id, "" = the one that sends to this agent.
func (a *Agent) unhookAt(ctx context.Context, u *unstructured.Unstructured, id string, from auth.Source) error {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return err
	}
	remote, err := worker.Remote(ctx, u.GetNamespace(), u.GetName(), repo, from, a.cfg.AllowInsecureGit)
	if err != nil {
		return err
	}
	if remote.Down != nil {
		return remote.Down
	}
	at, err := a.hosts.Remote(ctx, forge.TargetOf(u), remote.Creds)
	if err != nil {
		return err
	}
	if id == "" {
		base := a.cfg.Webhooks.URL
		if w := repo.Spec.Webhook; w != nil && w.BaseURL != "" {
			base = w.BaseURL
		}
		found, err := at.Find(ctx, repos.HookURL(base, repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}))
		if err != nil || found == nil {
			return err
		}
		id = found.ID
	}
	return at.Delete(ctx, id)
}
