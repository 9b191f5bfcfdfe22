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

// Every write reads the object, plans the change, and stores it only if the
// object has not changed since (optimistic concurrency). The planning is the
// expensive part and runs in the caller's goroutine; the writer of the state file
// compares a revision and copies bytes.

// target identifies the object of a write, which a create is going to make.
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

// plan is the decision about a write.
type plan struct {
	object  *unstructured.Unstructured // to store, or (with remove and keep) to return
	remove  bool
	keep    bool // nothing to store
	secrets []state.SecretWrite
}

// errChanged means that the object has changed since it was read.
var errChanged = errors.New("object changed since it was read")

// change reads the object, calls decide for a plan and carries it out. It retries
// when the object has changed in between. It returns the stored form of the
// object after the write: for a removal and a dry run, the plan's object.
func (s *Server) change(ctx context.Context, t target, dryRun bool, decide func(cur found) (plan, error)) ([]byte, error) {
	defer s.serializeWrites(t)()
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
		if !errors.Is(err, errChanged) {
			return out, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// create is change for an object that is expected to be absent, without the read.
// It returns exists when the object is present.
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
	if errors.Is(err, errChanged) {
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

// carryOut stores a plan if the object is still cur, else it returns errChanged.
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
			return encodeObject(p.object.Object) // without the empty resourceVersion
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

// mutate stores a mutation if the object is still cur, else it returns errChanged. The
// resourceVersion of the write replaces the one in the data. It returns the stored
// form after the write.
func (s *Server) mutate(ctx context.Context, t target, cur found, m state.Mutation) ([]byte, error) {
	place := none
	if m.Data != nil {
		place = find(m.Data, "metadata", "resourceVersion")
	}
	out, err := s.store.Mutate(ctx, objectKey(t.kind, t.namespace, t.name), func(now *state.Object, rev uint64) (state.Mutation, error) {
		if (now == nil) != (cur.stored == nil) || now != nil && now.Revision != cur.rev {
			return state.Mutation{}, errChanged
		}
		m := m
		if m.Data != nil {
			m.Data = splice(m.Data, place, strconv.AppendQuote(nil, formatRevision(rev)))
		}
		return m, nil
	})
	if err != nil {
		if errors.Is(err, errChanged) {
			return nil, err
		}
		return nil, fmt.Errorf("write %s %s/%s: %w", t.kind.Plural, t.namespace, t.name, err)
	}
	return out.Data, nil
}

// storedForm encodes an object as it is stored. An object without
// resourceVersion gets an empty one, which the revision replaces.
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
