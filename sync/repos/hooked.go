package repos

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"

	"limpet/state"
)

// A webhook is where the repository was when it was made, and the status does not
// say where that is. So it is kept what the webhook that the status names was made
// for, once its host has it: a Repository that moves is owed another one until that
// is there, also when the agent ends between the two. What is not known is looked at.

// HookedKey is where that is kept among the facts of the state file.
func HookedKey(k Key) string { return "hooked/" + k.Namespace + "/" + k.Name }

// hookedFor is what the webhook with an id is for at the Repository as it is: a sum,
// because a URL may hold what is not for the state file.
func (r *reconciling) hookedFor(id string) string {
	url := ""
	if b := r.facts.repo.Spec.Block(); b != nil {
		url = b.URL
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(r.obj.GetUID()), url, id}, "\n")))
	return string(sum[:])
}

// hookMoved says that the webhook which the status names is not known to be for the
// Repository as it is.
func (r *reconciling) hookMoved(ctx context.Context) bool {
	id := hookID(r.facts.repo.Status.Webhook)
	if id == "" || r.hookURL == "" {
		return false
	}
	if r.note.hooked == "" {
		kept, err := r.o.Hooks.Store.Fact(ctx, HookedKey(r.key))
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			r.log.Warn("cannot read what a webhook was made for", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
			return false
		}
		r.note.hooked = string(kept)
	}
	return r.note.hooked != r.hookedFor(id)
}

// keepHooked notes that the webhook with an id is for the Repository as it is.
func (r *reconciling) keepHooked(ctx context.Context, id string) error {
	is := r.hookedFor(id)
	if r.note.hooked == is {
		return nil
	}
	if err := r.o.Hooks.Store.PutFact(ctx, HookedKey(r.key), []byte(is)); err != nil {
		return err
	}
	r.note.hooked = is
	return nil
}
