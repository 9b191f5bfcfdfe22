package job

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

	"limpet/tui/cli/command"
	"limpet/tui/cli/history"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
)

type retryCmd struct {
	Job string `arg:"" help:"Name or UID of a job in backoff or of a finished one; of a name, the newest of its namespace."`

	WaitFlags
}

func (c retryCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	live, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
	if err != nil {
		return err
	}
	if live != nil {
		if err := history.Unambiguous(ctx, e, s, live, c.Job); err != nil {
			return err
		}
		u, err := EndBackoff(ctx, s, live)
		switch {
		case err != nil:
			return err
		case c.Waits():
			return follow(ctx, e, s, u, c.WaitFlags)
		}
		u.SetManagedFields(nil)
		return e.PrintOne(u.Object, "job/"+u.GetName(),
			func(w io.Writer) { fmt.Fprintf(w, "job/%s does not rest any more\n", u.GetName()) })
	}
	if err := OpenHistory(ctx, e, s); err != nil {
		return err
	}
	past, err := FindFinished(ctx, s, e.Flags.ListNamespace(), c.Job)
	if err != nil {
		return err
	}
	return c.repeat(ctx, e, s, past)
}

// OpenHistory gives a session the state file too: the live jobs may be on a server while the finished ones are
// in the file.
func OpenHistory(ctx context.Context, e *command.Env, s *command.Session) error {
	if s.Store != nil {
		return nil
	}
	path, err := e.StatePath()
	if err != nil {
		return err
	}
	if s.File, err = e.OpenStore(ctx, path, ""); err == nil {
		s.Store = s.File
	}
	return err
}

// uidLength is that of the UUIDs that Kubernetes-style APIs use.
const uidLength = 36

// liveJob returns a job of the queue by name or UID, nil when there is none.
func liveJob(ctx context.Context, s *command.Session, namespace, job string) (*unstructured.Unstructured, error) {
	u, err := s.Find(ctx, api.Jobs, namespace, job)
	if !apierrors.IsNotFound(err) {
		return u, err
	}
	if len(job) != uidLength { // no need to read a long queue
		return nil, nil
	}
	found, err := s.List(ctx, api.Jobs, namespace, "", func(u *unstructured.Unstructured) bool { return string(u.GetUID()) == job }, 1)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// EndBackoff ends the backoff of a job between two attempts.
func EndBackoff(ctx context.Context, s *command.Session, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	rests, _ := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64)
	watch := command.CommandFor(u.GetNamespace(), "job watch "+u.GetName())
	switch {
	case u.GetLabels()[api.LabelClaim] != "":
		return nil, command.Errorf(command.ExitError, watch, "job %q runs now; it can be tried again when it has ended", u.GetName())
	case rests == 0:
		return nil, command.Errorf(command.ExitError, watch, "job %q is queued already", u.GetName())
	}
	// The resourceVersion protects a concurrent claim.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
		"annotations": map[string]any{api.AnnoNotBefore: nil}}})
	if err != nil {
		return nil, err
	}
	out, err := s.Client.Resource(api.Jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err):
		return nil, command.Errorf(command.ExitError, watch, "job %q has just been taken up by itself", u.GetName())
	case apierrors.IsNotFound(err):
		return nil, command.Errorf(command.ExitError, "limpet history show "+string(u.GetUID()), "job %q has just ended", u.GetName())
	}
	return out, err
}

// finishedJob is what is needed of a finished job to run it again.
type finishedJob struct {
	uid, namespace, name, repository string
	spec                             map[string]any
}

// FindFinished finds a finished job in the history of this host, else among the HistoricJobs of the API, where
// other agents leave theirs.
func FindFinished(ctx context.Context, s *command.Session, namespace, job string) (finishedJob, error) {
	rec, err := history.FindRecord(ctx, s.Store, namespace, job)
	if err == nil {
		return pastOf(rec)
	}
	if !errors.Is(err, history.ErrNoRecord) {
		return finishedJob{}, err
	}
	u, archiveErr := archived(ctx, s, namespace, job)
	if archiveErr != nil {
		return finishedJob{}, archiveErr
	}
	if u == nil {
		return finishedJob{}, command.Errorf(command.ExitError, "limpet job list; limpet history list -o wide",
			"no job %q, neither live nor finished", job)
	}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	repository, _, _ := unstructured.NestedString(spec, "repository")
	return finishedJob{uid: u.GetLabels()[api.LabelOriginalUID], namespace: u.GetNamespace(), name: archivedName(u),
		repository: repository, spec: spec}, nil
}

