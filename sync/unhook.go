package sync

import (
	"context"
	"errors"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/workers"
)

// unhook removes the webhook that the status of a Repository knows from its
// host. One that is gone is removed, and so is one whose host does not take the
// credentials any more: nobody could ever remove it. Source: Grafana.
func (a *Agent) unhook(ctx context.Context, u *unstructured.Unstructured, from auth.Source) error {
	id, _, _ := unstructured.NestedString(u.Object, "status", "webhook", "uuid")
	if number, _, _ := unstructured.NestedInt64(u.Object, "status", "webhook", "id"); number != 0 {
		id = strconv.FormatInt(number, 10)
	}
	if id != "" {
		err := a.unhookAt(ctx, u, id, from)
		if kind := forge.KindOf(err); err != nil && kind != forge.Unauthorized && !errors.Is(err, forge.ErrNone) {
			return err
		}
	}
	return a.cfg.Store.DeleteSecret(ctx, hookSecretKey(u.GetNamespace(), u.GetName()))
}

func (a *Agent) unhookAt(ctx context.Context, u *unstructured.Unstructured, id string, from auth.Source) error {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return err
	}
	remote, err := workers.Remote(ctx, u.GetNamespace(), u.GetName(), repo, from, a.cfg.AllowInsecureGit)
	if err != nil {
		return err
	}
	at, err := a.hosts.Remote(ctx, forge.TargetOf(u), remote.Creds)
	if err != nil {
		return err
	}
	return at.Delete(ctx, id)
}
