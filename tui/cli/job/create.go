package job

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/control"
	"limpet/sync/repos"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

type createCmd struct {
	Repository  string   `arg:"" help:"Name of the repository."`
	Action      string   `help:"Action: pull, push, migrate, delete, move, fixFolderMetadata, ..." default:"pull"`
	Incremental bool     `help:"Pull only what changed since the last pull (the default)." xor:"depth"`
	Full        bool     `help:"Compare everything; what was changed by hand is overwritten. Asks on a terminal." xor:"depth"`
	Path        []string `help:"Delete, move: file or DIR/; repeatable. Push: directory." placeholder:"PATH" sep:"none"`
	TargetPath  string   `help:"Move: the directory to move to, with a slash at its end." placeholder:"DIR/"`
	Resource    []string `help:"Not for pull: an object, such as dashboard/cpu. Repeatable." placeholder:"KIND/NAME" sep:"none"`
	Ref         string   `help:"Delete, move, fixFolderMetadata: branch, created if missing; default: the repository's." placeholder:"BRANCH"`
	Branch      string   `help:"Push, migrate: branch, created if missing; default: the repository's." placeholder:"BRANCH"`
	Message     string   `help:"Message of the commit." placeholder:"TEXT"`
	KeepObjects bool     `name:"skip-resource-deletion" help:"Migrate to another branch: keep the objects."`
	NewFolders  bool     `name:"generate-new-folder-ids" help:"Migrate: give the folders new UIDs."`
	Duration    string   `help:"Test: how long, such as 90s; at most 15m." placeholder:"DURATION"`
	Updates     string   `name:"progress-updates" help:"Test: how many messages, from 0 to 1000." placeholder:"N"`
	Spec        string   `help:"Options of the action as JSON, such as {\"message\":\"...\"}." placeholder:"JSON"`
	MassDelete  bool     `name:"allow-mass-delete" help:"Allow it to delete all of 3 or more objects, over 10 and 30 %, or over 50."`
	DryRun      bool     `help:"Print what the job would change; nothing is written. Not for test, releaseResources, deleteResources."`
	Priority    *string  `help:"From 0 to 9; 9 is served first. Default: that of the repository, else 5." placeholder:"N"`

	WaitFlags
}

func (c createCmd) Run(ctx context.Context, e *command.Env) error {
	again := "limpet job create " + text.ShellWord(c.Repository)
	if !slices.Contains(admission.JobActions, c.Action) {
		return command.Usagef(again+" --action pull", "unknown action %q%s; there are %s", c.Action,
			command.Meant(c.Action, admission.JobActions), strings.Join(admission.JobActions, ", "))
	}
	spec, err := c.spec()
	if err != nil {
		return command.Usagef("limpet job create --help", "%w", err)
	}
	if c.DryRun {
		if slices.Contains([]string{"pr", "test", "releaseResources", "deleteResources"}, c.Action) {
			return command.Usagef(again+" --action pull --dry-run", "--dry-run is for pulls and for what writes to Git, not for %s", c.Action)
		}
		return Preview(ctx, e, worker.PreviewQuery{Repository: c.Repository, Incremental: !c.Full, AllowMassDelete: c.MassDelete, Job: spec})
	}
	notes := MassDeleteNote(c.MassDelete)
	if p := c.Priority; p != nil {
		if len(*p) != 1 || *p < "0" || *p > "9" {
			return command.Usagef(again+" --priority 9", "--priority is %q: it must be a number from 0 to 9, and 9 is served first", *p)
		}
		notes[api.AnnoPriority] = *p
	}
	return CreateJob(ctx, e, c.Repository, spec, notes, c.WaitFlags)
}

// spec returns the spec of the job, which its flags or --spec describe.
func (c createCmd) spec() (spec map[string]any, err error) {
	given := map[string][]string{"path": c.Path, "target-path": {c.TargetPath}, "resource": c.Resource, "ref": {c.Ref},
		"branch": {c.Branch}, "message": {c.Message}, "duration": {c.Duration}, "progress-updates": {c.Updates}}
	for name, on := range map[string]bool{"skip-resource-deletion": c.KeepObjects, "generate-new-folder-ids": c.NewFolders,
		"full": c.Full && (c.Action != "pull" || c.Spec != ""), "incremental": c.Incremental && (c.Action != "pull" || c.Spec != ""),
		"allow-mass-delete": c.MassDelete && c.Action != "pull"} {
		if on {
			given[name] = []string{"true"}
		}
	}
	maps.DeleteFunc(given, func(_ string, values []string) bool { return strings.Join(values, "") == "" })
	if c.Spec == "" {
		if spec, err = admission.JobSpec(c.Action, given); err == nil && c.Action == "pull" {
			spec["pull"] = map[string]any{"incremental": !c.Full}
		}
		return spec, err
	}
	spec = map[string]any{"action": c.Action}
	if c.Message != "" {
		spec["message"] = c.Message
		delete(given, "message")
	}
	var options map[string]any
	if err := json.Unmarshal([]byte(c.Spec), &options); err != nil || options == nil {
		return nil, fmt.Errorf("--spec is not a JSON object: %s", c.Spec)
	}
	for name := range given {
		return nil, fmt.Errorf("--%s and --spec are both given; keep one", name)
	}
	for _, name := range []string{"ref", "pr", "hash", "url"} {
		if c.Action == "pr" && options[name] == nil {
			return nil, fmt.Errorf("webhooks make the jobs of pull requests; by hand --spec needs ref, pr, hash and url: it lacks %s", name)
		}
	}
	spec[c.Action] = options
	return spec, nil
}

