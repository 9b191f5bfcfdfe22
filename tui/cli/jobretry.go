package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
)

type jobRetryCmd struct {
	Job string `arg:"" help:"Name or UID of a job that rests or has ended; of a name, the newest of its namespace."`

	following
}

func (c jobRetryCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	live, err := s.liveJob(ctx, r.g.listNamespace(), c.Job)
	if err != nil {
		return err
	}
	if live != nil {
		if err := r.unambiguous(ctx, s, live, c.Job); err != nil {
			return err
		}
		u, err := s.hurry(ctx, live)
		switch {
		case err != nil:
			return err
		case c.waits():
			return r.follow(ctx, s, u, c.following)
		}
		u.SetManagedFields(nil)
		return r.printOne(u.Object, "job/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "job/%s does not rest any more\n", u.GetName()) })
	}
	if err := r.desk(ctx, s); err != nil {
		return err
	}
	past, err := s.pastJob(ctx, r.g.listNamespace(), c.Job)
	if err != nil {
		return err
	}
	return c.repeat(ctx, r, s, past)
}

// desk gives a session the state file too: the live jobs may be on a server
// while the finished ones are in the file.
func (r *run) desk(ctx context.Context, s *session) error {
	if s.Desk != nil {
		return nil
	}
	path, err := r.statePath()
	if err != nil {
		return err
	}
	if s.store, err = r.openStore(ctx, path, ""); err == nil {
		s.Desk = s.store
	}
	return err
}

// uidLength is that of the UUIDs that Kubernetes-style APIs give.
const uidLength = 36

// liveJob finds a job of the queue by name or UID; nil when there is none.
func (s *session) liveJob(ctx context.Context, namespace, job string) (*unstructured.Unstructured, error) {
	u, err := s.find(ctx, api.Jobs, namespace, job)
	if !apierrors.IsNotFound(err) {
		return u, err
	}
	if len(job) != uidLength { // no need to read a long queue
		return nil, nil
	}
	found, err := s.selected(ctx, api.Jobs, namespace, "", func(u *unstructured.Unstructured) bool { return string(u.GetUID()) == job }, 1)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// hurry ends the rest of a job between two attempts.
func (s *session) hurry(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	rests, _ := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64)
	watch := next(u.GetNamespace(), "job watch "+u.GetName())
	switch {
	case u.GetLabels()[api.LabelClaim] != "":
		return nil, fail(ExitError, watch, "job %q runs now; it can be tried again when it has ended", u.GetName())
	case rests == 0:
		return nil, fail(ExitError, watch, "job %q is queued already", u.GetName())
	}
	// The resourceVersion keeps a claim safe that comes at the same moment.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
		"annotations": map[string]any{api.AnnoNotBefore: nil}}})
	if err != nil {
		return nil, err
	}
	out, err := s.Client.Resource(api.Jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err):
		return nil, fail(ExitError, watch, "job %q has just been taken up by itself", u.GetName())
	case apierrors.IsNotFound(err):
		return nil, fail(ExitError, "limpet history show "+string(u.GetUID()), "job %q has just ended", u.GetName())
	}
	return out, err
}

// past is what is needed of a finished job to run it again.
type past struct {
	uid, namespace, name, repository string
	spec                             map[string]any
}

// pastJob finds a finished job: in the history of this host, else among the
// HistoricJobs of the API, where other agents leave theirs.
func (s *session) pastJob(ctx context.Context, namespace, job string) (past, error) {
	rec, err := findRecord(ctx, s.Desk, namespace, job)
	if err == nil {
		return pastOf(rec)
	}
	if !errors.Is(err, errNoRecord) {
		return past{}, err
	}
	u, archiveErr := s.archived(ctx, namespace, job)
	if archiveErr != nil {
		return past{}, archiveErr
	}
	if u == nil {
		return past{}, fail(ExitError, "limpet job list; limpet history list -o wide", "no job %q, neither live nor finished", job)
	}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	repository, _, _ := unstructured.NestedString(spec, "repository")
	return past{uid: u.GetLabels()[api.LabelOriginalUID], namespace: u.GetNamespace(), name: archivedName(u), repository: repository, spec: spec}, nil
}

func pastOf(rec state.Record) (past, error) {
	p := past{uid: rec.UID, namespace: rec.Namespace, name: rec.Name, repository: rec.Repository}
	if err := json.Unmarshal(rec.Spec, &p.spec); err != nil || p.spec == nil {
		return past{}, fmt.Errorf("the history has no spec of job %s (%s)", rec.Name, rec.UID)
	}
	return p, nil
}

