package cli

import (
	"context"
	"fmt"
	"sort"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
)

type gvr = schema.GroupVersionResource

// pageSize is how many objects one request brings: enough that the way there
// and back does not count, little enough for a slow link.
const pageSize = 500

// selected reads the objects that a label selector and keep let through, page
// by page, at most limit of them; 0 is all. A nil keep lets all through.
func (s *session) selected(ctx context.Context, gvr gvr, namespace, selector string, keep func(*unstructured.Unstructured) bool, limit uint) ([]unstructured.Unstructured, error) {
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

// find reads the one object of that name; without a namespace it looks in all
// of them and refuses to choose between two. Objects come without managedFields,
// which are bookkeeping of the API and many times the object.
func (s *session) find(ctx context.Context, gvr gvr, namespace, name string) (*unstructured.Unstructured, error) {
	if namespace != "" {
		u, err := s.Client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		u.SetManagedFields(nil)
		return u, nil
	}
	page, err := s.Client.Resource(gvr).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	switch len(page.Items) {
	case 0:
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	case 1:
		page.Items[0].SetManagedFields(nil)
		return &page.Items[0], nil
	}
	var in []string
	for _, u := range page.Items {
		in = append(in, u.GetNamespace())
	}
	sort.Strings(in)
	return nil, &severalError{singular(gvr), name, in}
}

// singular is one of a kind.
func singular(of gvr) string {
	for _, k := range api.Kinds {
		if k.Group == of.Group && k.Plural == of.Resource {
			return k.Singular
		}
	}
	return of.Resource
}

// severalError says that a name alone does not tell which object is meant. It becomes
// a usage error.
type severalError struct {
	noun, name string
	in         []string // namespaces
}

func (e *severalError) Error() string {
	return fmt.Sprintf("there is a %s %q in several namespaces: %s", e.noun, e.name, strings.Join(e.in, ", "))
}