// MassDeleteNote returns the annotations of a job that may delete many objects, or none.
func MassDeleteNote(massDelete bool) map[string]string {
	notes := map[string]string{}
	if massDelete {
		notes[api.AnnoAllowMassDelete] = "true"
	}
	return notes
}

// CreateJob creates the job, asks before a full pull, and waits for its end if how says so.
func CreateJob(ctx context.Context, e *command.Env, repository string, spec map[string]any, notes map[string]string, how WaitFlags) error {
	action, _ := spec["action"].(string)
	then := ""
	switch {
	case isFullPull(spec):
		then = "A full pull of " + repository + " compares every file and overwrites what was changed by hand."
	case slices.Contains([]string{"delete", "migrate", "deleteResources"}, action):
		then = action + " of " + repository + ": " + admission.JobForms[action].Then
	}
	if then != "" {
		if err := e.Confirm(ctx, then); err != nil {
			return err
		}
	}
	create := func(s *command.Session, namespace string) error {
		if err := how.check(e, s); err != nil {
			return err
		}
		if err := checkPaths(ctx, e, s, request{namespace, repository, spec, notes}); err != nil {
			return err
		}
		u, err := submit(ctx, e, s, request{namespace, repository, spec, notes}, how)
		results := repos.TestResults{}
		if command.StatusCode(err) == http.StatusFailedDependency {
			results = checkAgain(ctx, e, s, namespace, repository)
		}
		switch {
		case len(results.Errors) > 0: // newer than those of the status
			return command.Errorf(command.ExitError, command.CommandFor(namespace, "repo test "+repository),
				"the repository is not healthy: %s", results.Errors[0].Detail)
		case results.Success:
			for over := time.Now().Add(checkWait); command.StatusCode(err) == http.StatusFailedDependency && time.Now().Before(over); {
				command.Sleep(ctx, minPoll)
				u, err = submit(ctx, e, s, request{namespace, repository, spec, notes}, how)
			}
		}
		if command.StatusCode(err) == http.StatusFailedDependency {
			return command.WithHint(err, command.CommandFor(namespace, "repo test "+repository))
		}
		if cause, ok := apierrors.StatusCause(err, metav1.CauseTypeForbidden); ok && cause.Field == "spec.workflows" {
			return command.WithHint(err, command.CommandFor(namespace, "repo set "+repository+" --workflows write,branch"))
		}
		if cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueNotSupported); ok && cause.Field == "spec.action" {
			return command.Usagef(command.CommandFor(namespace, "job create "+repository),
				"no agent serves %v: %s", spec["action"], cause.Message)
		}
		if err != nil {
			return err
		}
		return how.finish(ctx, e, s, u, "created")
	}
	if !slices.Contains(api.OrphanActions, action) {
		return e.WithObject(ctx, command.Needs{API: true}, api.Repositories, repository, func(s *command.Session,
			repo *unstructured.Unstructured) error {
			paused, _ := Suspensions(ctx, s) // 'repo list' reports the error
			if slices.ContainsFunc(paused, func(one repos.Suspension) bool { return one.UID == string(repo.GetUID()) }) {
				e.Notef("%s is suspended on this agent, so it is not pulled by itself; this job runs. To end that: %s", repository,
					e.CommandFor(repo.GetNamespace(), "repo resume "+repository))
			}
			return create(s, repo.GetNamespace())
		})
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		repo, err := s.Find(ctx, api.Repositories, e.Flags.ListNamespace(), repository)
		switch {
		case apierrors.IsNotFound(err):
			return create(s, e.Flags.OneNamespace())
		case err != nil:
			return err
		case repo.GetDeletionTimestamp() == nil:
			return command.Errorf(command.ExitError, command.CommandFor(repo.GetNamespace(), "delete repository "+repository),
				"%s is for repositories that are deleted, but repository %q exists", action, repository)
		}
		return create(s, repo.GetNamespace())
	})
}

