package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/ocirepository"
)

// lookTimeout bounds a look at a source that is tested.
const lookTimeout = 30 * time.Second

// registries returns the kind OCIRepository.
func (a *access) registries(cfg Config, from *clients) *ocirepository.Kind {
	return ocirepository.New(ocirepository.Options{
		Places:        a.places,
		Identities:    a.identities,
		PullSecrets:   from.pullSecrets,
		Mirrors:       cfg.RegistryMirrors,
		Guard:         cfg.Guard,
		AllowInsecure: cfg.AllowInsecureGit,
		AllowLocal:    cfg.LocalGit,
		Dir:           besideState(cfg.StatePath, "layers"),
		MaxBytes:      cfg.Artifacts.MaxBytes,
		MaxFiles:      cfg.Artifacts.MaxFiles,
		UserAgent:     "limpet/" + cfg.Version,
		Sealed:        from.sealed(),
	})
}

// pullSecrets returns the names of the Secrets of registries that a service account has.
func (c *clients) pullSecrets(ctx context.Context, namespace, account string) (names []string, err error) {
	u, err := c.client.Resource(api.ServiceAccounts).Namespace(namespace).Get(ctx, account, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "imagePullSecrets")
	for _, item := range list {
		if ref, ok := item.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(ref, "name")
			names = append(names, name)
		}
	}
	return names, nil
}

// look returns what looks at sources for a test.
func (a *access) look(cfg Config, from *clients) repos.Look {
	kind := a.registries(cfg, from)
	return func(ctx context.Context, u *unstructured.Unstructured) (revision, reason string, err error) {
		if u.GetKind() != kind.Kind().Kind {
			return "", "", fmt.Errorf("a %s cannot be tested", u.GetKind())
		}
		var found controller.Found
		spec, err := kind.Read(u)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			upstream := spec.Open(controller.Visit{Key: reconcile.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, Object: u, Timeout: lookTimeout})
			if err = upstream.Require(ctx); err == nil {
				found, err = upstream.Look(ctx)
			}
		}
		if failed, is := errors.AsType[*controller.Failure](err); is {
			return "", failed.Reason, failed.Err
		}
		return found.Revision, "", err
	}
}
