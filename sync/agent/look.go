package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/bucket"
	"limpet/sync/source/kind/helmchart"
	"limpet/sync/source/kind/helmrepository"
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

// storage is where kinds keep what they read, and find what others have made.
type storage struct {
	layers     string // directory of downloads
	objects    string // directory of those of buckets
	artifacts  *artifact.Store
	sources    helmchart.Sources
	charts     helmchart.Artifacts // of the sources of charts
	references *dependency.Watcher // nil = a change wakes nothing
}

// kinds returns the kinds of sources whose upstream is no Git repository.
func (a *access) kinds(cfg Config, from *clients, registries *ocirepository.Kind, s storage) []controller.Kind {
	agent := "limpet/" + cfg.Version
	repositories := &helmrepository.Client{
		Credentials:   a.places.WithTransport(a.places.NamedSecret()),
		Places:        a.places,
		HTTP:          &netx.Client{Guard: cfg.Guard, UserAgent: agent},
		AllowInsecure: cfg.AllowInsecureGit,
		AllowLocal:    cfg.LocalGit,
	}
	return []controller.Kind{
		registries,
		bucket.New(bucket.Options{
			Places:     a.places,
			Identities: a.identities,
			Client:     &netx.Client{Guard: cfg.Guard, UserAgent: agent, Now: from.client.Now},
			Artifacts:  s.artifacts,
			Dir:        s.objects,
			MaxBytes:   cfg.Artifacts.MaxBytes,
			MaxFiles:   cfg.Artifacts.MaxFiles,
			Sealed:     from.sealed(),
		}),
		helmrepository.New(helmrepository.Options{Client: repositories, Dir: s.layers, MaxBytes: cfg.Artifacts.MaxIndex, Sealed: from.sealed()}),
		helmchart.New(helmchart.Options{
			Sources:    s.sources,
			Artifacts:  s.charts,
			References: s.references,
			Client:     repositories,
			Registries: registries,
			Dir:        s.layers,
			Sealed:     from.sealed(),
		}),
	}
}

// origin is the source of a chart that is tested.
type origin struct {
	obj *unstructured.Unstructured // nil = there is none
	dir string                     // of the artifacts of this host
}

// originOf returns the source of a chart on the API; another object has none.
func (c *clients) originOf(ctx context.Context, u *unstructured.Unstructured, dir string) (o origin, err error) {
	ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "sourceRef")
	kind, known := api.SourceKind(ref["kind"])
	if !known {
		return origin{dir: dir}, nil
	}
	obj, err := c.client.Resource(kind.Resource()).Namespace(u.GetNamespace()).Get(ctx, ref["name"], metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return origin{dir: dir}, nil
	}
	return origin{obj, dir}, err
}

// Get returns the source.
func (o origin) Get(_, _, _ string) (u *unstructured.Unstructured, known bool) { return o.obj, true }

// Latest returns the artifact of its status.
func (o origin) Latest(_ context.Context, of artifact.Key) (artifact.Artifact, error) {
	is := source.FromObject(o.obj).Artifact
	if is == nil {
		return artifact.Artifact{}, artifact.ErrNotFound
	}
	return artifact.Artifact{Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, UID: string(o.obj.GetUID()),
		Revision: is.Revision, Digest: is.Digest, Size: is.Size}, nil
}

// OpenFile opens it on this host.
func (o origin) OpenFile(ctx context.Context, a artifact.Artifact) (*os.File, error) {
	return artifact.OpenIn(ctx, o.dir, a)
}

// look returns what looks at sources for a test. What a test reads is in a directory of its own.
func (a *access) look(cfg Config, from *clients) repos.Look {
	registries := a.registries(cfg, from)
	return func(ctx context.Context, u *unstructured.Unstructured) (revision, reason string, err error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		dir, err := os.MkdirTemp("", "limpet-test-")
		if err != nil {
			return "", "", fmt.Errorf("make a directory for the test: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		of, err := from.originOf(ctx, u, ArtifactsPath(cfg.StatePath))
		if err != nil {
			return "", "", fmt.Errorf("read the source of the chart: %w", err)
		}
		kinds := a.kinds(cfg, from, registries, storage{layers: dir, objects: filepath.Join(dir, "objects"),
			artifacts: new(artifact.Store), sources: of, charts: of})
		i := slices.IndexFunc(kinds, func(k controller.Kind) bool { return k.Kind().Kind == u.GetKind() })
		if i < 0 {
			return "", "", fmt.Errorf("a %s cannot be tested", u.GetKind())
		}
		revision, err = lookAt(ctx, kinds[i], u)
		if failed, is := errors.AsType[*controller.Failure](err); is {
			return "", failed.Reason, failed.Err
		}
		return revision, "", err
	}
}

// lookAt asks the upstream of a source for its newest revision.
func lookAt(ctx context.Context, kind controller.Kind, u *unstructured.Unstructured) (string, error) {
	static, can := kind.(controller.Static)
	if can && static.Static(u) {
		return "", errors.New("it has no revision: its charts are read one by one; test a HelmChart of it")
	}
	spec, err := kind.Read(u)
	if err != nil {
		return "", err
	}
	upstream := spec.Open(controller.Visit{Key: reconcile.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, Object: u, Timeout: lookTimeout})
	if err := upstream.Require(ctx); err != nil {
		return "", err
	}
	found, err := upstream.Look(ctx)
	if err == nil && can { // the index is here, and is to be read
		_, err = upstream.Fetch(ctx)
	}
	return found.Revision, err
}
