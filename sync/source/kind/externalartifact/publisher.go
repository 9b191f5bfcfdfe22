package externalartifact

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	synced "limpet/sync/source/upstream"
)

const (
	ociRepository = "OCIRepository"
	layoutScheme  = "oci-layout://"
)

// publishable are the kinds of which objects may ask for an ExternalArtifact; of two with one name
// the first has it.
var publishable = []string{dependency.Repository, dependency.GitRepository, ociRepository}

const (
	fieldManager = "limpet-external-artifact"
	maxRetry     = 5 * time.Minute
	callsTimeout = 15 * time.Second // of the few calls of a reconcile
	// lookAgain is the pause where nothing says that the definition has come, syncing that of a start.
	lookAgain = time.Minute
	syncing   = time.Second
)

// Reasons of api.ConditionExternalArtifact.
const (
	reasonDefinition = "DefinitionMissing"
	reasonForeign    = "NameTaken"
	reasonNative     = "NotNeeded"
)

// Publisher makes an ExternalArtifact for each object that asks for one, and deletes it when that
// does so no more. Its content is the work of the controller of the kind.
type Publisher struct {
	*reconcile.Loop
	o Options
}

// NewPublisher registers its handlers with watchers and informer, which must not run yet. It starts
// nothing.
func NewPublisher(o Options) *Publisher {
	p := &Publisher{o: o}
	p.Loop = reconcile.NewLoop(reconcile.Options{Kind: kindName, Reconcile: p.reconcile, Client: o.Client, MaxRetry: maxRetry, Logger: o.Logger})
	wake := func(obj kube.Object) {
		if asks(obj) {
			p.Wake(obj.Namespace(), obj.Name())
		}
	}
	asking := kube.Handler{Add: wake, Delete: wake, Update: func(old, obj kube.Object) {
		if asks(old) || asks(obj) {
			p.Wake(obj.Namespace(), obj.Name())
		}
	}}
	o.Repositories.AddHandler(asking)
	o.Sources.Of(dependency.GitRepository).AddHandler(asking)
	o.Sources.Of(ociRepository).AddHandler(asking)
	wakeAny := func(obj kube.Object) { p.Wake(obj.Namespace(), obj.Name()) }
	o.Sources.Of(kindName).AddHandler(kube.Handler{Add: wakeAny, Delete: wakeAny, Update: func(old, obj kube.Object) {
		if old.Number(pathGeneration) != obj.Number(pathGeneration) || old.Text(pathManager) != obj.Text(pathManager) {
			wakeAny(obj)
		}
	}})
	return p
}

var (
	pathAsks       = kube.PathTo("metadata", "annotations", api.AnnoExternalArtifact)
	pathGeneration = kube.PathTo("metadata", "generation")
	pathManager    = kube.PathTo("metadata", "labels", labelManager)
)

func asks(obj kube.Object) bool { return obj.Text(pathAsks) == "true" }

// Run works until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	return p.Work(ctx, func() (keys []reconcile.Key) {
		all, _ := p.o.Sources.Objects()
		for _, obj := range append(all, p.o.Repositories.Objects()...) {
			if asks(obj) || obj.Text(pathManager) == manager {
				keys = append(keys, reconcile.Key{Namespace: obj.Namespace(), Name: obj.Name()})
			}
		}
		return keys
	})
}

// object returns a cached object. known is false while the cache may lack some.
func (o Options) object(of dependency.Ref) (u *unstructured.Unstructured, known bool) {
	if of.Kind == dependency.Repository {
		u, _ = o.Repositories.Get(of.Namespace, of.Name)
		return u, o.Repositories.HasSynced()
	}
	w := o.Sources.Of(of.Kind)
	if w == nil {
		return nil, true
	}
	if u, known = w.Get(of.Namespace, of.Name); !known {
		_, _, _, on := w.Watch()
		_, discovered := w.Objects()
		known = discovered && !on // the API has none
	}
	return u, known
}