// checkWait is how long the health of a repository may take to be written after a check.
const checkWait = 10 * time.Second

// checkAgain has the daemon check a repository whose last check failed; zero = it cannot. The daemon writes into the status
// that it is healthy.
func checkAgain(ctx context.Context, e *command.Env, s *command.Session, namespace, repository string) (results repos.TestResults) {
	if s.Daemon == nil {
		return results
	}
	repo, err := s.Client.Resource(api.Repositories).Namespace(namespace).Get(ctx, repository, metav1.GetOptions{})
	if same, serves := e.Serves(ctx, s.Daemon); err == nil && serves == nil && same {
		results, _ = s.Daemon.Test(ctx, repo)
	}
	return results
}

// checkPaths returns an error for a delete or move of what the branch does not have. Only a daemon can look into Git; when
// it cannot answer in time, the job itself says so.
func checkPaths(ctx context.Context, e *command.Env, s *command.Session, r request) error {
	if action := r.spec["action"]; s.Daemon == nil || action != "delete" && action != "move" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	if same, err := e.Serves(limited, s.Daemon); err != nil || !same {
		return nil
	}
	plan, err := s.Daemon.Preview(limited, worker.PreviewQuery{Namespace: r.namespace, Repository: r.repository, Job: r.spec})
	if err != nil {
		return nil
	}
	return missing(plan)
}

// missing returns an error for the paths of a plan that the branch does not have.
func missing(plan *worker.Preview) error {
	if len(plan.Missing) == 0 {
		return nil
	}
	return command.Errorf(command.ExitError, command.CommandFor(plan.Namespace, "repo files "+plan.Repository),
		"branch %s does not have %s", plan.Branch, strings.Join(plan.Missing, ", "))
}

// SuspensionStore returns the daemon, or the suspensions in the state file; nil when the session has neither.
func SuspensionStore(ctx context.Context, s *command.Session) (control.Suspender, error) {
	switch {
	case s.Daemon != nil:
		return s.Daemon, nil
	case s.File != nil:
		return repos.OpenSuspensions(ctx, s.File)
	}
	return nil, nil
}

// Suspensions lists the suspended repositories of a session.
func Suspensions(ctx context.Context, s *command.Session) ([]repos.Suspension, error) {
	who, err := SuspensionStore(ctx, s)
	if who == nil || err != nil {
		return nil, err
	}
	return who.Suspended(ctx)
}

// A repository has one job of a kind at a time, and its agent creates pulls too. A call that waits for a
// pending job of the same kind waits for that one. One that is running may have read older commits: a new one
// is created after its end.

type request struct {
	namespace, repository string
	spec                  map[string]any
	notes                 map[string]string // annotations
}

// name returns the name under which the API queues the job.
func (r request) name() string {
	action, _ := r.spec["action"].(string)
	name := api.JobName(r.repository, action)
	if pr, ok := r.spec["pr"].(map[string]any); ok && action == "pr" {
		name = fmt.Sprintf("%s-%v", name, pr["pr"])
	}
	return name
}

