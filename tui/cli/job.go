package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

type jobCmd struct {
	List   jobListCmd   `cmd:"" help:"Jobs that wait or run."`
	Show   jobShowCmd   `cmd:"" help:"One job, running or finished."`
	Watch  jobWatchCmd  `cmd:"" help:"Follow a job to its end."`
	Create jobCreateCmd `cmd:"" help:"Ask for work on a repository."`
	Cancel jobCancelCmd `cmd:"" help:"Stop a running job, or delete a waiting one."`
	Retry  jobRetryCmd  `cmd:"" help:"Run a finished job again."`
}

type jobListCmd struct {
	Repository string `short:"r" help:"Only of this repository."`
	Limit      int    `help:"At most so many; 0 = all." default:"0"`
}

func (c jobListCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	items, err := s.list(ctx, api.Jobs, r.g.listNamespace(), c.Limit)
	if err != nil {
		return err
	}
	now := time.Now()
	t := table{Columns: []string{"NAME", "REPOSITORY", "ACTION", "STATE", "PROGRESS", "AGE", "MESSAGE"}, Wide: []string{"NAMESPACE", "UID", "CLAIMED", "ATTEMPT"}}
	kept := []any{}
	for i := range items {
		u := &items[i]
		job, err := api.JobView(u)
		if err != nil {
			return err
		}
		if c.Repository != "" && job.Spec.Repository != c.Repository {
			continue
		}
		progress := "-"
		if job.Status.State == api.StateWorking {
			progress = fmt.Sprintf("%.0f%%", min(job.Status.Progress, 100))
		}
		claimed := "-"
		if ms := u.GetLabels()[api.LabelClaim]; ms != "" {
			claimed = "yes"
		}
		attempt := u.GetAnnotations()[api.AnnoAttempt]
		t.Rows = append(t.Rows, []string{u.GetName(), job.Spec.Repository, actionText(job.Spec), stateText(job.Status.State), progress,
			since(now, u.GetCreationTimestamp().Time), orDash(job.Status.Message), u.GetNamespace(), string(u.GetUID()), claimed, orDash(attempt)})
		t.Names = append(t.Names, "job/"+u.GetName())
		kept = append(kept, u.Object)
	}
	return r.g.printList(r.world.Out, kept, t)
}

// list reads all pages of a resource.
func (s *session) list(ctx context.Context, gvr gvr, namespace string, limit int) ([]unstructured.Unstructured, error) {
	return s.selected(ctx, gvr, namespace, "", limit)
}