func (p *Publisher) reconcile(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callsTimeout)
	defer cancel()
	later := reconcile.Result{Next: time.Now().Add(lookAgain), Unready: true}
	soon := reconcile.Result{Next: time.Now().Add(syncing), Unready: true}
	var wanted *unstructured.Unstructured
	for _, kind := range publishable {
		obj, known := p.o.object(dependency.Ref{Kind: kind, Namespace: k.Namespace, Name: k.Name})
		switch {
		case obj == nil && !known:
			return soon, nil
		case obj == nil || obj.GetDeletionTimestamp() != nil:
		case api.Annotation(obj, api.AnnoExternalArtifact) != "true":
			if err := p.report(ctx, k, obj, "", ""); err != nil {
				return later, err
			}
		case native(obj):
			if err := p.report(ctx, k, obj, reasonNative, "its consumers read a "+kind+" itself: the annotation is for bundle://, limpet+https:// "+
				"and "+layoutScheme); err != nil {
				return later, err
			}
		case wanted != nil:
			if err := p.report(ctx, k, obj, reasonForeign, "the "+wanted.GetKind()+" of that name has it"); err != nil {
				return later, err
			}
		default:
			wanted = obj
		}
	}
	if wanted != nil && wanted.GetKind() == dependency.Repository { // of a source its controller does so
		p.o.References.Observe(dependency.Ref{Kind: dependency.Repository, Namespace: k.Namespace, Name: k.Name}, versionOf(synced.Of(wanted)))
	}
	have, known := p.o.Sources.Of(kindName).Get(k.Namespace, k.Name)
	switch {
	case have == nil && !known && wanted == nil:
		return reconcile.Result{}, nil
	case have == nil && !known:
		if _, _, _, on := p.o.Sources.Of(kindName).Watch(); on {
			return soon, nil
		}
		return later, p.report(ctx, k, wanted, reasonDefinition, "the API has no "+api.ExternalArtifacts.GroupResource().String()+
			": limpet crds | kubectl apply -f -")
	case have == nil && wanted == nil:
		return reconcile.Result{}, nil
	case have == nil:
		if err := p.create(ctx, wanted); err != nil {
			return later, err
		}
		return reconcile.Result{}, p.report(ctx, k, wanted, "", "")
	case !owns(have):
		if wanted == nil {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, p.report(ctx, k, wanted, reasonForeign, "the ExternalArtifact of that name is not one of limpet, and is left alone")
	case have.GetDeletionTimestamp() != nil:
		return reconcile.Result{}, nil
	case wanted == nil || metav1.GetControllerOf(have).UID != wanted.GetUID() || !follows(have, wanted):
		return reconcile.Result{}, p.remove(ctx, have) // its end wakes
	}
	return reconcile.Result{}, p.report(ctx, k, wanted, "", "")
}

// native reports whether Flux's consumers can read a source themselves.
func native(obj *unstructured.Unstructured) bool {
	url, _, _ := unstructured.NestedString(obj.Object, "spec", "url")
	switch obj.GetKind() {
	case dependency.GitRepository:
		a, err := auth.ParseAddress(url)
		return err != nil || !a.Own()
	case ociRepository:
		return !strings.HasPrefix(url, layoutScheme)
	}
	return false
}

// follows reports whether an ExternalArtifact names the object, which policies of clusters rely on.
func follows(have, of *unstructured.Unstructured) bool {
	ref, _, _ := unstructured.NestedMap(have.Object, "spec", "sourceRef")
	return reflect.DeepEqual(ref, refTo(of))
}

func refTo(of *unstructured.Unstructured) map[string]any {
	return map[string]any{"apiVersion": of.GetAPIVersion(), "kind": of.GetKind(), "name": of.GetName()}
}

// create makes the ExternalArtifact of an object, which goes with it.
func (p *Publisher) create(ctx context.Context, of *unstructured.Unstructured) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"sourceRef": refTo(of)}}}
	u.SetAPIVersion(api.ExternalArtifacts.GroupVersion().String())
	u.SetKind(kindName)
	u.SetNamespace(of.GetNamespace())
	u.SetName(of.GetName())
	u.SetLabels(map[string]string{labelManager: manager})
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: of.GetAPIVersion(), Kind: of.GetKind(), Name: of.GetName(), UID: of.GetUID(),
		Controller: new(true)}})
	_, err := p.o.Client.Resource(api.ExternalArtifacts).Namespace(of.GetNamespace()).Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) { // then the watch brings it
		return fmt.Errorf("create ExternalArtifact: %w", err)
	}
	return nil
}

// remove deletes one. Its controller removes what it has stored.
func (p *Publisher) remove(ctx context.Context, obj *unstructured.Unstructured) error {
	err := p.o.Client.Resource(api.ExternalArtifacts).Namespace(obj.GetNamespace()).Delete(ctx, obj.GetName(),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(obj.GetUID()))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ExternalArtifact: %w", err)
	}
	return nil
}

// report writes why an object has no ExternalArtifact into its status, once; no reason says that it
// has one.
func (p *Publisher) report(ctx context.Context, k reconcile.Key, obj *unstructured.Unstructured, reason, message string) error {
	c := api.Condition{Type: api.ConditionExternalArtifact}
	if reason != "" {
		c.Status, c.Reason, c.Message = "False", reason, message
	}
	list, changed := api.SetConditions(obj, p.o.Client.Now(), c)
	if !changed {
		return nil
	}
	if reason != "" {
		p.o.Logger.Warn("no ExternalArtifact", "kind", obj.GetKind(), "name", k.Name, "namespace", k.Namespace, "reason", reason, "why", message)
	}
	objects := reconcile.Objects{Client: p.o.Client, Resource: api.Repositories}
	if k, is := api.SourceKind(obj.GetKind()); is {
		objects.Resource = k.Resource()
	}
	_, err := objects.PatchStatus(ctx, k, append(patch.Guard(obj, "status"), patch.Add("/status/conditions", list)))
	if errors.Is(err, reconcile.ErrConflict) { // the watch brings the newer one
		return nil
	}
	return err
}
