package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/source"
)

// validate reads the spec, with the rules of Flux's CRD: objects may be older than the rules of the
// API. Then it declares what the source uses, before any of that is read.
func (c *Controller) validate(_ context.Context, a *attempt) (done bool, err error) {
	if m := a.memory; m.generation != a.obj.GetGeneration() {
		m.generation = a.obj.GetGeneration()
		m.spec, m.git, m.invalid = read(a)
	}
	a.links = api.Annotation(a.obj, api.AnnoKeepSymlinks) == "true"
	if a.spec, a.git = a.memory.spec, a.memory.git; a.memory.invalid != nil {
		c.o.References.Use(ref(a.key))
		return true, a.memory.invalid
	}
	c.o.References.Use(ref(a.key), c.uses(a)...)
	return false, nil
}

// read returns the spec of a source. An error is a *failure that ends with a change of the spec.
func read(a *attempt) (spec, source.Git, error) {
	var s spec
	refused := func(reason string, err error) (spec, source.Git, error) {
		f := &failure{condition: condFetch, reason: reason, err: err, stalled: true}
		if reason == auth.ReasonVerifyMode {
			f.condition = condVerified
		}
		return spec{}, source.Git{}, f
	}
	g, err := source.ReadGit(a.obj)
	if e, ok := errors.AsType[*auth.SourceError](err); ok && e.Reason != "" {
		return refused(e.Reason, err)
	}
	errs := slices.DeleteFunc(admission.Check(a.obj, nil), func(e *field.Error) bool { return !strings.HasPrefix(e.Field, "spec") })
	if len(errs) > 0 {
		if strings.HasPrefix(errs[0].Field, "spec.url") {
			return refused(auth.ReasonURL, errs.ToAggregate())
		}
		return refused(reasonSpec, errs.ToAggregate())
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(a.obj.Object["spec"])
	}
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err == nil {
		s.interval, err = time.ParseDuration(s.Interval)
	}
	if err == nil && s.interval <= 0 {
		err = errors.New("spec.interval is not more than 0")
	}
	if err != nil {
		return refused(reasonSpec, err)
	}
	return s, g, nil
}

// reasonSpec is limpet's own, for a spec that the CRD of Flux would have refused.
const reasonSpec = "InvalidSpec"

// uses returns all that a source is made of besides its Git host.
func (c *Controller) uses(a *attempt) (refs []dependency.Ref) {
	for _, name := range []string{a.git.Secret, a.git.ProxySecret, a.git.Signers} {
		if name == "" {
			continue
		}
		refs = append(refs, dependency.Ref{Kind: dependency.File, Namespace: a.key.Namespace, Name: name})
		if c.o.Sealed == nil || !c.o.Sealed(name) {
			refs = append(refs, dependency.Ref{Kind: dependency.Secret, Namespace: a.key.Namespace, Name: name})
		}
	}
	for _, in := range a.spec.Includes {
		refs = append(refs, dependency.Ref{Kind: Kind, Namespace: a.key.Namespace, Name: in.Repository.Name})
	}
	signers := c.o.Signers.Files(a.key.Namespace, a.key.Name, a.git.URL)
	for _, path := range append(signers, auth.RuleFiles(c.o.Rules.Get(), a.git.URL)...) {
		refs = append(refs, dependency.Ref{Kind: dependency.Path, Name: path})
	}
	return refs
}

// finalize adds the finalizer, and removes the artifacts of a source that is deleted.
func (c *Controller) finalize(ctx context.Context, a *attempt) (done bool, err error) {
	names := a.obj.GetFinalizers()
	has := slices.Contains(names, finalizer)
	if a.over = a.obj.GetDeletionTimestamp() != nil; a.over {
		rest, err := c.leaveSink(ctx, a, names)
		if err != nil {
			return true, fmt.Errorf("leave sink directory: %w", err)
		}
		if err := c.o.Artifacts.Remove(ctx, a.key.Namespace, a.key.Name); err != nil {
			return true, fmt.Errorf("remove artifacts: %w", err)
		}
		c.o.References.Use(ref(a.key))
		c.o.References.Observe(ref(a.key), "")
		if rest = slices.DeleteFunc(rest, func(n string) bool { return n == finalizer }); len(rest) < len(names) {
			err = c.setFinalizers(ctx, a, rest)
		}
		return true, err
	}
	if !has {
		err = c.setFinalizers(ctx, a, append(names, finalizer))
	}
	return false, err
}

// setFinalizers replaces the finalizers of the version that was read.
func (c *Controller) setFinalizers(ctx context.Context, a *attempt, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": names, "uid": a.obj.GetUID(),
		"resourceVersion": a.obj.GetResourceVersion()}})
	if err != nil {
		return err
	}
	u, err := c.o.Client.Resource(api.GitRepositories).Namespace(a.key.Namespace).
		Patch(ctx, a.key.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsNotFound(err):
		a.over = true
		return nil
	case err != nil:
		return fmt.Errorf("write finalizers: %w", err)
	}
	a.obj = u
	return nil
}

// suspend ends the reconcile of a suspended source.
func suspend(_ context.Context, a *attempt) (done bool, err error) {
	a.over, _, _ = unstructured.NestedBool(a.obj.Object, "spec", "suspend")
	return a.over, nil
}
