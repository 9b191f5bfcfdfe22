package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/text"
	"limpet/sync/worker/target"
)

// syncStatus writes the sync fields of one Repository's status, which a pull owns, by JSON Patch.
// Other fields have other owners and are never sent: a member that may be absent is written with
// "add", the conditions are guarded with "test", and a rejected patch is built again from the
// current object.
type syncStatus struct {
	client          *kube.Client
	namespace, name string

	// The Repository at the start of the pull.
	job          string
	started      int64 // milliseconds
	lastRef      string
	from         api.SyncSource
	stats        target.Counts
	maxResources int64
	object       *unstructured.Unstructured // as the last write left it
}

// endTime bounds the last write about a pull whose context has ended.
const endTime = 10 * time.Second

// patchTries is the maximum number of attempts of a patch.
const patchTries = 8

func (s *syncStatus) now() time.Time { return s.client.Now() }

// start marks the Repository as being synced by a job, and reads the state before the pull. repo is
// the last seen Repository.
func (s *syncStatus) start(ctx context.Context, repo *unstructured.Unstructured, job string) error {
	s.object, s.job, s.started = repo, job, s.now().UnixMilli()
	err := s.patch(ctx, func(repo *unstructured.Unstructured) []patch.Op {
		if _, there, _ := unstructured.NestedMap(repo.Object, "status", "sync"); there {
			return []patch.Op{
				patch.Add("/status/sync/state", api.StateWorking),
				patch.Add("/status/sync/job", job),
				patch.Add("/status/sync/started", s.started),
			}
		}
		return []patch.Op{patch.Add("/status/sync", map[string]any{
			"state": api.StateWorking, "job": job, "started": s.started, "message": []any{}})}
	})
	if err != nil {
		return err
	}
	return s.read()
}

// read takes the state before the pull from the object.
func (s *syncStatus) read() error {
	view, err := api.RepositoryView(s.object)
	if err != nil {
		return err
	}
	s.lastRef, s.from = view.Status.Sync.LastRef, view.Status.Sync.Source
	if len(view.Status.Stats) > 0 {
		s.stats = target.Counts{}
		for _, count := range view.Status.Stats {
			s.stats[schema.GroupResource{Group: count.Group, Resource: count.Resource}] += count.Count
		}
	}
	s.maxResources, _, _ = unstructured.NestedInt64(s.object.Object, "status", "quota", "maxResourcesPerRepository")
	return nil
}

// unfinished is the hash of the source of a target that may be between two commits. It differs from
// that of any pull, so that no later pull relies on the last commit until one has ended well.
const unfinished = "unfinished"

// writing records that the target will be written: the run may die, and its job be deleted. A first
// pull has no last commit to rely on.
func (s *syncStatus) writing(ctx context.Context) error {
	if s.lastRef == "" || s.from.Hash == unfinished {
		return nil
	}
	return s.patch(ctx, func(*unstructured.Unstructured) []patch.Op {
		return []patch.Op{patch.Add("/status/sync/source", api.SyncSource{Hash: unfinished})}
	})
}

// queued sets the sync state back to pending for a pull that will be retried. A failure leaves
// "working", which the next run replaces.
func (s *syncStatus) queued(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	_ = s.patch(ctx, func(*unstructured.Unstructured) []patch.Op {
		return []patch.Op{patch.Add("/status/sync/state", api.StatePending)}
	})
}

type syncEnd struct {
	outcome     jobs.Outcome
	ref         string // that was synced
	incremental bool
	stats       target.Counts  // nil = unknown
	leftOut     int64          // files and directories, for the quota
	verified    *api.Condition // nil = unchanged
	commit      api.Condition  // that the host refuses commit statuses; without a status = it does not
	sink        api.Condition  // zero = unchanged
	from        api.SyncSource
	partly      bool // it has failed among its writes
}

