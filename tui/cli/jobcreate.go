package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

type jobCreateCmd struct {
	Repository  string  `arg:"" help:"Name of the repository."`
	Action      string  `help:"What to do: pull, push, migrate, delete, move, ..." default:"pull"`
	Incremental bool    `help:"Pull only what changed since the last pull." xor:"depth"`
	Full        bool    `help:"Pull everything (the default)." xor:"depth"`
	Spec        string  `help:"Options of the action as JSON, such as {\"message\":\"...\"}." placeholder:"JSON"`
	MassDelete  bool    `name:"allow-mass-delete" help:"Let this pull delete more than 30 % of the objects, or more than 50."`
	Priority    *string `help:"From 0 to 9; 9 is served first. Default: that of the repository, else 5." placeholder:"N"`
	Wait        bool    `short:"w" aliases:"follow" help:"Follow the job to its end; the exit code tells how it ended."`
}

func (c jobCreateCmd) Run(ctx context.Context, r *run) error {
	spec := map[string]any{"action": c.Action}
	switch {
	case c.Spec != "":
		var options map[string]any
		if err := json.Unmarshal([]byte(c.Spec), &options); err != nil || options == nil {
			return usage("limpet job create REPOSITORY --action push --spec '{\"message\": \"...\"}'", "--spec is not a JSON object: %s", c.Spec)
		}
		spec[c.Action] = options
	case c.Action == "pull":
		spec["pull"] = map[string]any{"incremental": c.Incremental}
	}
	notes := massDeleteNote(c.MassDelete)
	if c.Priority != nil {
		p := *c.Priority
		if len(p) != 1 || p < "0" || p > "9" {
			return usage("limpet job create "+c.Repository+" --priority 9", "--priority is %q: it must be a number from 0 to 9, and 9 is served first", p)
		}
		notes[api.AnnoPriority] = p
	}
	return r.createJob(ctx, c.Repository, spec, notes, c.Wait)
}

// massDeleteNote returns the annotations of a job that may delete much, or none.
func massDeleteNote(massDelete bool) map[string]string {
	notes := map[string]string{}
	if massDelete {
		notes[api.AnnoAllowMassDelete] = "true"
	}
	return notes
}

// createJob makes the job, with annotations, and, if asked, waits for its end.
func (r *run) createJob(ctx context.Context, repository string, spec map[string]any, notes map[string]string, wait bool) error {
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
	alone := s.server != nil // the API is in this process, so no agent is there
	if wait && alone {
		return fail(ExitError, "limpet --daemon    # in another terminal, then this command again", "nobody would run the job: no agent holds %s", r.stateText())
	}
	u, err := s.submit(ctx, repo.GetNamespace(), repository, spec, notes)
	if apierrors.IsAlreadyExists(err) {
		action, _ := spec["action"].(string)
		return fail(ExitError, "limpet job watch "+api.JobName(repository, action), "repository %q has a job of this kind already: %w", repository, err)
	}
	if err != nil {
		return err
	}
	if wait {
		return r.follow(ctx, s, u)
	}
	if alone {
		r.note("no agent runs on this state file; start one with: limpet --daemon")
	}
	u.SetManagedFields(nil)
	return r.g.printOne(r.world.Out, u.Object, "job/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "job/%s created\n", u.GetName()) })
}

// submit creates a job through the repository's own route, which names it so
// that a repeat is refused. A plain Kubernetes API has no such route, and the
// route takes no annotations: then the job is made directly, under the same name.
func (s *session) submit(ctx context.Context, namespace, repository string, spec map[string]any, notes map[string]string) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if len(notes) == 0 {
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
	if len(notes) > 0 {
		job.SetAnnotations(notes)
	}
	return s.Client.Resource(api.Jobs).Namespace(namespace).Create(ctx, job, metav1.CreateOptions{})
}

// noSuchRoute tells the 404 or 405 of a server without the route from that of
// a repository that is not there: the repository was read just before.
func noSuchRoute(code int, err error) bool {
	return code == http.StatusNotFound || code == http.StatusMethodNotAllowed || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
