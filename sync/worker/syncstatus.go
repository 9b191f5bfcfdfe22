package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

// syncStatus writes the sync fields of one Repository's status, which a pull
// owns, by JSON Patch. Other fields have other owners and are never sent: a
// member that may be absent is written with "add", a list entry is guarded with
// "test", and a patch that does not fit is made again from the object as it is.
type syncStatus struct {
	client          *kube.Client
	namespace, name string

	// What the Repository said when the pull began.
	job          string
	started      int64 // milliseconds
	lastRef      string
	stats        stats
	maxResources int64
	object       *unstructured.Unstructured // as the last write left it
}

// endTime bounds the last write about a pull whose context has ended.
const endTime = 10 * time.Second

// patchTries is how often a patch is made anew when it does not fit.
const patchTries = 4

func newSyncStatus(client *kube.Client, namespace, name string) *syncStatus {
	return &syncStatus{client: client, namespace: namespace, name: name}
}

// op is one operation of RFC 6902.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// now is the present time on the server, as far as it is known.
func (s *syncStatus) now() time.Time {
	if now, _, ok := s.client.Clock().Now(); ok {
		return now
	}
	return time.Now()
}

func (s *syncStatus) millis() int64 { return s.now().UnixMilli() }

// start marks the Repository as being synced by a job, and reads what the pull
// begins with. repo is the Repository as it was last seen.
func (s *syncStatus) start(ctx context.Context, repo *unstructured.Unstructured, job string) error {
	s.object, s.job, s.started = repo, job, s.millis()
	err := s.patch(ctx, func(repo *unstructured.Unstructured) []op {
		if _, there, _ := unstructured.NestedMap(repo.Object, "status", "sync"); there {
			return []op{
				{"add", "/status/sync/state", api.StateWorking},
				{"add", "/status/sync/job", job},
				{"add", "/status/sync/started", s.started},
			}
		}
		return []op{{"add", "/status/sync", map[string]any{
			"state": api.StateWorking, "job": job, "started": s.started, "message": []any{}}}}
	})
	if err != nil {
		return err
	}
	view, err := api.RepositoryView(s.object)
	if err != nil {
		return err
	}
	s.lastRef = view.Status.Sync.LastRef
	if len(view.Status.Stats) > 0 {
		s.stats = stats{}
		for _, count := range view.Status.Stats {
			s.stats[count.Resource] += count.Count
		}
	}
	s.maxResources, _, _ = unstructured.NestedInt64(s.object.Object, "status", "quota", "maxResourcesPerRepository")
	return nil
}

// queued puts the Repository back to what it was before a pull that will be run
// again. A failure leaves "working", which the next run replaces.
func (s *syncStatus) queued(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	_ = s.patch(ctx, func(*unstructured.Unstructured) []op {
		return []op{{"add", "/status/sync/state", api.StatePending}}
	})
}

// syncEnd is how a pull ended.
type syncEnd struct {
	outcome     jobs.Outcome
	ref         string // that was synced
	incremental bool
	stats       stats          // nil = not known
	leftOut     int64          // files and directories, for the quota
	verified    *api.Condition // nil = as before
}

// end writes the result. It is written also when ctx has ended.
func (s *syncStatus) end(ctx context.Context, e syncEnd) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	ref := e.ref
	if e.outcome.State == api.StateError || ref == "" {
		ref = s.lastRef
	}
	message := e.outcome.Errors
	if len(message) == 0 {
		message = e.outcome.Warnings
	}
	sync := map[string]any{
		"state": e.outcome.State, "job": s.job, "started": s.started, "finished": s.millis(),
		"message": anys(message), "incremental": e.incremental,
	}
	if ref != "" {
		sync["lastRef"] = ref
	}
	return s.patch(ctx, func(repo *unstructured.Unstructured) []op {
		ops := []op{{"add", "/status/sync", sync}}
		now := e.stats
		if now != nil {
			ops = append(ops, op{"add", "/status/stats", now.wire()})
		} else {
			now = s.stats
		}
		wanted := []api.Condition{syncCondition(e), api.ResourceQuota(now.total(), s.maxResources)}
		if e.verified != nil {
			wanted = append(wanted, *e.verified)
		}
		return append(ops, conditionOps(s.now(), repo, wanted...)...)
	})
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// patch sends the operations that build makes for the object as it was last
// seen, and for what it has become when they do not fit.
func (s *syncStatus) patch(ctx context.Context, build func(repo *unstructured.Unstructured) []op) error {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s", api.ProvisioningGroup, api.Repositories.Version, s.namespace, s.name)
	var err error
	for range patchTries {
		ops := build(s.object)
		if !hasStatus(s.object) {
			// Nobody else may have made a status meanwhile: it would be lost.
			ops = append([]op{
				{"test", "/metadata/resourceVersion", s.object.GetResourceVersion()},
				{"add", "/status", map[string]any{}},
			}, ops...)
		}
		body, encodeErr := json.Marshal(ops)
		if encodeErr != nil {
			return fmt.Errorf("encode status patch: %w", encodeErr)
		}
		var answer []byte
		_, answer, err = s.client.DoIdempotent(ctx, http.MethodPatch, path+"/status", nil, "application/json-patch+json", body)
		if err == nil {
			return s.keep(answer)
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsConflict(err) && !isUnprocessable(err) {
			return kube.AsUnavailable(err)
		}
		_, answer, getErr := s.client.Do(ctx, http.MethodGet, path, nil, "", nil)
		if getErr != nil {
			return errors.Join(err, kube.AsUnavailable(getErr))
		}
		if keepErr := s.keep(answer); keepErr != nil {
			return keepErr
		}
	}
	return err
}

func (s *syncStatus) keep(answer []byte) error {
	u := new(unstructured.Unstructured)
	if err := u.UnmarshalJSON(answer); err != nil {
		return fmt.Errorf("read repository: %w", err)
	}
	s.object = u
	return nil
}

func hasStatus(repo *unstructured.Unstructured) bool {
	_, there := repo.Object["status"].(map[string]any)
	return there
}

func isUnprocessable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity
}
