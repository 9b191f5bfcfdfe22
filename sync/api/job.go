package api

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Job states of the wire. An empty state means the same as StatePending.
const (
	StatePending = "pending"
	StateWorking = "working"
	StateSuccess = "success"
	StateWarning = "warning"
	StateError   = "error"
)

// Job is a typed view of a Job or HistoricJob. It holds what limpet reads; the
// object it was made from stays the truth for writes.
type Job struct {
	Spec   JobSpec   `json:"spec"`
	Status JobStatus `json:"status"`
}

// JobSpec says what to do. Only the option block of Action is read.
type JobSpec struct {
	Action     string            `json:"action"`
	Repository string            `json:"repository"`
	Message    string            `json:"message,omitempty"` // of the commit that the job makes
	Pull       *PullOptions      `json:"pull,omitempty"`
	Delete     *SelectionOptions `json:"delete,omitempty"`
	Move       *SelectionOptions `json:"move,omitempty"`
	Test       *TestOptions      `json:"test,omitempty"`
	FixFolders *SelectionOptions `json:"fixFolderMetadata,omitempty"` // of which only Ref is read
	Push       *ExportOptions    `json:"push,omitempty"`
	Migrate    *ExportOptions    `json:"migrate,omitempty"`

	PR *struct { // the branch, its commit and the page, which a webhook adds, are read anew
		Number int64 `json:"pr"`
	} `json:"pr,omitempty"`
}

// ExportOptions are the options of jobs that write objects of the API to files: push and migrate.
type ExportOptions struct {
	Message string `json:"message,omitempty"` // of the commit, unless the job brings one
	// Branch is the branch to write to; "" = the one of the Repository.
	Branch string `json:"branch,omitempty"`
	// Folder and Path are of a push: the folder with all that is exported, and the directory to write
	// to.
	Folder string `json:"folder,omitempty"`
	Path   string `json:"path,omitempty"`
	// Resources are the dashboards to export; none = all folders and dashboards without a manager.
	Resources []ResourceRef `json:"resources,omitempty"`
	// GenerateNewFolderIDs and SkipResourceDeletion are of a migrate.
	GenerateNewFolderIDs bool `json:"generateNewFolderIDs,omitempty"`
	SkipResourceDeletion bool `json:"skipResourceDeletion,omitempty"`
}

// PullOptions are the options of a pull job.
type PullOptions struct {
	Incremental bool `json:"incremental"`
}

// SelectionOptions are the options of jobs that change what they name: delete and move.
type SelectionOptions struct {
	// Ref is the branch to write to; "" = the one of the Repository, which is pulled then.
	Ref string `json:"ref,omitempty"`
	// Paths are files, and with a slash at their end directories, below the path of the Repository.
	Paths     []string      `json:"paths,omitempty"`
	Resources []ResourceRef `json:"resources,omitempty"`
	// TargetPath is the directory that is moved to, with a slash at its end.
	TargetPath string `json:"targetPath,omitempty"`
}

// TestOptions are the options of a test job, which only waits and reports progress.
type TestOptions struct {
	Duration        string `json:"duration"` // such as "90s"
	ProgressUpdates int    `json:"progressUpdates,omitempty"`
}

// ResourceRef names an object of the API whose file is meant.
type ResourceRef struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Group string `json:"group,omitempty"`
}

// JobStatus is the progress and the result of a job. Started and Finished are
// milliseconds since the epoch; Progress is 0 to 100 while the job runs.
type JobStatus struct {
	State           string            `json:"state,omitempty"`
	Started         int64             `json:"started,omitempty"`
	Finished        int64             `json:"finished,omitempty"`
	Message         string            `json:"message,omitempty"`
	Errors          []string          `json:"errors,omitempty"`
	Warnings        []string          `json:"warnings,omitempty"`
	Progress        float64           `json:"progress,omitempty"`
	Summary         []JobSummary      `json:"summary,omitempty"`
	URLs            map[string]string `json:"url,omitempty"`
	ProgressUpdates int64             `json:"progressUpdates,omitempty"`
}

// JobSummary counts what a job did to one kind of resource.
type JobSummary struct {
	Group    string   `json:"group,omitempty"`
	Kind     string   `json:"kind,omitempty"`
	Total    int64    `json:"total,omitempty"`
	Create   int64    `json:"create,omitempty"`
	Update   int64    `json:"update,omitempty"`
	Delete   int64    `json:"delete,omitempty"`
	Write    int64    `json:"write,omitempty"`
	Error    int64    `json:"error,omitempty"`
	Warning  int64    `json:"warning,omitempty"`
	Noop     int64    `json:"noop,omitempty"`
	Errors   []string `json:"errors,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// ResourceErrors and ResourceWarnings are the same in parts. Grafana means them to replace Errors
	// and Warnings.
	ResourceErrors   []ResourceIssue `json:"resourceErrors,omitempty"`
	ResourceWarnings []ResourceIssue `json:"resourceWarnings,omitempty"`
}

// ResourceIssue is an error or a warning about the file at Path. Reason is one of Grafana's words,
// "" for others.
type ResourceIssue struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Path    string `json:"path,omitempty"`
}

// JobView reads a Job or HistoricJob. Unknown members are passed over; a member of the wrong type
// is an error that names it. What the server lists by resource alone is in Errors and Warnings too.
func JobView(u *unstructured.Unstructured) (Job, error) {
	j, err := view[Job](u)
	for i := range j.Status.Summary {
		s := &j.Status.Summary[i]
		flatten(&j.Status.Errors, &s.Errors, s.ResourceErrors)
		flatten(&j.Status.Warnings, &s.Warnings, s.ResourceWarnings)
	}
	return j, err
}

// flatten adds issues to the lists of texts, where those of their kind of resource are absent.
func flatten(all, of *[]string, issues []ResourceIssue) {
	if len(*of) > 0 {
		return
	}
	for _, issue := range issues {
		line := strings.TrimPrefix(issue.Path+": "+issue.Message, ": ")
		*of = append(*of, line)
		if !slices.ContainsFunc(*all, func(text string) bool { return strings.Contains(text, issue.Message) }) {
			*all = append(*all, line)
		}
	}
}

// ServedActions are the actions that limpet's workers serve.
var ServedActions = []string{
	"pull",
	"pr",
	"push",
	"migrate",
	"delete",
	"move",
	"fixFolderMetadata",
	"releaseResources",
	"deleteResources",
	"test",
}

// WriteActions are the actions that write to the Git repository.
var WriteActions = []string{"push", "migrate", "move", "delete", "fixFolderMetadata"}

// OrphanActions work on what a Repository has left behind: they need it to be gone or going, as
// every other action needs it to be there.
var OrphanActions = []string{"releaseResources", "deleteResources"}

// claimGrace is how long another program may take to claim a job that limpet does not serve.
const claimGrace = time.Minute

// UnservedAt returns when a job counts as one that no agent serves, unless it is claimed before;
// the zero time for others.
func UnservedAt(job *unstructured.Unstructured) time.Time {
	if slices.Contains(ServedActions, Spec(job, "action")) || Label(job, LabelClaim) != "" {
		return time.Time{}
	}
	return job.GetCreationTimestamp().Add(claimGrace)
}

// JobBeside is the name of a pull while a job that no agent serves has that of JobName.
func JobBeside(repository string) string { return repository + "-pull" }

// JobName is the name that Grafana's server gives a job of this action, so that a second one of the
// same kind is refused. Jobs of actions "pr" and "test" carry a number of their own behind it.
func JobName(repository, action string) string {
	switch action {
	case "pull", "migrate":
		return repository + "-sync"
	}
	return repository + "-" + action
}
