package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// Admission goes defaults, rules of the object, rules between objects, and
// last the sealing of secrets: the rules want to see what was sent, and nothing
// after them may see it.

// admit decides whether a write may be stored, and what else belongs into it:
// defaults and sealed values. The error is an *apierrors.StatusError.
func (s *Server) admit(r *admitRequest) error {
	ctx := context.Background() // a write that was asked for is decided, whoever still waits
	if r.Operation == opDelete {
		if err := s.checkEmpty(ctx, r); err != nil {
			return internal(err)
		}
		if !r.Gone {
			return nil
		}
		return internal(s.forgetAll(ctx, r))
	}
	if r.Subresource != "" {
		return s.admitBrought(ctx, r)
	}
	admission.Default(r.Object)
	admission.RemoveMintedToken(r.Object, r.Old)
	if s.finalizers && r.Old == nil {
		admission.DefaultFinalizers(r.Object)
	}
	if err := s.check(ctx, r); err != nil {
		return err
	}
	dropLastApplied(r.Object)
	if isSecret(r.Kind) {
		// Old is revealed, so that it is compared before anything is sealed.
		settle(r)
		return internal(s.sealData(ctx, r))
	}
	if err := s.sealInline(ctx, r); err != nil {
		return internal(err)
	}
	settle(r)
	return nil
}

// settle decides again what the core decided before defaults and seals were in
// place: whether the write changes anything. Applying the same file twice must
// not look like a change.
func settle(r *admitRequest) {
	if r.Old == nil {
		return
	}
	if r.Kind.Generation {
		generation := r.Old.GetGeneration()
		if !sameContent(r.Object, r.Old) {
			generation++
		}
		r.Object.SetGeneration(generation)
	}
	keepTimes(r.Old, r.Object)
}

// check applies the rules of one object and those between objects.
func (s *Server) check(ctx context.Context, r *admitRequest) error {
	if r.Kind.Group == api.ProvisioningGroup && r.Kind.Kind == "Job" && r.Old != nil {
		if key := admission.ChangedAuthor(r.Object.GetAnnotations(), r.Old.GetAnnotations()); key != "" {
			return apierrors.NewBadRequest("the annotation " + key + " cannot be changed")
		}
	}
	siblings, err := s.siblings(ctx, r)
	if err != nil {
		return internal(err)
	}
	errs := admission.Check(r.Object, r.Old)
	errs = append(errs, admission.CheckSiblings(r.Object, r.Old, siblings)...)
	errs = append(errs, admission.CheckQuota(r.Object, r.Old, siblings, s.most)...)
	if len(errs) > 0 {
		return invalid(r.Kind, r.Name, errs)
	}
	for _, text := range admission.Warnings(r.Object, nil) {
		r.warn(text)
	}
	return nil
}

// siblings are the other objects of the namespace that the rules of this one
// look at.
func (s *Server) siblings(ctx context.Context, r *admitRequest) ([]*unstructured.Unstructured, error) {
	if !admission.NeedsSiblings(r.Object, r.Old) && !admission.NeedsCount(r.Object, r.Old, s.most) {
		return nil, nil
	}
	return s.listObjects(ctx, r.Kind, r.Namespace, labels.Everything())
}

// alone lets the writes of a kind that has rules between its objects go one by
// one, because each of two that are decided side by side would look lawful. Call
// what it returns when the write is stored. Status may go beside: no rule is
// about it.
func (s *Server) alone(t target) (done func()) {
	if t.kind.Group != api.ProvisioningGroup || t.kind.Kind != "Repository" || t.subresource != "" {
		return func() {}
	}
	s.between.Lock()
	return s.between.Unlock
}

func (r *admitRequest) warn(text string) {
	if r.Warnings != nil {
		*r.Warnings = append(*r.Warnings, text)
	}
}