// archived finds the HistoricJob of a UID, else the newest of a name; nil when
// there is none, or the server keeps none. A name of jobs in several namespaces is a
// *severalError.
func (s *session) archived(ctx context.Context, namespace, job string) (*unstructured.Unstructured, error) {
	var newest *unstructured.Unstructured
	var in []string
	_, err := s.selected(ctx, api.HistoricJobs, namespace, api.LabelOriginalUID, func(u *unstructured.Unstructured) bool {
		if u.GetLabels()[api.LabelOriginalUID] == job || archivedName(u) == job {
			in = append(in, u.GetNamespace())
			if newest == nil || newest.GetCreationTimestamp().Time.Before(u.GetCreationTimestamp().Time) {
				newest = u.DeepCopy()
			}
		}
		return false
	}, 0)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	slices.Sort(in)
	if in = slices.Compact(in); len(in) > 1 {
		return nil, &severalError{"job", job, in}
	}
	return newest, err
}

// archivedName is the name that a job had: a HistoricJob adds something to it.
func archivedName(u *unstructured.Unstructured) string {
	if i := strings.LastIndexByte(u.GetName(), '-'); i > 0 {
		return u.GetName()[:i]
	}
	return u.GetName()
}

// orphans are the actions on what a repository has left behind.
var orphans = map[string]bool{"releaseResources": true, "deleteResources": true}

// repeat makes a new job of a finished one.
func (s *session) repeat(ctx context.Context, p past) (*unstructured.Unstructured, error) {
	action, _ := p.spec["action"].(string)
	if !orphans[action] {
		repo, err := s.Client.Resource(api.Repositories).Namespace(p.namespace).Get(ctx, p.repository, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, fail(ExitError, "limpet repo list", "repository %q of job %q is gone", p.repository, p.name)
		case err != nil:
			return nil, err
		case repo.GetDeletionTimestamp() != nil:
			return nil, fail(ExitError, "limpet repo list", "repository %q of job %q is being deleted", p.repository, p.name)
		}
	}
	u, err := s.again(ctx, p, action)
	if apierrors.IsAlreadyExists(err) {
		return nil, fail(ExitError, next(p.namespace, "job watch "+p.nameAgain(action)), "a job named %q is queued already", p.nameAgain(action))
	}
	return u, err
}

func (c jobRetryCmd) repeat(ctx context.Context, r *run, s *session, p past) error {
	if c.waits() && s.server != nil {
		return fail(ExitError, "limpet --daemon    # in another terminal, then this command again", "nobody would run the job: no agent holds %s", r.stateText())
	}
	u, err := s.repeat(ctx, p)
	switch {
	case err != nil:
		return err
	case c.waits():
		return r.follow(ctx, s, u, c.following)
	}
	if s.server != nil {
		r.note("no agent runs on this state file; start one with: %s", r.next("", "--daemon"))
	}
	u.SetManagedFields(nil)
	return r.printOne(u.Object, "job/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "job/%s created, again for %s\n", u.GetName(), p.uid) })
}

// nameAgain is the name of the new job: that under which the repository's route
// would queue it, so that a repeat is refused. What the route does not make, such
// as the check of a pull request, keeps the name that it had.
func (p past) nameAgain(action string) string {
	switch action {
	case "pr":
		return p.name
	case "test":
		return api.JobName(p.repository, action) + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	}
	return api.JobName(p.repository, action)
}

// again creates the new job. It is made directly, because the route of the
// repository takes no annotations; who may not create jobs but may use the route
// gets the job from there, without the note of what it repeats.
func (s *session) again(ctx context.Context, p past, action string) (*unstructured.Unstructured, error) {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": p.spec}}
	job.SetAPIVersion(api.Jobs.GroupVersion().String())
	job.SetKind("Job")
	job.SetName(p.nameAgain(action))
	job.SetLabels(map[string]string{api.LabelRepository: p.repository})
	job.SetAnnotations(map[string]string{api.AnnoRetryOf: p.uid})
	u, err := s.Client.Resource(api.Jobs).Namespace(p.namespace).Create(ctx, job, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) {
		return u, err
	}
	spec := map[string]any{}
	for k, v := range p.spec {
		if k != "repository" {
			spec[k] = v
		}
	}
	body, encodeErr := json.Marshal(spec)
	if encodeErr != nil {
		return nil, encodeErr
	}
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/jobs", api.ProvisioningGroup, api.Jobs.Version, p.namespace, p.repository)
	_, answer, routeErr := s.Client.Do(ctx, http.MethodPost, path, nil, "application/json", body)
	switch {
	case apierrors.IsNotFound(routeErr) || apierrors.IsMethodNotSupported(routeErr): // a plain Kubernetes API
		return nil, err
	case routeErr != nil:
		return nil, routeErr
	}
	u = new(unstructured.Unstructured)
	return u, u.UnmarshalJSON(answer)
}
