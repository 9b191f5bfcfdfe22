// Package status writes the part of the status of a Repository that pulls own; commitstatus reports
// pulls at the Git host.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
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
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// Sync writes the sync fields of one Repository's status, which a pull owns, by JSON Patch.
// Other fields have other owners and are never sent: a member that may be absent is written with
// "add", the conditions are guarded with "test", and a rejected patch is built again from the
// current object.
type Sync struct {
	Client          *kube.Client
	Namespace, Name string

	// The Repository at the start of the pull.
	job          string
	started      int64 // milliseconds
	LastRef      string
	From         api.SyncSource
	Stats        target.Counts
	maxResources int64
	Object       *unstructured.Unstructured // as the last write left it
}

// EndTime bounds the last write about a pull whose context has ended.
const EndTime = 10 * time.Second

// patchTries is the maximum number of attempts of a patch.
const patchTries = 8

func (s *Sync) now() time.Time { return s.Client.Now() }

// Start marks the Repository as being synced by a job, and reads the state before the pull. repo is
// the last seen Repository.
func (s *Sync) Start(ctx context.Context, repo *unstructured.Unstructured, job string) error {
	s.Object = repo
	s.job = job
	s.started = s.now().UnixMilli()
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
	return s.Read()
}

// Read takes the state before the pull from the object.
func (s *Sync) Read() error {
	view, err := api.RepositoryView(s.Object)
	if err != nil {
		return err
	}
	s.LastRef, s.From = view.Status.Sync.LastRef, view.Status.Sync.Source
	if len(view.Status.Stats) > 0 {
		s.Stats = target.Counts{}
		for _, count := range view.Status.Stats {
			s.Stats[schema.GroupResource{Group: count.Group, Resource: count.Resource}] += count.Count
		}
	}
	s.maxResources, _, _ = unstructured.NestedInt64(s.Object.Object, "status", "quota", "maxResourcesPerRepository")
	return nil
}

// Unfinished is the hash of the source of a target that may be between two commits. It differs from
// that of any pull, so that no later pull relies on the last commit until one has ended well.
const Unfinished = "unfinished"

// Writing records that the target will be written: the run may die, and its job be deleted. A first
// pull has no last commit to rely on.
func (s *Sync) Writing(ctx context.Context) error {
	if s.LastRef == "" || s.From.Hash == Unfinished {
		return nil
	}
	return s.patch(ctx, func(*unstructured.Unstructured) []patch.Op {
		return []patch.Op{patch.Add("/status/sync/source", api.SyncSource{Hash: Unfinished})}
	})
}

// Queued sets the sync state back to pending for a pull that will be retried. A failure leaves
// "working", which the next run replaces.
func (s *Sync) Queued(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTime)
	defer cancel()
	_ = s.patch(ctx, func(*unstructured.Unstructured) []patch.Op {
		return []patch.Op{patch.Add("/status/sync/state", api.StatePending)}
	})
}

// End is the result of a pull.
type End struct {
	Outcome     jobs.Outcome
	Ref         string // that was synced
	Incremental bool
	Stats       target.Counts  // nil = unknown
	LeftOut     int64          // files and directories, for the quota
	Verified    *api.Condition // nil = unchanged
	Commit      api.Condition  // that the host refuses commit statuses; without a status = it does not
	Sink        api.Condition  // zero = unchanged
	From        api.SyncSource
	Partly      bool // it has failed among its writes
}

// End writes the result. It is written also when ctx has ended.
func (s *Sync) End(ctx context.Context, e End) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTime)
	defer cancel()
	ref, from := e.Ref, e.From
	if e.Outcome.State == api.StateError || ref == "" {
		ref, from = s.LastRef, s.From
	}
	if e.Partly {
		from = api.SyncSource{}
	}
	if ref == s.LastRef && from.Hash == s.From.Hash { // the same pull again, which has deleted nothing
		from.AllowMassDelete = from.AllowMassDelete || s.From.AllowMassDelete
	}
	message := e.Outcome.Errors
	if len(message) == 0 {
		message = append([]string{}, e.Outcome.Warnings...) // a list, not null
	}
	sync := map[string]any{
		"state": e.Outcome.State, "job": s.job, "started": s.started, "finished": max(s.now().UnixMilli(), s.started),
		"message": message, "incremental": e.Incremental,
	}
	if ref != "" {
		sync["lastRef"] = ref
	}
	if from != (api.SyncSource{}) {
		sync["source"] = from
	}
	return s.patch(ctx, func(repo *unstructured.Unstructured) []patch.Op {
		ops := []patch.Op{patch.Add("/status/sync", sync)}
		now := e.Stats
		if now != nil {
			ops = append(ops, patch.Add("/status/stats", statsOf(now)))
		} else {
			now = s.Stats
		}
		wanted := []api.Condition{condition(e), api.ResourceQuota(now.Total(), s.maxResources), e.Sink, e.Commit}
		if e.Verified != nil {
			wanted = append(wanted, *e.Verified)
		}
		if list, changed := api.SetConditions(repo, s.now(), wanted...); changed { // the list has other writers
			ops = append(ops, patch.Version(repo), patch.Add("/status/conditions", list))
		}
		return ops
	})
}

