package apiserver

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

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
