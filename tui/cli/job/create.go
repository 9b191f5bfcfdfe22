package job

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
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
			command.Suggestion(c.Action, admission.JobActions), strings.Join(admission.JobActions, ", "))
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
			if _, suspended := paused[repo.GetUID()]; suspended {
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

// checkAgain has the daemon check a repository whose last check failed; zero = it cannot. The
// daemon writes into the status that it is healthy.
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

// checkPaths returns an error for a delete or move of what the branch does not have. Only a daemon
// can look into Git; when it cannot answer in time, the job itself says so.
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
