package object

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/target"
	"limpet/tui/cli/command"
)

// Orphans are the objects of a Repository that does not exist: no other Repository may write them.
type Orphans struct {
	Namespace  string `json:"namespace"`
	Repository string `json:"repository"`
	Objects    int    `json:"objects"`
}

func (o Orphans) String() string {
	return fmt.Sprintf("%s of repository %s/%s, which does not exist", text.Plural(o.Objects, "object"), o.Namespace, o.Repository)
}

// Next is the command that makes them unmanaged, and names the action that deletes them.
func (o Orphans) Next() string {
	return command.CommandFor(o.Namespace, "job create "+text.ShellWord(o.Repository)+" --action releaseResources") +
		"    # or deleteResources"
}

// ListOrphans counts the objects of Repositories that do not exist, in the namespace of the flags.
// It reads metadata alone. Kinds that the API does not serve have none.
func ListOrphans(ctx context.Context, e *command.Env, s *command.Session) (all []Orphans, err error) {
	namespace := e.Flags.ListNamespace()
	counts := map[Orphans]int{}
	for _, k := range api.Kinds {
		if !k.Provisioned() {
			continue
		}
		res, err := Resource(ctx, s, k, "")
		if err != nil {
			return nil, err
		}
		err = eachMetadata(ctx, s, res, namespace, func(m metav1.ObjectMeta) {
			if manager := m.Annotations[api.AnnoManagerID]; resources.Manages(manager, m.Annotations) {
				counts[Orphans{Namespace: m.Namespace, Repository: manager}]++
			}
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	// The Repositories come last: one that was made meanwhile is the manager of what was listed.
	err = eachMetadata(ctx, s, api.Repositories, namespace, func(m metav1.ObjectMeta) {
		delete(counts, Orphans{Namespace: m.Namespace, Repository: m.Name})
	})
	if err != nil {
		return nil, err
	}
	for o, n := range counts {
		o.Objects = n
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Orphans) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Repository, b.Repository))
	})
	return all, nil
}

// eachMetadata calls use with the metadata of each object of a kind, page by page.
func eachMetadata(ctx context.Context, s *command.Session, res command.Resource, namespace string, use func(metav1.ObjectMeta)) error {
	path := "/apis/" + res.GroupVersion().String() + "/"
	if namespace != "" {
		path += "namespaces/" + url.PathEscape(namespace) + "/"
	}
	return target.Pages(ctx, s.Client, path+res.Resource, target.MetadataList, func(page []metav1.PartialObjectMetadata) error {
		for i := range page {
			use(page[i].ObjectMeta)
		}
		return nil
	})
}
