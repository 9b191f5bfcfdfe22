package apiserver

import (
	"bytes"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
)

// unrelated are the kinds that neither own nor are owned. They are many, and their names come and
// go; a deletion that read all of them would cost too much. A Job is owned only.
var unrelated = []string{"HistoricJob", "Event", "Lease"}

// dependents returns the changes that the plan brings to the objects whose metadata.ownerReferences
// name its object: the removal of the object deletes those without another owner, and a deletion
// that orphans takes the reference from all. They are part of the transaction, so nothing is left
// behind at a loss of power. What admission keeps, such as a Connection in use, stays.
func (s *Server) dependents(ctx context.Context, p *plan) (out []state.Change, err error) {
	if p.target.kind.Provisioned() || p.target.kind.Kind == "Job" || slices.Contains(unrelated, p.target.kind.Kind) || !p.remove && !p.options.orphan {
		return nil, nil
	}
	uid := p.old.GetUID()
	owner := func(r metav1.OwnerReference) bool { return r.UID == uid }
	for _, k := range api.Kinds {
		if k.Provisioned() || slices.Contains(unrelated, k.Kind) {
			continue
		}
		page, err := s.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(k), Namespace: p.target.namespace})
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			if !bytes.Contains(item.Data, []byte(uid)) {
				continue
			}
			object, err := decodeObject(item.Data)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(object.GetOwnerReferences(), owner) {
				continue
			}
			t := target{kind: k, version: k.Versions[0], namespace: item.Key.Namespace, name: item.Key.Name}
			d := &plan{target: t, old: object, object: object.DeepCopy()}
			if rest := slices.DeleteFunc(object.GetOwnerReferences(), owner); p.options.orphan || len(rest) > 0 {
				if d.object.SetOwnerReferences(nil); len(rest) > 0 {
					d.object.SetOwnerReferences(rest)
				}
			} else if d.end(); d.keep || s.admitRemoval(d) != nil {
				continue
			}
			data, err := d.storedForm()
			if err != nil {
				return nil, err
			}
			m := state.Mutation{Delete: d.remove, Secrets: d.secrets}
			out = append(out, mutation(d.target.key(), m, data, found{stored: item.Data, rev: item.Revision}))
		}
	}
	return out, nil
}
