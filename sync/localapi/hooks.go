package localapi

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// The seam of this package. The core (verbs, storage, watches, patches) knows
// Kubernetes and nothing of Grafana; what our own kinds add is asked here:
//
//	admit            before an object is stored or removed     admission.go
//	reveal           before a sealed object is answered        secure.go
//	serveSubresource routes below one object                   jobsubresource.go
//
// and those files reach the objects of the server through getObject,
// listObjects, createObject, updateObject, patchObject and deleteObject
// (objects.go), and answer through answerObject, answerList, answerJSON and
// answerError (answer.go):
//
//	kindOf(group, plural string) (api.Kind, bool)
//	(s *Server) getObject(ctx, k api.Kind, namespace, name string) (*unstructured.Unstructured, error)
//	(s *Server) listObjects(ctx, k api.Kind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error)
//	(s *Server) createObject(ctx, k api.Kind, obj *unstructured.Unstructured, o writeOptions) (*unstructured.Unstructured, error)
//	(s *Server) updateObject(ctx, k api.Kind, obj *unstructured.Unstructured, o writeOptions) (*unstructured.Unstructured, error)
//	(s *Server) patchObject(ctx, k api.Kind, namespace, name string, t types.PatchType, patch []byte, o writeOptions) (*unstructured.Unstructured, error)
//	(s *Server) deleteObject(ctx, k api.Kind, namespace, name string, o metav1.DeleteOptions) error
//	(s *Server) answerObject(w, req, code int, k api.Kind, version string, obj *unstructured.Unstructured)
//	(s *Server) answerList(w, req, k api.Kind, version string, items []*unstructured.Unstructured)
//	(s *Server) answerJSON(w, req, code int, v any)
//	(s *Server) answerError(w, req, err error)       any error; an *apierrors.StatusError as it is, others as 500
//	(s *Server) readBody(w, req) ([]byte, error)     at most 3 MiB, else 413
//	invalid(k api.Kind, name string, errs field.ErrorList) error   422 with causes; nil for no errors
//
// All objects that these take and give carry apiVersion, kind and (given)
// resourceVersion; errors are *apierrors.StatusError. None of them may be
// called from admit, but getObject and listObjects.
//
// The three that are asked:
//
//	(s *Server) admit(r *admitRequest) error
//	(s *Server) reveal(ctx, k api.Kind, stored []byte) ([]byte, error)
//	(s *Server) serveSubresource(w, req, k api.Kind, namespace, name, sub string, rest []string) bool
//
// reveal turns the stored JSON of one object into the JSON that clients see. It
// is called for every object that is read (also before patches and admission,
// so Old is always revealed) and must cost nothing for kinds that seal nothing.

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
	Version     string // served version of the request; Object carries its apiVersion
	Subresource string // "" or "status"
	Operation   string // opCreate, opUpdate (also patches and apply), opDelete
	Namespace   string
	Name        string
	User        Identity

	// Object is what will be stored; admit may change all but its identity.
	// It is nil for opDelete.
	Object *unstructured.Unstructured
	// Old is what is stored now; nil for opCreate. It must not be changed.
	Old *unstructured.Unstructured
	// Sent is the object as the client wants it, before the core put back what
	// the endpoint does not write (spec and secure in a request to "status").
	// It is nil for opDelete and must not be changed.
	Sent *unstructured.Unstructured
	// Gone says, for opDelete, that the object leaves the store in this very
	// write. A DELETE of an object with finalizers is asked with Gone false;
	// the write that removes the last finalizer is asked as opUpdate and then
	// as opDelete with Gone true.
	Gone bool
	// DryRun says that nothing will be stored.
	DryRun bool

	// Secrets receives values to seal (or to forget) in the transaction that
	// stores the object.
	Secrets *[]state.SecretWrite
	// Warnings receives texts for Warning headers.
	Warnings *[]string
}

// Identity is who sent a request.
type Identity struct {
	Name string // "" = anonymous
}

// Authenticator decides who may enter. A refusal is an *apierrors.StatusError
// (401 or 403), which is answered as it is.
type Authenticator interface {
	Authenticate(req *http.Request) (Identity, error)
}

// writeOptions are the options of a write inside the process. The zero value
// is a plain write of the preferred version by "limpet".
type writeOptions struct {
	Version     string // served version of the object; "" = the preferred one
	Subresource string // "" or "status"
	Manager     string // field manager; "" = "limpet"
	Force       bool   // of an apply patch: take fields from other managers
	DryRun      bool
	Validation  string // fieldValidation: "Strict", "Warn", "Ignore"; "" = "Ignore"
	User        Identity
	Warnings    *[]string // receives texts for Warning headers; nil = dropped
}

// requestOf answers what the router knows of a request that it handed to
// serveSubresource.
func requestOf(ctx context.Context) requestInfo {
	info, _ := ctx.Value(requestKey{}).(requestInfo)
	return info
}

type requestKey struct{}

// requestInfo is the meaning of a request's path.
type requestInfo struct {
	Kind        api.Kind
	Version     string
	Namespace   string // "" = all namespaces
	Name        string // "" = the collection
	Subresource string
	Rest        []string // path segments below the subresource
	User        Identity
}
