package sync

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/repos"
	"limpet/sync/view"
)

type object = unstructured.Unstructured

const (
	// scheduleTick is how often the schedule looks whether a pull is due. It
	// only reads the cache, so an idle tick costs microseconds.
	scheduleTick = time.Second
	// requestTimeout bounds one request with all its repeats, so that one
	// repository cannot hold up the others.
	requestTimeout = 5 * time.Second
)

// schedule asks for the pulls that are due, until ctx ends. It runs beside the
// embedded API alone: every other server has controllers of its own for that.
// A repository that is new, or whose spec has changed, does not wait for the
// tick.
func (a *Agent) schedule(ctx context.Context) error {
	tick := time.NewTicker(scheduleTick)
	defer tick.Stop()
	t := newTimetable()
	if info, err := a.cfg.Store.Info(ctx); err == nil {
		t.made = info.Created
	}
	for {
		if a.synced() {
			a.scheduleOnce(ctx, time.Now(), t)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.wanted:
		}
	}
}

// want wakes the schedule. It never blocks.
func (a *Agent) want() {
	select {
	case a.wanted <- struct{}{}:
	default:
	}
}

// timetable is what the schedule remembers of repositories, by UID, from one look
// to the next.
type timetable struct {
	repos *shelf[*api.Repository]
	// refused says until when a repository is let alone.
	refused map[types.UID]time.Time
	// looked is the generation that was noted in the status of a repository,
	// which the cache may not show yet.
	looked map[types.UID]int64
	// made is when the state file was made that holds the objects, and whole the
	// repositories that were pulled whole since this process runs: the clock may
	// have been wrong then.
	made  time.Time
	whole map[types.UID]bool
}

func newTimetable() *timetable {
	return &timetable{newShelf[*api.Repository](), map[types.UID]time.Time{}, map[types.UID]int64{}, time.Time{}, map[types.UID]bool{}}
}

// scheduleOnce asks for the pulls that are due at now. A repository whose pull
// could not be queued is let alone for the resync interval: what is in the way,
// such as a full disk, does not go in a second.
func (a *Agent) scheduleOnce(ctx context.Context, now time.Time, t *timetable) {
	objects := a.repos.Sights()
	for _, seen := range objects {
		u := seen.Object()
		key := u.GetUID()
		repo := t.repos.of(seen, readRepo)
		if repo == nil || u.GetDeletionTimestamp() != nil || now.Before(t.refused[key]) {
			continue
		}
		delete(t.refused, key)
		since := t.made
		if t.whole[key] {
			since = time.Time{}
		}
		req, _ := repos.Due(*repo, u.GetGeneration(), a.hasSync(u), since, now)
		if req == nil || !req.Incremental && t.whole[key] && t.looked[key] == u.GetGeneration() && repo.Status.Sync.Finished > 0 {
			continue
		}
		err := a.requestPull(ctx, u, *req)
		if err == nil && !req.Incremental {
			if err = a.look(ctx, u); err == nil {
				t.looked[key], t.whole[key] = u.GetGeneration(), true
			}
		}
		if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			continue
		}
		t.refused[key] = now.Add(a.cfg.Resync)
		a.log.Warn("cannot ask for a pull", "repo", u.GetName(), "namespace", u.GetNamespace(), "err", err, "next_try_in", a.cfg.Resync)
	}
	t.repos.end(len(objects))
	t.forget(objects)
}

// forget drops what is remembered of repositories that are gone, once it is more
// than there are repositories.
func (t *timetable) forget(objects []api.Sight) {
	if max(len(t.refused), len(t.whole)) <= len(objects) { // looked has what whole has
		return
	}
	there := make(map[types.UID]bool, len(objects))
	for _, seen := range objects {
		there[types.UID(seen.UID())] = true
	}
	gone := func(uid types.UID) bool { return !there[uid] }
	maps.DeleteFunc(t.refused, func(uid types.UID, _ time.Time) bool { return gone(uid) })
	maps.DeleteFunc(t.looked, func(uid types.UID, _ int64) bool { return gone(uid) })
	maps.DeleteFunc(t.whole, func(uid types.UID, _ bool) bool { return gone(uid) })
}

// look notes in a Repository that its spec has been looked at, as the controller
// of other servers does. A look that is lost costs one more full pull.
func (a *Agent) look(ctx context.Context, u *object) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID()}, "status": map[string]any{"observedGeneration": u.GetGeneration()}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/status", api.ProvisioningGroup, api.Repositories.Version, u.GetNamespace(), u.GetName())
	_, _, err = a.client.Do(ctx, http.MethodPatch, path, nil, "application/merge-patch+json", body)
	return err
}

// hasSync says whether a repository has a sync job already. The schedule and
// people make it under the same name.
func (a *Agent) hasSync(repo *object) bool {
	job, ok := a.jobs.Sight(repo.GetNamespace(), api.JobName(repo.GetName(), "pull"))
	return ok && job.Text(pathRepository) == repo.GetName()
}

func (a *Agent) requestPull(ctx context.Context, u *object, req repos.Request) error {
	body, err := json.Marshal(map[string]any{"action": "pull", "pull": map[string]any{"incremental": req.Incremental}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/jobs", api.ProvisioningGroup, api.Jobs.Version, u.GetNamespace(), u.GetName())
	if _, _, err := a.client.Do(ctx, http.MethodPost, path, nil, "application/json", body); err != nil {
		return err
	}
	a.board.note(view.Event{At: time.Now(), Level: "info", Repo: u.GetName(), Text: "pull queued: " + req.Reason})
	return nil
}