// selected reads the objects that a label selector picks, at most limit; 0 is
// all of them.
func (s *session) selected(ctx context.Context, gvr gvr, namespace, selector string, limit int) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	opts := metav1.ListOptions{Limit: 500, LabelSelector: selector}
	for {
		page, err := s.Client.Resource(gvr).Namespace(namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if limit > 0 && len(out) >= limit {
			return out[:limit], nil
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// find reads the one object of that name; without a namespace it looks in all
// of them and refuses to choose between two.
func (s *session) find(ctx context.Context, gvr gvr, namespace, name string) (*unstructured.Unstructured, error) {
	if namespace != "" {
		return s.Client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	page, err := s.Client.Resource(gvr).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	switch len(page.Items) {
	case 0:
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	case 1:
		return &page.Items[0], nil
	}
	var in []string
	for _, u := range page.Items {
		in = append(in, u.GetNamespace())
	}
	sort.Strings(in)
	return nil, usage("add --namespace "+in[0], "%s %q is in several namespaces: %s", gvr.Resource, name, strings.Join(in, ", "))
}

func actionText(s api.JobSpec) string {
	if s.Pull == nil || s.Action != "pull" {
		return s.Action
	}
	if s.Pull.Incremental {
		return "pull incr"
	}
	return "pull full"
}

func stateText(state string) string {
	if state == "" {
		return api.StatePending
	}
	return state
}

type jobShowCmd struct {
	Job string `arg:"" help:"Name of a live job, or name or UID of a finished one."`
}

func (c jobShowCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true, Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.find(ctx, api.Jobs, r.g.listNamespace(), c.Job)
	if apierrors.IsNotFound(err) {
		rec, err := findRecord(ctx, s.Desk, r.g.listNamespace(), c.Job)
		if err != nil {
			return fail(ExitError, "limpet job list; limpet history list", "no job %q, neither live nor finished", c.Job)
		}
		return r.g.printOne(r.world.Out, rec, rec.UID, func(w io.Writer) { printRecord(w, rec) })
	}
	if err != nil {
		return err
	}
	job, err := api.JobView(u)
	if err != nil {
		return err
	}
	return r.g.printOne(r.world.Out, u.Object, "job/"+u.GetName(), func(w io.Writer) {
		line := func(key, value string) { fmt.Fprintf(w, "%-12s%s\n", key, plain(value)) }
		line("job", u.GetNamespace()+"/"+u.GetName())
		line("uid", string(u.GetUID()))
		line("repository", job.Spec.Repository)
		line("action", actionText(job.Spec))
		line("state", stateText(job.Status.State))
		line("message", orDash(job.Status.Message))
		line("progress", fmt.Sprintf("%.0f%%", min(job.Status.Progress, 100)))
		line("created", u.GetCreationTimestamp().UTC().Format(time.RFC3339))
		if owner := u.GetLabels()[api.LabelClaimOwner]; owner != "" {
			line("claimed by", owner)
		}
		for _, e := range job.Status.Errors {
			line("error", e)
		}
	})
}

type jobCreateCmd struct {
	Repository  string `arg:"" help:"Name of the repository."`
	Action      string `help:"What to do: pull, push, migrate, delete, move, ..." default:"pull"`
	Incremental bool   `help:"Pull only what changed since the last pull." xor:"depth"`
	Full        bool   `help:"Pull everything (the default)." xor:"depth"`
	Spec        string `help:"Options of the action as JSON, such as {\"message\":\"...\"}." placeholder:"JSON"`
	MassDelete  bool   `name:"allow-mass-delete" help:"Let this pull delete more than 30 % and 50 objects."`
	Wait        bool   `help:"Wait for the end; the exit code tells how it ended."`
	Follow      bool   `short:"f" help:"As --wait, and print progress lines."`
}

func (c jobCreateCmd) Run(ctx context.Context, r *run) error {
	spec := map[string]any{"action": c.Action}
	switch {
	case c.Spec != "":
		var options map[string]any
		if err := json.Unmarshal([]byte(c.Spec), &options); err != nil {
			return usage("", "--spec is not a JSON object: %w", err)
		}
		spec[c.Action] = options
	case c.Action == "pull":
		spec["pull"] = map[string]any{"incremental": c.Incremental}
	}
	return r.createJob(ctx, c.Repository, spec, c.MassDelete, c.Wait || c.Follow)
}

// createJob makes the job and, if asked, waits for its end.
func (r *run) createJob(ctx context.Context, repository string, spec map[string]any, massDelete, wait bool) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	repo, err := s.find(ctx, api.Repositories, r.g.listNamespace(), repository)
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet repo list", "repository %q not found", repository)
	}
	if err != nil {
		return err
	}
	if wait && s.Daemon == nil && r.embedded() {
		return fail(ExitError, "limpet --daemon    # in another terminal, then this command again", "nobody would run the job: no agent holds %s", r.stateText())
	}
	u, err := s.submit(ctx, repo.GetNamespace(), repository, spec, massDelete)
	if apierrors.IsAlreadyExists(err) {
		return fail(ExitError, "limpet job list --repository "+repository, "repository %q has a job of this kind already: %w", repository, err)
	}
	if err != nil {
		return err
	}
	if !wait {
		if s.Daemon == nil && r.embedded() {
			r.note("created; no agent runs on this state file, start one with: limpet --daemon")
		}
		return r.g.printOne(r.world.Out, u.Object, "job/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "job/%s created\n", u.GetName()) })
	}
	return r.follow(ctx, s, u)
}

// submit creates a job through the repository's own route, which names it so
// that a repeat is refused. A plain Kubernetes API has no such route: there the
// job is made directly, under the same name.
func (s *session) submit(ctx context.Context, namespace, repository string, spec map[string]any, massDelete bool) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if !massDelete {
		path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/jobs", api.ProvisioningGroup, api.Jobs.Version, namespace, repository)
		code, answer, err := s.Client.Do(ctx, http.MethodPost, path, nil, "application/json", body)
		if err == nil && code < 300 {
			u := new(unstructured.Unstructured)
			return u, u.UnmarshalJSON(answer)
		}
		if !noSuchRoute(code, err) {
			return nil, err
		}
	}
	action, _ := spec["action"].(string)
	spec["repository"] = repository
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetAPIVersion(api.Jobs.GroupVersion().String())
	job.SetKind("Job")
	job.SetName(api.JobName(repository, action))
	job.SetLabels(map[string]string{api.LabelRepository: repository})
	if massDelete {
		job.SetAnnotations(map[string]string{api.AnnoAllowMassDelete: "true"})
	}
	return s.Client.Resource(api.Jobs).Namespace(namespace).Create(ctx, job, metav1.CreateOptions{})
}

// noSuchRoute tells the 404 or 405 of a server without the route from that of
// a repository that is not there: the repository was read just before.
func noSuchRoute(code int, err error) bool {
	return code == http.StatusNotFound || code == http.StatusMethodNotAllowed || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

type jobCancelCmd struct {
	Job string `arg:"" help:"Name of the job."`
}

func (c jobCancelCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.find(ctx, api.Jobs, r.g.listNamespace(), c.Job)
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet job list", "no live job %q", c.Job)
	}
	if err != nil {
		return err
	}
	done := "cancelled"
	if u.GetLabels()[api.LabelClaim] == "" {
		uid, rv := u.GetUID(), u.GetResourceVersion()
		err = s.Client.Resource(api.Jobs).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}})
		done = "deleted before it was claimed"
	} else {
		err = s.requestCancel(ctx, u)
		done = "asked to stop"
	}
	if apierrors.IsConflict(err) {
		return fail(ExitError, "limpet job cancel "+c.Job, "the job changed meanwhile: %w", err)
	}
	if err != nil {
		return err
	}
	return r.g.printOne(r.world.Out, map[string]string{"name": u.GetName(), "uid": string(u.GetUID()), "result": done}, "job/"+u.GetName(), func(w io.Writer) {
		fmt.Fprintf(w, "job/%s %s\n", u.GetName(), done)
	})
}

// requestCancel asks the owner of a claimed job to stop, with an annotation
// that its agent sees through the watch.
func (s *session) requestCancel(ctx context.Context, u *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": u.GetUID(), "resourceVersion": nil,
		"annotations": map[string]string{api.AnnoCancel: "cancelled by the user on " + hostname()}}})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(api.Jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), mergePatch, patch, metav1.PatchOptions{})
	return err
}

type jobRetryCmd struct {
	Job  string `arg:"" help:"UID or name of a finished job."`
	Wait bool   `help:"Wait for the end; the exit code tells how it ended."`
}

func (c jobRetryCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	rec, err := findRecord(ctx, s.Desk, r.g.listNamespace(), c.Job)
	s.Close()
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(rec.Spec, &spec); err != nil {
		return fmt.Errorf("read the spec of %s from the history: %w", rec.Name, err)
	}
	delete(spec, "repository")
	r.g.Namespace = rec.Namespace
	return r.createJob(ctx, rec.Repository, spec, false, c.Wait)
}
