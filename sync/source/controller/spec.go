package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/source/artifact"
)

// Decode reads the spec of an object into the struct of its kind.
func Decode(obj *unstructured.Unstructured, spec any) error {
	body, err := json.Marshal(obj.Object["spec"])
	if err == nil {
		err = json.Unmarshal(body, spec)
	}
	return err
}

// Checksum hashes all that an artifact is made of besides its revision: plain values.
func Checksum(parts ...any) string {
	body, _ := json.Marshal(parts)
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Plain is the part of an Upstream whose artifact is made of it and its spec alone: without
// signatures, and without fields of the status.
type Plain struct{}

// Require finds nothing.
func (Plain) Require(context.Context) error { return nil }

// Signatures returns that none are demanded.
func (Plain) Signatures() (demanded bool, verified string) { return false, "" }

// Outdated says nothing.
func (Plain) Outdated() (reason, message string) { return "", "" }

// Fields returns none.
func (Plain) Fields(func(artifact.Artifact) map[string]any) map[string]any { return nil }