// submit creates the job. When how waits, it returns an equal pending job instead of an error.
func submit(ctx context.Context, e *command.Env, s *command.Session, r request, how WaitFlags) (*unstructured.Unstructured, error) {
	for gone := false; ; {
		made, refused := s.Client.Submit(ctx, r.namespace, r.repository, r.spec, r.notes)
		if !apierrors.IsAlreadyExists(refused) {
			return made, refused
		}
		there, err := s.Client.Resource(api.Jobs).Namespace(r.namespace).Get(ctx, r.name(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !gone: // it ended between the two requests
			gone = true
			continue
		case err != nil: // its spec is unknown
			return nil, r.refusal(nil, refused)
		case !how.Waits() || !r.satisfiedBy(there):
			return nil, r.refusal(there, refused)
		case isPending(there):
			view, _ := api.JobView(there)
			e.Notef("%s (%s) is there already; this waits for its end", there.GetName(), actionText(view.Spec))
			return there, nil
		}
		e.Notef("%s has begun already; this asks again after its end", there.GetName())
		f := newFollower(e, s, there, how.Progress)
		err = f.watch(ctx)
		if f.bar.erase(); err != nil {
			return nil, err
		}
		gone = false
	}
}

// isPending reports whether a job is pending and not being cancelled.
func isPending(job *unstructured.Unstructured) bool {
	view, err := api.JobView(job)
	return err == nil && job.GetDeletionTimestamp() == nil && job.GetLabels()[api.LabelClaim] == "" &&
		api.Annotation(job, api.AnnoCancel) == "" && stateText(view.Status.State) == api.StatePending
}

// refusal explains why a job is not created beside an existing one; there is nil when that is unknown.
func (r request) refusal(there *unstructured.Unstructured, err error) error {
	watch, options := command.CommandFor(r.namespace, "job watch "+r.name()), ""
	if there != nil && !r.satisfiedBy(there) {
		watch, options = watch+"    # then this command again", ", with other options"
	}
	return command.Errorf(command.ExitError, watch, "repository %q has a job of this kind already%s: %w", r.repository, options, err)
}

func specOf(job *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(job.Object, "spec")
	return spec
}

// satisfiedBy reports whether a job does what is requested. A full pull includes an incremental one.
func (r request) satisfiedBy(there *unstructured.Unstructured) bool {
	spec, notes := specOf(there), there.GetAnnotations()
	if p, ok := r.notes[api.AnnoPriority]; ok && notes[api.AnnoPriority] != p {
		return false
	}
	return spec["repository"] == r.repository && notes[api.AnnoAllowMassDelete] == r.notes[api.AnnoAllowMassDelete] &&
		(!isFullPull(r.spec) || isFullPull(spec)) && reflect.DeepEqual(options(spec), options(r.spec))
}

func isFullPull(spec map[string]any) bool {
	incremental, _, _ := unstructured.NestedBool(spec, "pull", "incremental")
	return spec["action"] == "pull" && !incremental
}

// options returns the options of a spec without the depth of a pull, with the types of JSON.
func options(spec map[string]any) (out map[string]any) {
	if data, err := json.Marshal(spec); err != nil || json.Unmarshal(data, &out) != nil {
		return nil
	}
	delete(out, "repository")
	if pull, ok := out["pull"].(map[string]any); ok {
		if delete(pull, "incremental"); len(pull) == 0 {
			delete(out, "pull")
		}
	}
	return out
}

// Preview prints what a job of a repository would do now, in its namespace. Nothing is written.
func Preview(ctx context.Context, e *command.Env, q worker.PreviewQuery) error {
	return e.WithTester(ctx, true, func(s *command.Session, who control.Tester) error {
		u, err := e.FindObject(ctx, s, api.Repositories, q.Repository)
		if err != nil {
			return err
		}
		q.Namespace = u.GetNamespace()
		plan, err := who.Preview(ctx, q)
		if err != nil {
			return err
		}
		err = e.PrintOne(plan, "repository/"+q.Repository, func(w io.Writer) { printPreview(e, w, plan) })
		return cmp.Or(err, missing(plan))
	})
}

func printPreview(e *command.Env, w io.Writer, plan *worker.Preview) {
	t := command.Table{Columns: []string{"ACTION", "KIND", "NAME", "FILE", "REASON"}, Wide: []string{"FROM"}}
	if plan.Action == "move" { // without it the plan does not name the files
		t.Columns, t.Wide = append(t.Columns, t.Wide...), nil
	}
	counts, actions, rows := map[string]int{}, []string{}, 0
	for _, c := range plan.Changes {
		if counts[c.Action]++; counts[c.Action] == 1 {
			actions = append(actions, c.Action)
		}
		if c.Action == worker.PreviewNoop && e.Flags.Output != "wide" {
			continue
		}
		rows++
		t.Add(plan.Namespace, c.Path, c.Action, text.OrDash(c.Kind), text.OrDash(c.Name), text.OrDash(c.Path), text.OrDash(c.Reason),
			text.OrDash(c.From))
	}
	if rows > 0 {
		t.Write(w, e.Flags.Output == "wide", !e.Flags.NoHeaders)
	}
	for i, action := range actions {
		actions[i] = fmt.Sprintf("%d %s", counts[action], action)
	}
	if len(actions) == 0 {
		actions = []string{"nothing to do"}
	}
	head := fmt.Sprintf("%s of %s on %s, after %s", plan.Action, plan.Repository, plan.Branch, text.OrDash(text.ShortRef(plan.To)))
	if plan.Action == "pull" {
		head = fmt.Sprintf("%s pull of %s, %s to %s", map[bool]string{true: "incremental", false: "full"}[plan.Incremental],
			plan.Repository, text.OrDash(text.ShortRef(plan.From)), text.ShortRef(plan.To))
	}
	fmt.Fprintf(w, "%s: %s\n", head, strings.Join(actions, ", "))
	for _, more := range []string{plan.Guarded, plan.Message} {
		if more != "" {
			fmt.Fprintln(w, more)
		}
	}
}
