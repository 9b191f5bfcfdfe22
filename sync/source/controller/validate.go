package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/source/artifact"
)

// validate reads the spec, with the rules of Flux's CRD: objects may be older than the rules of the
// API. Then it declares what the source uses, before any of that is read.
func (c *Controller) validate(_ context.Context, a *attempt) (done bool, err error) {
	if m := a.memory; m.generation != a.obj.GetGeneration() {
		m.generation = a.obj.GetGeneration()
		m.common, m.spec, m.invalid = c.read(a.obj)
	}
	a.links = api.Annotation(a.obj, api.AnnoKeepSymlinks) == "true"
	if a.memory.invalid != nil {
		c.o.References.Use(c.ref(a.key))
		return true, a.memory.invalid
	}
	a.common, a.spec = a.memory.common, a.memory.spec
	c.o.References.Use(c.ref(a.key), a.spec.Uses()...)
	return false, nil
}

// reasonSpec is limpet's own, for a spec that the CRD of Flux would have refused.
const reasonSpec = "InvalidSpec"

// read returns the spec of a source. An error is a *Failure that ends with a change of the spec.
func (c *Controller) read(obj *unstructured.Unstructured) (common, Spec, error) {
	refused := func(reason string, err error) (common, Spec, error) {
		return common{}, nil, &Failure{Condition: FetchFailed, Reason: reason, Err: err, Stalled: true}
	}
	spec, err := c.o.Kind.Read(obj)
	if f, ok := errors.AsType[*Failure](err); ok && f.Reason != "" {
		return common{}, nil, err
	}
	errs := slices.DeleteFunc(admission.Check(obj, nil), func(e *field.Error) bool { return !strings.HasPrefix(e.Field, "spec") })
	if len(errs) > 0 {
		if strings.HasPrefix(errs[0].Field, "spec.url") {
			return refused(auth.ReasonURL, errs.ToAggregate())
		}
		return refused(reasonSpec, errs.ToAggregate())
	}
	if err != nil {
		return refused(reasonSpec, err)
	}
	var out common
	for field, to := range map[string]*time.Duration{"interval": &out.interval, "timeout": &out.timeout} {
		value, _, _ := unstructured.NestedString(obj.Object, "spec", field)
		if value == "" {
			continue
		}
		if *to, err = time.ParseDuration(value); err == nil && *to <= 0 {
			err = errors.New("spec." + field + " is not more than 0")
		}
		if err != nil {
			return refused(reasonSpec, err)
		}
	}
	out.interval, out.timeout = cmp.Or(out.interval, defaultInterval), cmp.Or(out.timeout, defaultTimeout)
	return out, spec, nil
}

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