// patch sends the operations that build returns for the last seen object. When the server rejects
// them, it retries with the current object.
func (s *Sync) patch(ctx context.Context, build func(repo *unstructured.Unstructured) []patch.Op) error {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s", api.ProvisioningGroup, api.Repositories.Version, s.Namespace, s.Name)
	current := s.Client.Resource(api.Repositories).Namespace(s.Namespace)
	var err error
	for range patchTries {
		ops := build(s.Object)
		if len(ops) == 0 {
			return nil
		}
		if _, there := s.Object.Object["status"].(map[string]any); !there {
			// The test protects a status that another writer has added meanwhile.
			ops = append(patch.Guard(s.Object, "status"), ops...)
		}
		body, encodeErr := json.Marshal(ops)
		if encodeErr != nil {
			return fmt.Errorf("encode status patch: %w", encodeErr)
		}
		var answer []byte
		_, answer, err = s.Client.DoIdempotent(ctx, http.MethodPatch, path+"/status", nil, patch.MediaType, body)
		if err == nil {
			u := new(unstructured.Unstructured)
			if err := u.UnmarshalJSON(answer); err != nil {
				return fmt.Errorf("read repository: %w", err)
			}
			s.Object = u
			return nil
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsConflict(err) {
			return kube.AsUnavailable(err)
		}
		now, getErr := current.Get(ctx, s.Name, metav1.GetOptions{})
		if getErr != nil {
			return errors.Join(err, kube.AsUnavailable(getErr))
		}
		s.Object = now
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

// condition returns the condition for the result of a pull. Type and reasons are Grafana's. It
// is False also where the job ends in a warning, because something is not in sync.
func condition(e End) api.Condition {
	c := api.Condition{Type: api.ConditionSyncStatus, Status: "False"}
	switch {
	case e.Outcome.State == api.StateError:
		c.Reason, c.Message = api.ReasonSyncFailed, e.Outcome.Message
	case e.LeftOut > 0:
		c.Reason, c.Message = api.ReasonSyncQuotaExceeded, fmt.Sprintf("Resource quota exceeded: %d creations left out", e.LeftOut)
	case e.Outcome.State == api.StateWarning:
		c.Reason, c.Message = api.ReasonSyncWarning, "Sync completed with warnings: "+text.Line(strings.Join(e.Outcome.Warnings, "; "), 1<<10)
	default:
		c.Status, c.Reason, c.Message = "True", api.ReasonSyncSuccessful, "Sync completed successfully"
	}
	return c
}

// SinkReady is the condition of a directory that holds the commit of the last pull.
var SinkReady = api.Condition{Type: api.ConditionSinkReady, Status: "True", Reason: "UpToDate", Message: "The directory is up to date"}

// maxSinkError bounds the message of the condition. Unit: bytes.
const maxSinkError = 500

// ReportSink writes the condition where it differs. A problem of another host is left to that host,
// and to the next pull.
func (s *Sync) ReportSink(ctx context.Context, problem error) error {
	host, _ := os.Hostname()
	ready := SinkReady
	if problem != nil {
		ready.Status, ready.Reason = "False", "WriteFailed"
		if e, is := errors.AsType[*sink.ExecError](problem); is {
			ready.Reason = e.Reason
		}
		ready.Message = text.Line(host+": "+text.Redact(problem.Error()), maxSinkError)
	}
	return s.patch(ctx, func(repo *unstructured.Unstructured) []patch.Op {
		list, _, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
		if _, old := api.FindCondition(list, ready.Type); old["status"] == "False" && !strings.HasPrefix(fmt.Sprint(old["message"]), host+": ") {
			return nil
		}
		list, changed := api.SetConditions(repo, s.now(), ready)
		if !changed {
			return nil
		}
		return []patch.Op{patch.Version(repo), patch.Add("/status/conditions", list)}
	})
}