// internal makes any error a Status that can be answered.
func internal(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// The seam of this package. The core (verbs, storage, watches, patches) knows
// Kubernetes and nothing of Grafana; what our own kinds add is asked here:
//
//	admit            before an object is stored or removed     admission.go
//	reveal           before a stored object is answered        reveal.go
//	serveSubresource routes below one object                   jobsubresource.go
//
// Those files reach the objects of the server through objects.go, and answer
// through answer.go. From admit, only getObject and listObjects may be called.

// Operations that admit is asked for.
const (
	opCreate = "CREATE"
	opUpdate = "UPDATE"
	opDelete = "DELETE"
)

// admitRequest is one write, asked for before it is stored.
//
// The core asks outside of any transaction and writes only if the object has
// not changed in between, else it asks again with the newer Old. So admit may
// read other objects of the server, must not write any, and must not keep
// results outside of the request.
//
// What the client sent also stands in the annotation
// kubectl.kubernetes.io/last-applied-configuration of objects that kubectl
// applies; admit sees to it that no secret value stays there.
type admitRequest struct {
	Kind        api.Kind
	Subresource string // "" or "status"
	Operation   string // opCreate, opUpdate (also patches and apply), opDelete
	Namespace   string
	Name        string

	// Object is what will be stored, in the version of the request; admit may
	// change all but its identity. It is nil for opDelete.
	Object *unstructured.Unstructured
	// Old is what is stored now, revealed; nil for opCreate. It must not be
	// changed.
	Old *unstructured.Unstructured
	// Gone says, for opDelete, that the object leaves the store in this very
	// write. A DELETE of an object with finalizers is asked with Gone false;
	// the write that removes the last finalizer is asked as opUpdate and then
	// as opDelete with Gone true.
	Gone bool

	// Force says, for opDelete, that the object goes whatever hangs on it.
	Force bool

	// Secrets receives values to seal (or to forget) in the transaction that
	// stores the object.
	Secrets *[]state.SecretWrite
	// Warnings receives texts for Warning headers.
	Warnings *[]string
}

// writeOptions are the options of a write inside the process. The zero value
// is a plain write of the preferred version by "limpet".
type writeOptions struct {
	Version     string // served version of the object; "" = the preferred one
	Subresource string // "" or "status"
	Manager     string // field manager; "" = "limpet"
	Force       bool   // of an apply patch: take fields from other managers; of a deletion: whatever hangs on it
	DryRun      bool
	Validation  string    // fieldValidation: "Strict", "Warn", "Ignore"; "" = "Ignore"
	Warnings    *[]string // receives texts for Warning headers; nil = dropped
}

// requestInfo is the meaning of a request's path.
type requestInfo struct {
	Kind        api.Kind
	Version     string
	Namespace   string // "" = all namespaces
	Name        string // "" = the collection
	Subresource string
	Rest        []string // path segments below the subresource
}

// A folder in which something is may not be deleted: what it holds would be nowhere.
// Source: Grafana's folder API, which refuses it in these words, without the names,
// and gives way to a grace period of 0 (kubectl delete --force).

// mostNamed is how many objects a refusal names, and scanned how many are read at a time
// to find them.
const (
	mostNamed = 5
	scanned   = 200
)

func isFolder(k api.Kind) bool { return k.Group == api.FolderGroup && k.Kind == "Folder" }

// inFolders reports that objects of a kind lie in folders.
func inFolders(k api.Kind) bool { return isFolder(k) || k.Group == api.DashboardGroup }

// checkEmpty refuses the deletion of a folder that is not empty.
func (s *Server) checkEmpty(ctx context.Context, r *admitRequest) error {
	if !isFolder(r.Kind) || r.Force {
		return nil
	}
	var in []string
	for _, k := range api.Kinds {
		if !inFolders(k) || len(in) > mostNamed {
			continue
		}
		found, err := s.inFolder(ctx, k, r.Namespace, r.Name, mostNamed+1-len(in))
		if err != nil {
			return err
		}
		in = append(in, found...)
	}
	if len(in) == 0 {
		return nil
	}
	more := ""
	if len(in) > mostNamed {
		in, more = in[:mostNamed], " and others"
	}
	return apierrors.NewBadRequest(fmt.Sprintf("Folder cannot be deleted: folder is not empty: %s%s in it", strings.Join(in, ", "), more))
}

// inFolder names up to most objects of one kind that lie in a folder.
func (s *Server) inFolder(ctx context.Context, k api.Kind, namespace, folder string, most int) (names []string, err error) {
	q := state.ObjectQuery{Resource: resourceName(k), Namespace: namespace, Limit: scanned}
	for {
		page, err := s.store.Objects(ctx, q)
		if err != nil {
			return nil, s.asStatus(ctx, err)
		}
		for _, item := range page.Items {
			// The name of a folder has no character that JSON escapes.
			if at := find(item.Data, "metadata", "annotations", api.AnnoFolder); at.found() && string(at.of(item.Data)) == `"`+folder+`"` {
				names = append(names, strings.ToLower(k.Kind)+"/"+item.Key.Name)
				if len(names) == most {
					return names, nil
				}
			}
		}
		if page.Next == "" {
			return names, nil
		}
		q.After = page.Next
	}
}
