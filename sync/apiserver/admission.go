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

// Admission runs in this order: defaults, rules of the object, rules between
// objects, sealing of secrets. The rules need the values that were sent, and
// nothing after them may see those values.

// admit validates a write and completes it with defaults and sealed values. The
// error is an *apierrors.StatusError.
func (s *Server) admit(r *admitRequest) error {
	ctx := context.Background() // the decision does not depend on the client's connection
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
		return s.admitStatusValues(ctx, r)
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
		// Old is revealed: the comparison must come before the sealing.
		settle(r)
		return internal(s.sealData(ctx, r))
	}
	if err := s.sealInline(ctx, r); err != nil {
		return internal(err)
	}
	settle(r)
	return nil
}

// settle decides again, now with defaults and seals in place, whether the write
// changes anything. Applying the same file twice must not count as a change.
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
	errs = append(errs, admission.CheckQuota(r.Object, r.Old, siblings, s.maxRepositories)...)
	if len(errs) > 0 {
		return invalid(r.Kind, r.Name, errs)
	}
	for _, text := range admission.Warnings(r.Object, nil) {
		r.warn(text)
	}
	return nil
}

// siblings returns the objects of the namespace, if a rule for this one depends
// on them.
func (s *Server) siblings(ctx context.Context, r *admitRequest) ([]*unstructured.Unstructured, error) {
	if !admission.NeedsSiblings(r.Object, r.Old) && !admission.NeedsCount(r.Object, r.Old, s.maxRepositories) {
		return nil, nil
	}
	return s.listObjects(ctx, r.Kind, r.Namespace, labels.Everything())
}

// serializeWrites serializes the writes of a kind that has rules between its objects: two
// concurrent writes could each be valid and break a rule together. The caller
// calls done when the write is stored. Writes of the status are not serialized,
// because no rule covers it.
func (s *Server) serializeWrites(t target) (done func()) {
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

// internal converts any error to a Status.
func internal(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// The core (verbs, storage, watches, patches) implements Kubernetes and has no
// knowledge of Grafana. The rules of our own kinds are in three functions:
//
//	admit            before an object is stored or removed     admission.go
//	reveal           before a stored object is sent            secure.go
//	serveSubresource routes below one object                   jobsubresource.go
//
// They read objects by the functions in kinds.go and respond by those in
// answer.go. admit may call getObject and listObjects only.

// Operations of an admitRequest.
const (
	opCreate = "CREATE"
	opUpdate = "UPDATE"
	opDelete = "DELETE"
)

// admitRequest is one write before it is stored.
//
// The core calls admit outside of any transaction and writes only if the object
// has not changed in between; otherwise it calls admit again with the newer Old.
// So admit may read other objects of the server, must not write any, and must
// not keep results outside of the request.
//
// kubectl copies an applied file into the annotation
// kubectl.kubernetes.io/last-applied-configuration; admit removes the annotation
// when it holds a secret value.
type admitRequest struct {
	Kind        api.Kind
	Subresource string // "" or "status"
	Operation   string // opCreate, opUpdate (also patches and apply), opDelete
	Namespace   string
	Name        string

	// Object will be stored, in the version of the request; admit may change all
	// but its identity. It is nil for opDelete.
	Object *unstructured.Unstructured
	// Old is the stored object, revealed; nil for opCreate. It is read-only.
	Old *unstructured.Unstructured
	// Gone reports, for opDelete, whether this write removes the object from the
	// store. A DELETE of an object with finalizers has Gone false; the write that
	// removes the last finalizer is admitted as opUpdate and then as opDelete
	// with Gone true.
	Gone bool

	// Force deletes an object, for opDelete, although others depend on it.
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
	Force       bool   // apply patch: take fields from other managers; deletion: ignore dependents
	DryRun      bool
	Validation  string    // fieldValidation: "Strict", "Warn", "Ignore"; "" = "Ignore"
	Warnings    *[]string // receives texts for Warning headers; nil = dropped
}

// requestInfo is the parsed path of a request.
type requestInfo struct {
	Kind        api.Kind
	Version     string
	Namespace   string // "" = all namespaces
	Name        string // "" = the collection
	Subresource string
	Rest        []string // path segments below the subresource
}

// A folder that is not empty cannot be deleted: its content would have no parent.
// Source: Grafana's folder API, which returns this error without the names and
// deletes such a folder for a grace period of 0 (kubectl delete --force).

// maxNamed is the number of objects that the error names, and scanned the number of
// objects that are read at a time.
const (
	maxNamed = 5
	scanned  = 200
)

func isFolder(k api.Kind) bool { return k.Group == api.FolderGroup && k.Kind == "Folder" }

// inFolders reports whether objects of a kind lie in folders.
func inFolders(k api.Kind) bool { return isFolder(k) || k.Group == api.DashboardGroup }

// checkEmpty returns an error for the deletion of a folder that is not empty.
func (s *Server) checkEmpty(ctx context.Context, r *admitRequest) error {
	if !isFolder(r.Kind) || r.Force {
		return nil
	}
	var in []string
	for _, k := range api.Kinds {
		if !inFolders(k) || len(in) > maxNamed {
			continue
		}
		found, err := s.inFolder(ctx, k, r.Namespace, r.Name, maxNamed+1-len(in))
		if err != nil {
			return err
		}
		in = append(in, found...)
	}
	if len(in) == 0 {
		return nil
	}
	more := ""
	if len(in) > maxNamed {
		in, more = in[:maxNamed], " and others"
	}
	return apierrors.NewBadRequest(fmt.Sprintf("Folder cannot be deleted: folder is not empty: %s%s in it", strings.Join(in, ", "), more))
}

// inFolder returns the names of up to most objects of one kind in a folder.
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
