package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// Every write reads the object, decides what is to become of it, and stores the
// decision only if the object is still the one that was read. The deciding, which
// is the expensive part, runs in the caller's goroutine; the writer of the state
// file compares a number and copies bytes.

// target is one object, or the one that a create is going to make.
type target struct {
	kind        api.Kind
	version     string
	namespace   string
	name        string
	subresource string
}

func (t target) apiVersion() string { return apiVersionOf(t.kind, t.version) }

// found is an object as it was read.
type found struct {
	object *unstructured.Unstructured // revealed, in the version of the target; nil = absent
	stored []byte
	rev    uint64
}

// plan is what is to become of an object.
type plan struct {
	object  *unstructured.Unstructured // to store, or (with remove and keep) to answer
	remove  bool
	keep    bool // nothing to store
	secrets []state.SecretWrite
}

// errMoved reports that the object changed since it was read.
var errMoved = errors.New("object changed since it was read")

// change reads the object, lets decide make a plan and carries it out; when
// somebody else was faster it begins again. It answers the object afterwards in
// stored form: for a removal and a dry run, the plan's object.
func (s *Server) change(ctx context.Context, t target, dryRun bool, decide func(cur found) (plan, error)) ([]byte, error) {
	defer s.alone(t)()
	for {
		cur, err := s.read(ctx, t)
		if err != nil {
			return nil, err
		}
		p, err := decide(cur)
		if err != nil {
			return nil, err
		}
		out, err := s.carryOut(ctx, t, cur, p, dryRun)
		if !errors.Is(err, errMoved) {
			return out, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// create is change for an object that is expected to be absent: it does not read
// it first. exists is answered when it is there.
func (s *Server) create(ctx context.Context, t target, p plan, dryRun bool, exists error) ([]byte, error) {
	if dryRun {
		switch _, err := s.store.Object(ctx, objectKey(t.kind, t.namespace, t.name)); {
		case err == nil:
			return nil, exists
		case !errors.Is(err, state.ErrNotFound):
			return nil, err
		}
	}
	out, err := s.carryOut(ctx, t, found{}, p, dryRun)
	if errors.Is(err, errMoved) {
		return nil, exists
	}
	return out, err
}

// read returns the object, revealed and in the version of the target.
func (s *Server) read(ctx context.Context, t target) (found, error) {
	o, err := s.store.Object(ctx, objectKey(t.kind, t.namespace, t.name))
	if errors.Is(err, state.ErrNotFound) {
		return found{}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("read %s %s/%s: %w", t.kind.Plural, t.namespace, t.name, err)
	}
	data, err := s.reveal(ctx, t.kind, o.Data)
	if err != nil {
		return found{}, err
	}
	object, err := decodeObject(data)
	if err != nil {
		return found{}, err
	}
	object.SetAPIVersion(t.apiVersion())
	return found{object: object, stored: o.Data, rev: o.Revision}, nil
}

// carryOut stores a plan if the object is still cur, else it returns errMoved.
func (s *Server) carryOut(ctx context.Context, t target, cur found, p plan, dryRun bool) ([]byte, error) {
	data, err := storedForm(t.kind, p.object)
	if err != nil {
		return nil, err
	}
	keep := p.keep || !p.remove && cur.stored != nil && bytes.Equal(data, cur.stored)
	if dryRun || keep && len(p.secrets) == 0 {
		if keep {
			return cur.stored, nil
		}
		if p.object.GetResourceVersion() == "" {
			return encodeObject(p.object.Object) // it has none, not an empty one
		}
		return data, nil
	}
	m := state.Mutation{Delete: p.remove, Keep: keep, Secrets: p.secrets}
	if !p.remove && !keep {
		m.Data = data
	}
	out, err := s.mutate(ctx, t, cur, m)
	if err != nil {
		return nil, err
	}
	if p.remove {
		return data, nil
	}
	return out, nil
}

// mutate stores a mutation if the object is still cur, else it returns errMoved. Its
// data receive the resourceVersion of the write in the place of the one that they
// have. It answers the stored form afterwards.
func (s *Server) mutate(ctx context.Context, t target, cur found, m state.Mutation) ([]byte, error) {
	place := none
	if m.Data != nil {
		place = find(m.Data, "metadata", "resourceVersion")
	}
	out, err := s.store.Mutate(ctx, objectKey(t.kind, t.namespace, t.name), func(now *state.Object, rev uint64) (state.Mutation, error) {
		if (now == nil) != (cur.stored == nil) || now != nil && now.Revision != cur.rev {
			return state.Mutation{}, errMoved
		}
		m := m
		if m.Data != nil {
			m.Data = splice(m.Data, place, strconv.AppendQuote(nil, formatRevision(rev)))
		}
		return m, nil
	})
	if err != nil {
		if errors.Is(err, errMoved) {
			return nil, err
		}
		return nil, fmt.Errorf("write %s %s/%s: %w", t.kind.Plural, t.namespace, t.name, err)
	}
	return out.Data, nil
}

// storedForm writes an object as it is stored. An object without
// resourceVersion gets an empty one, whose place the revision takes.
func storedForm(k api.Kind, obj *unstructured.Unstructured) ([]byte, error) {
	object := maps.Clone(obj.Object)
	object["apiVersion"] = storedVersion(k)
	if obj.GetResourceVersion() == "" {
		meta, _ := object["metadata"].(map[string]any)
		withVersion := map[string]any{"resourceVersion": ""}
		maps.Copy(withVersion, meta)
		object["metadata"] = withVersion
	}
	return encodeObject(object)
}
