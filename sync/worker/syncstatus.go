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
	"limpet/sync/resources"
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

// patchTries is how often a patch is made again when it does not fit.
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

// stats counts the objects of a repository by resource; nil means not known.
type stats map[string]int64

// countItems counts what a list of managed objects holds.
func countItems(items []resources.Item) stats {
	s := stats{}
	for _, i := range items {
		s[i.Resource]++
	}
	return s
}

func (s stats) total() int64 {
	var n int64
	for _, count := range s {
		n += count
	}
	return n
}

// after returns the numbers after a run; what is not known stays so.
func (s stats) after(t resources.Tally) stats {
	if s == nil {
		return nil
	}
	out := stats{}
	for resource, count := range s {
		out[resource] = count
	}
	for resource, count := range t.Created {
		out[resource] += count
	}
	for resource, count := range t.Deleted {
		out[resource] = max(0, out[resource]-count)
	}
	return out
}

// groups names the API group of each counted resource. Files in a directory
// are no API objects; theirs is ours.
var groups = []struct{ resource, group string }{
	{resources.DashboardResource, api.DashboardGroup},
	{resources.FolderResource, api.FolderGroup},
	{sinkResource, sinkGroup},
}

// wire is status.stats of a Repository.
func (s stats) wire() []any {
	out := []any{}
	for _, g := range groups {
		if count := s[g.resource]; count > 0 {
			out = append(out, map[string]any{"group": g.group, "resource": g.resource, "count": count})
		}
	}
	return out
}

// syncCondition is how a pull ended. Type and reasons are Grafana's. What was left out
// for the quota makes it False although the job ends in a warning: it comes only
// when there is room.
func syncCondition(e syncEnd) api.Condition {
	c := api.Condition{Type: api.ConditionSyncStatus, Status: "False"}
	switch {
	case e.outcome.State == api.StateError:
		c.Reason, c.Message = api.ReasonSyncFailed, e.outcome.Message
	case e.leftOut > 0:
		c.Reason, c.Message = api.ReasonSyncQuotaExceeded, fmt.Sprintf("Resource quota exceeded: %d creations left out", e.leftOut)
	default:
		c.Status, c.Reason, c.Message = "True", api.ReasonSyncSuccessful, "Sync completed successfully"
	}
	return c
}

// conditionOps sets conditions in a list that others write as well. An entry is
// replaced only where it still is the one that was seen, one that says the same
// already is left alone, and a list is made only when nothing else has changed. One
// without a status is taken away.
func conditionOps(now time.Time, repo *unstructured.Unstructured, wanted ...api.Condition) []op {
	list, listed, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
	var ops []op
	if !listed {
		ops = append(ops, op{"test", "/metadata/resourceVersion", repo.GetResourceVersion()}, op{"add", "/status/conditions", []any{}})
	}
	var gone []op
	for _, want := range wanted {
		at, old := api.FindCondition(list, want.Type)
		if want.Status == "" {
			if at >= 0 {
				path := fmt.Sprintf("/status/conditions/%d", at)
				gone = append(gone, op{"test", path + "/type", want.Type}, op{Op: "remove", Path: path})
			}
			continue
		}
		switch value := want.Map(now, repo.GetGeneration(), old); {
		case at < 0:
			ops = append(ops, op{"add", "/status/conditions/-", value})
		case !api.SameCondition(old, value):
			path := fmt.Sprintf("/status/conditions/%d", at)
			ops = append(ops, op{"test", path + "/type", want.Type}, op{"replace", path, value})
		}
	}
	return append(ops, gone...) // last: it moves the others
}