// end writes the result. It is written also when ctx has ended.
func (s *syncStatus) end(ctx context.Context, e syncEnd) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	ref, from := e.ref, e.from
	if e.outcome.State == api.StateError || ref == "" {
		ref, from = s.lastRef, s.from
	}
	if e.partly {
		from = api.SyncSource{}
	}
	if ref == s.lastRef && from.Hash == s.from.Hash { // the same pull again, which has deleted nothing
		from.AllowMassDelete = from.AllowMassDelete || s.from.AllowMassDelete
	}
	message := e.outcome.Errors
	if len(message) == 0 {
		message = append([]string{}, e.outcome.Warnings...) // a list, not null
	}
	sync := map[string]any{
		"state": e.outcome.State, "job": s.job, "started": s.started, "finished": max(s.now().UnixMilli(), s.started),
		"message": message, "incremental": e.incremental,
	}
	if ref != "" {
		sync["lastRef"] = ref
	}
	if from != (api.SyncSource{}) {
		sync["source"] = from
	}
	return s.patch(ctx, func(repo *unstructured.Unstructured) []patch.Op {
		ops := []patch.Op{patch.Add("/status/sync", sync)}
		now := e.stats
		if now != nil {
			ops = append(ops, patch.Add("/status/stats", statsOf(now)))
		} else {
			now = s.stats
		}
		wanted := []api.Condition{syncCondition(e), api.ResourceQuota(now.Total(), s.maxResources), e.sink, e.commit}
		if e.verified != nil {
			wanted = append(wanted, *e.verified)
		}
		if list, changed := api.SetConditions(repo, s.now(), wanted...); changed { // the list has other writers
			ops = append(ops, patch.Version(repo), patch.Add("/status/conditions", list))
		}
		return ops
	})
}

// patch sends the operations that build returns for the last seen object. When the server rejects
// them, it retries with the current object.
func (s *syncStatus) patch(ctx context.Context, build func(repo *unstructured.Unstructured) []patch.Op) error {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s", api.ProvisioningGroup, api.Repositories.Version, s.namespace, s.name)
	current := s.client.Resource(api.Repositories).Namespace(s.namespace)
	var err error
	for range patchTries {
		ops := build(s.object)
		if len(ops) == 0 {
			return nil
		}
		if _, there := s.object.Object["status"].(map[string]any); !there {
			// The test protects a status that another writer has added meanwhile.
			ops = append(patch.Guard(s.object, "status"), ops...)
		}
		body, encodeErr := json.Marshal(ops)
		if encodeErr != nil {
			return fmt.Errorf("encode status patch: %w", encodeErr)
		}
		var answer []byte
		_, answer, err = s.client.DoIdempotent(ctx, http.MethodPatch, path+"/status", nil, patch.MediaType, body)
		if err == nil {
			u := new(unstructured.Unstructured)
			if err := u.UnmarshalJSON(answer); err != nil {
				return fmt.Errorf("read repository: %w", err)
			}
			s.object = u
			return nil
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsConflict(err) {
			return kube.AsUnavailable(err)
		}
		now, getErr := current.Get(ctx, s.name, metav1.GetOptions{})
		if getErr != nil {
			return errors.Join(err, kube.AsUnavailable(getErr))
		}
		s.object = now
	}
	return err
}

// statsOf returns status.stats of a Repository, sorted.
func statsOf(s target.Counts) []any {
	out := []any{}
	for _, gr := range slices.SortedFunc(maps.Keys(s), func(a, b schema.GroupResource) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource))
	}) {
		if s[gr] > 0 {
			out = append(out, map[string]any{"group": gr.Group, "resource": gr.Resource, "count": s[gr]})
		}
	}
	return out
}

// syncCondition returns the condition for the result of a pull. Type and reasons are Grafana's. It
// is False also where the job ends in a warning, because something is not in sync.
func syncCondition(e syncEnd) api.Condition {
	c := api.Condition{Type: api.ConditionSyncStatus, Status: "False"}
	switch {
	case e.outcome.State == api.StateError:
		c.Reason, c.Message = api.ReasonSyncFailed, e.outcome.Message
	case e.leftOut > 0:
		c.Reason, c.Message = api.ReasonSyncQuotaExceeded, fmt.Sprintf("Resource quota exceeded: %d creations left out", e.leftOut)
	case e.outcome.State == api.StateWarning:
		c.Reason, c.Message = api.ReasonSyncWarning, "Sync completed with warnings: "+text.Line(strings.Join(e.outcome.Warnings, "; "), 1<<10)
	default:
		c.Status, c.Reason, c.Message = "True", api.ReasonSyncSuccessful, "Sync completed successfully"
	}
	return c
}
