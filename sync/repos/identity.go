package repos

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// factsTimeout bounds the question to a host about one repository.
const factsTimeout = 20 * time.Second

// complete fills into the spec what a person may leave out and the host knows: the
// branch, and on github.com the number of the repository, which stays when it is
// renamed. Only the branch must be had.
func (r *reconciling) complete(ctx context.Context, found finding) error {
	block := "/spec/" + r.facts.repo.Spec.Type
	var ops []op
	if branch := r.probe.defaultBranch(); branch != "" {
		ops = append(ops, op{"add", block + "/branch", branch})
	}
	must, url := len(ops) > 0, ""
	if found.ok() {
		var id int64
		if id, url = r.identify(ctx); id != 0 {
			// The number is that of this URL and of no other.
			ops = append(ops, op{"test", block + "/url", url}, op{"add", block + "/repoID", id})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	dealt := !r.facts.specChanged()
	now, err := r.server.patch(ctx, r.key, false, append(guard(r.obj, "spec"), ops...))
	switch {
	case err != nil && (must || ctx.Err() != nil || errors.Is(err, errMoved)):
		r.o.Meter.Failed(phaseBranch, false)
		return err
	case err != nil:
		r.note.factsAfter = r.facts.now.Add(refusedCooldown)
		r.log.Debug("the number of the repository is not written", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		return nil
	}
	r.wrote(now)
	r.settle(now, dealt)
	if url != "" {
		r.note.identified = url
	}
	return nil
}

// identify asks the host for the number of the repository, once for each URL. 0 is
// for nothing to write.
func (r *reconciling) identify(ctx context.Context) (id int64, url string) {
	block := r.facts.repo.Spec.Block()
	if r.o.Facts == nil || r.probe.mirrored() || r.facts.repo.Spec.Type != "github" || block == nil || r.facts.now.Before(r.note.factsAfter) {
		return 0, ""
	}
	has, there, _ := unstructured.NestedFieldNoCopy(r.obj.Object, "spec", "github", "repoID")
	if there && has != nil && (r.note.identified == "" || r.note.identified == block.URL) {
		r.note.identified = block.URL
		return 0, ""
	}
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	facts, err := r.o.Facts(ctx, r.obj, r.probe.remote.Creds)
	if err != nil || facts.ID == 0 {
		r.note.factsAfter = r.facts.now.Add(refusedCooldown)
		r.log.Debug("the host does not tell the number of the repository", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		return 0, ""
	}
	if has == facts.ID {
		r.note.identified = block.URL
		return 0, ""
	}
	return facts.ID, block.URL
}