func pastOf(rec state.Record) (finishedJob, error) {
	p := finishedJob{uid: rec.UID, namespace: rec.Namespace, name: rec.Name, repository: rec.Repository}
	if err := json.Unmarshal(rec.Spec, &p.spec); err != nil || p.spec == nil {
		return finishedJob{}, fmt.Errorf("the history has no spec of job %s (%s)", rec.Name, rec.UID)
	}
	return p, nil
}

// archived returns the HistoricJob of a UID, else the newest of a name; nil when there is none, or the server
// keeps none. A name in several namespaces is a *command.AmbiguousError.
func archived(ctx context.Context, s *command.Session, namespace, job string) (*unstructured.Unstructured, error) {
	var newest *unstructured.Unstructured
	var in []string
	_, err := s.List(ctx, api.HistoricJobs, namespace, api.LabelOriginalUID, func(u *unstructured.Unstructured) bool {
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
		return nil, &command.AmbiguousError{Noun: "job", Name: job, Namespaces: in}
	}
	return newest, err
}

// archivedName returns the name of the job: that of a HistoricJob has a suffix.
func archivedName(u *unstructured.Unstructured) string {
	if i := strings.LastIndexByte(u.GetName(), '-'); i > 0 {
		return u.GetName()[:i]
	}
	return u.GetName()
}

// orphanActions are the actions on resources whose repository is gone.
var orphanActions = map[string]bool{"releaseResources": true, "deleteResources": true}

// RunAgain creates a new job from a finished one.
func RunAgain(ctx context.Context, s *command.Session, p finishedJob) (*unstructured.Unstructured, error) {
	action, _ := p.spec["action"].(string)
	if !orphanActions[action] {
		repo, err := s.Client.Resource(api.Repositories).Namespace(p.namespace).Get(ctx, p.repository, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, command.Errorf(command.ExitError, "limpet repo list", "repository %q of job %q is gone", p.repository, p.name)
		case err != nil:
			return nil, err
		case repo.GetDeletionTimestamp() != nil:
			return nil, command.Errorf(command.ExitError, "limpet repo list", "repository %q of job %q is being deleted", p.repository,
				p.name)
		}
	}
	u, err := createAgain(ctx, s, p, action)
	if apierrors.IsAlreadyExists(err) {
		return nil, command.Errorf(command.ExitError, command.CommandFor(p.namespace, "job watch "+p.nextName(action)),
			"a job named %q is queued already", p.nextName(action))
	}
	return u, err
}

func (c retryCmd) repeat(ctx context.Context, e *command.Env, s *command.Session, p finishedJob) error {
	if c.Waits() && s.Embedded != nil {
		return command.Errorf(command.ExitError, "limpet --daemon    # in another terminal, then this command again",
			"nobody would run the job: no agent holds %s", e.StateText())
	}
	u, err := RunAgain(ctx, s, p)
	switch {
	case err != nil:
		return err
	case c.Waits():
		return follow(ctx, e, s, u, c.WaitFlags)
	}
	if s.Embedded != nil {
		e.Notef("no agent runs on this state file; start one with: %s", e.CommandFor("", "--daemon"))
	}
	u.SetManagedFields(nil)
	return e.PrintOne(u.Object, "job/"+u.GetName(),
		func(w io.Writer) { fmt.Fprintf(w, "job/%s created, again for %s\n", u.GetName(), p.uid) })
}

// nextName returns the name of the new job: the one that the repository's route would give it, so that a
// second retry is refused. Jobs that the route does not create, such as checks of pull requests, keep their
// name.
func (p finishedJob) nextName(action string) string {
	switch action {
	case "pr":
		return p.name
	case "test":
		return api.JobName(p.repository, action) + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	}
	return api.JobName(p.repository, action)
}

// createAgain creates the new job directly, because the route of the repository takes no annotations. Without
// the right to create jobs it uses the route, and the job does not name the one that it repeats.
func createAgain(ctx context.Context, s *command.Session, p finishedJob, action string) (*unstructured.Unstructured, error) {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": p.spec}}
	job.SetAPIVersion(api.Jobs.GroupVersion().String())
	job.SetKind("Job")
	job.SetName(p.nextName(action))
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
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/jobs", api.ProvisioningGroup, api.Jobs.Version, p.namespace,
		p.repository)
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
