package manifests

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/worker/target"
)

// A comparison of all objects with their files asks for each object whether it is still the one that
// was found as its file says. Where files declare many objects of a collection it lists their
// versions instead: a thousand sources were a thousand requests each time.

// listFrom is the number of declared objects from which a list costs less than a request for each.
const listFrom = 10

// collection is what one list holds.
type collection struct {
	resource  schema.GroupVersionResource // in the version of a file
	namespace string
}

func (o *object) collection() collection { return collection{o.resource(), o.GetNamespace()} }

// large reports whether a kind may have many objects that come from no file.
func large(k api.Kind) bool { return k.Group == api.DashboardGroup || k.Group == api.FolderGroup }

// settled reports whether an object of the server is still the one that the last plan has found as
// its file says.
func (a *Applier) settled(ctx context.Context, o *object) bool {
	if o.version == "" {
		return false
	}
	if version := a.listed(ctx, o)[o.GetName()]; version != "" {
		return version == o.version
	}
	live, err := a.Client.Resource(o.resource()).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	return err == nil && live.GetResourceVersion() == o.version
}

// listed returns the resourceVersions in the collection of an object by their names. It lists them
// once a comparison, and none of a collection with few declared objects or with many others. A list
// may lack some: a token may have no right to it. Kinds without a group are Secrets, of which a list
// would show those of others.
func (a *Applier) listed(ctx context.Context, o *object) map[string]string {
	c := o.collection()
	versions, known := a.versions[c]
	if known {
		return versions
	}
	versions = map[string]string{}
	a.versions[c] = versions
	if c.resource.Group == "" || large(o.kind) || slices.Contains(transient, o.kind.Plural) || a.declared(c) < listFrom {
		return versions
	}
	type item struct {
		Metadata struct{ Name, ResourceVersion string } `json:"metadata"`
	}
	path := "/apis/" + c.resource.GroupVersion().String() + "/namespaces/" + c.namespace + "/" + c.resource.Resource
	// After an error what the pages before it lack is asked for by itself.
	_ = target.Pages(ctx, a.Client, path, target.MetadataList, func(page []item) error {
		for _, i := range page {
			versions[i.Metadata.Name] = i.Metadata.ResourceVersion
		}
		return nil
	})
	return versions
}

// declared returns the number of objects of a collection that files declare.
func (a *Applier) declared(c collection) (n int) {
	for _, f := range a.files {
		for _, o := range f.objects {
			if o.collection() == c {
				n++
			}
		}
	}
	return n
}
