package command

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/control"
)

// WithObject calls f with a session and the object of a name.
func (e *Env) WithObject(ctx context.Context, n Needs, kind Resource, name string,
	f func(*Session, *unstructured.Unstructured) error) error {
	return e.With(ctx, n, func(s *Session) error {
		u, err := e.FindObject(ctx, s, kind, name)
		if err != nil {
			return err
		}
		return f(s, u)
	})
}

// PrintObjects prints the objects of kinds that match a label selector and keep, at most limit of
// them, with the cells of their rows. Of several kinds those that the API does not serve are left
// out.
func (e *Env) PrintObjects(ctx context.Context, s *Session, kinds []Resource, selector string, keep func(*unstructured.Unstructured) bool,
	limit uint, t Table, row func(u *unstructured.Unstructured) ([]string, error)) error {
	objects, served := []any{}, false
	for _, kind := range kinds {
		if limit > 0 && uint(len(objects)) == limit {
			break
		}
		items, err := s.List(ctx, kind, e.Flags.ListNamespace(), selector, keep, limit-min(limit, uint(len(objects))))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		served = true
		for i := range items {
			u := &items[i]
			if failed, _, _ := unstructured.NestedBool(u.Object, "status", "conversion", "failed"); failed && e.Flags.Data() {
				if u, _, err = s.Client.Stored(ctx, kind, u); err != nil {
					return err
				}
			}
			cells, err := row(u)
			if err != nil {
				return err
			}
			t.Add(u.GetNamespace(), KindOf(kind).Singular+"/"+u.GetName(), cells...)
			objects = append(objects, u.Object)
		}
	}
	if !served {
		return notServed(kinds[0])
	}
	return e.PrintList(objects, t)
}

// Resource is a kind of objects.
type Resource = schema.GroupVersionResource

// pageSize is the number of objects in one request: few enough for a slow link.
const pageSize = 500

// List reads the objects that match a label selector and keep, page by page, at most limit of them;
// 0 means all. A nil keep matches all.
func (s *Session) List(ctx context.Context, gvr Resource, namespace, selector string, keep func(*unstructured.Unstructured) bool,
	limit uint) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	opts := metav1.ListOptions{Limit: pageSize, LabelSelector: selector}
	for {
		page, err := s.Client.Resource(gvr).Namespace(namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			page.Items[i].SetManagedFields(nil)
			if keep == nil || keep(&page.Items[i]) {
				out = append(out, page.Items[i])
			}
			if limit > 0 && uint(len(out)) == limit {
				return out, nil
			}
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// Find reads the object of that name; without a namespace it searches all and rejects an ambiguous
// name. Objects come without managedFields, which are many times their size.
func (s *Session) Find(ctx context.Context, gvr Resource, namespace, name string) (u *unstructured.Unstructured, err error) {
	if namespace != "" {
		u, err = s.Client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	} else {
		var page *unstructured.UnstructuredList
		if page, err = s.Client.Resource(gvr).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}); err != nil {
			return nil, err
		}
		var in []string
		for i := range page.Items {
			u, in = &page.Items[i], append(in, page.Items[i].GetNamespace())
		}
		if slices.Sort(in); len(in) > 1 {
			return nil, &control.AmbiguousError{Noun: KindOf(gvr).Singular, Name: name, Namespaces: in}
		}
		if u == nil {
			err = apierrors.NewNotFound(gvr.GroupResource(), name)
		}
	}
	if err != nil {
		return nil, err
	}
	u.SetManagedFields(nil)
	return u, nil
}

// KindOf returns the kind of a resource; of one that limpet does not know, its name alone.
func KindOf(of Resource) api.Kind {
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Group == of.Group && k.Plural == of.Resource })
	if i < 0 {
		return api.Kind{Singular: of.Resource}
	}
	return api.Kinds[i]
}

// FindObject returns the object of a name in the namespace of the call. When there is none, the
// hint of the error lists those that there are.
func (e *Env) FindObject(ctx context.Context, s *Session, kind Resource, name string) (*unstructured.Unstructured, error) {
	u, err := s.Find(ctx, kind, e.Flags.ListNamespace(), name)
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) {
		if d := status.Status().Details; d == nil || d.Name == "" { // an API without the kind does not name the object
			return nil, notServed(kind)
		}
		next := "limpet get " + kind.Resource
		if noun := KindOf(kind).Noun; noun != "" {
			next = "limpet " + noun + " list"
		}
		return nil, Errorf(ExitError, next, "%s %q not found", KindOf(kind).Singular, name)
	}
	return u, err
}

// notServed reports that the API has no objects of a kind.
func notServed(kind Resource) error {
	return Errorf(ExitError, "limpet doctor    # says which API is asked", "this API does not serve %s", kind.GroupResource())
}
