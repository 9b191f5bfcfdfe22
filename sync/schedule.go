package sync

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/repos"
	"limpet/sync/view"
)

type object = unstructured.Unstructured

// scheduleTick is how often the schedule looks whether a pull is due. It only
// reads the cache, so an idle tick costs microseconds.
const scheduleTick = time.Second

// schedule asks for the pulls that are due, until ctx ends. It runs beside the
// embedded API alone: every other server has controllers of its own for that.
func (a *Agent) schedule(ctx context.Context) error {
	tick := time.NewTicker(scheduleTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if a.jobs.HasSynced() && a.repos.HasSynced() {
				a.scheduleOnce(ctx, time.Now())
			}
		}
	}
}

func (a *Agent) scheduleOnce(ctx context.Context, now time.Time) {
	live := a.syncJobs()
	for _, u := range a.repos.List() {
		repo, err := api.RepositoryView(u)
		if err != nil || u.GetDeletionTimestamp() != nil {
			continue
		}
		req, _ := repos.Due(repo, u.GetGeneration(), live[u.GetNamespace()+"/"+u.GetName()], now)
		if req == nil {
			continue
		}
		if err := a.requestPull(ctx, u, *req); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			a.log.Warn("cannot ask for a pull", "repo", u.GetName(), "namespace", u.GetNamespace(), "err", err)
		}
	}
}

// syncJobs tells which repositories have a sync job already.
func (a *Agent) syncJobs() map[string]bool {
	live := map[string]bool{}
	for _, u := range a.jobs.List() {
		if job, err := api.JobView(u); err == nil && u.GetName() == api.JobName(job.Spec.Repository, "pull") {
			live[u.GetNamespace()+"/"+job.Spec.Repository] = true
		}
	}
	return live
}

func (a *Agent) requestPull(ctx context.Context, u *object, req repos.Request) error {
	body, err := json.Marshal(map[string]any{"action": "pull", "pull": map[string]any{"incremental": req.Incremental}})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/jobs", api.ProvisioningGroup, api.Jobs.Version, u.GetNamespace(), u.GetName())
	if _, _, err := a.client.Do(ctx, http.MethodPost, path, nil, "application/json", body); err != nil {
		return err
	}
	a.board.note(view.Event{At: time.Now(), Level: "info", Repo: u.GetName(), Text: "pull queued: " + req.Reason})
	return nil
}
