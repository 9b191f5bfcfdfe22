package api

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Labels and annotations of the wire. Source: Grafana's job store and its
// resource metadata; the limpet/ ones are ours.
const (
	LabelClaim         = "provisioning.grafana.app/claim"
	LabelClaimOwner    = "provisioning.grafana.app/claim-owner"
	LabelRepository    = "provisioning.grafana.app/repository"
	LabelOriginalUID   = "provisioning.grafana.app/original-uid"
	LabelPendingDelete = "cloud.grafana.com/pending-delete"

	AnnoManagedBy          = "grafana.app/managedBy"
	AnnoManagerID          = "grafana.app/managerId"
	AnnoManagerAllowsEdits = "grafana.app/managerAllowsEdits"
	AnnoSourcePath         = "grafana.app/sourcePath"
	AnnoSourceChecksum     = "grafana.app/sourceChecksum"
	AnnoFolder             = "grafana.app/folder"
	AnnoGrantPermissions   = "grafana.app/grant-permissions"
	LabelDeprecatedID      = "grafana.app/deprecatedInternalID"

	// AnnoSinkDir names a directory under a --sink-prefix that receives the
	// tree of the Repository instead of the API.
	AnnoSinkDir = "limpet/sink-dir"
	// AnnoGitProvider on a Repository names who makes its Git credentials of an
	// identity: aws, azure, gcp, github, gitlab; generic = nobody.
	AnnoGitProvider = "limpet/git-provider"
	// AnnoGitRef on a Repository names what is pulled in place of the branch of its
	// spec: tag:NAME, semver:RANGE, ref:FULLNAME or commit:SHA; see package revision.
	AnnoGitRef = "limpet/git-ref"
	// AnnoGitProxySecret on a Repository names a Secret in its namespace with the
	// proxy to its Git host: the keys address, username and password.
	AnnoGitProxySecret = "limpet/git-proxy-secret"
	// AnnoGitMirrors on a Repository lists other URLs of the same repository, with blanks
	// or commas between them, which are asked while that of its spec is unreachable.
	AnnoGitMirrors = "limpet/git-mirrors"
	// AnnoGitLFS on a Repository, with the value false, leaves files in Git LFS out.
	AnnoGitLFS = "limpet/git-lfs"
	// AnnoGitVerify on a Repository names what has to be signed before it is pulled:
	// HEAD, Tag or TagAndHEAD.
	AnnoGitVerify = "limpet/git-verify"
	// AnnoGitVerifyPrincipals on a Repository names, with commas, the persons of whom
	// one has to be the owner of the key; "committer" is who the commit or tag names.
	AnnoGitVerifyPrincipals = "limpet/git-verify-principals"
	// AnnoGitSubmodules on a Repository, with the value true, pulls submodules as well.
	AnnoGitSubmodules = "limpet/git-submodules"
	// AnnoAllowMassDelete on a Job lets a pull delete more than the guard allows.
	AnnoAllowMassDelete = "limpet/allow-mass-delete"
	// AnnoAttempt on a Job counts the claims that ended without a result.
	AnnoAttempt = "limpet/attempt"
	// AnnoNotBefore on a Job is the server time in milliseconds before which it
	// is not claimed again: the rest between two attempts.
	AnnoNotBefore = "limpet/not-before"
	// AnnoCancel on a Job asks its owner to stop; the value is the reason.
	AnnoCancel = "limpet/cancel"
	// AnnoPriority on a Job, or on a Repository for all its jobs, is 0 to 9; 9 is
	// most urgent, 5 is that of a job without it.
	AnnoPriority = "limpet/priority"
	// AnnoAttempts on a Job lists, as JSON, the attempts that have ended without a
	// result, so that whoever ends the job can tell of all of them.
	AnnoAttempts = "limpet/attempts"
	// AnnoAgent on a Job names the agent that claimed it last.
	AnnoAgent = "limpet/agent"
	// AnnoRetryOf on a Job is the UID of the finished job that it repeats.
	AnnoRetryOf = "limpet/retry-of"
)

// Finalizers of a Repository, in the order in which they are worked off.
// Source: Grafana's repository controller.
const (
	FinalizerRemoveJobs = "remove-pending-jobs"
	FinalizerCleanup    = "cleanup"
	FinalizerRelease    = "release-orphan-resources"
	FinalizerRemove     = "remove-orphan-resources"
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

// JobSpec says what to do. Only the option block of Action is looked at.
type JobSpec struct {
	Action     string            `json:"action"`
	Repository string            `json:"repository"`
	Message    string            `json:"message,omitempty"` // of the commit that the job makes
	Pull       *PullOptions      `json:"pull,omitempty"`
	Delete     *SelectionOptions `json:"delete,omitempty"`
	Move       *SelectionOptions `json:"move,omitempty"`
}

// PullOptions are the options of a pull job.
type PullOptions struct {
	Incremental bool `json:"incremental"`
}

// SelectionOptions are the options of jobs that change what they name: delete and move.
type SelectionOptions struct {
	// Ref is the branch to write to; "" = the one of the Repository, which is pulled then.
	Ref string `json:"ref,omitempty"`
	// Paths are files, and with a slash at their end directories, below the path of
	// the Repository.
	Paths     []string      `json:"paths,omitempty"`
	Resources []ResourceRef `json:"resources,omitempty"`
	// TargetPath is the directory that is moved to, with a slash at its end.
	TargetPath string `json:"targetPath,omitempty"`
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
}

// Repository is a typed view of a Repository.
type Repository struct {
	Spec   RepositorySpec         `json:"spec"`
	Secure map[string]SecureValue `json:"secure"`
	Status RepositoryStatus       `json:"status"`

	GitRef         string `json:"-"` // annotation AnnoGitRef
	GitProvider    string `json:"-"` // annotation AnnoGitProvider
	GitProxySecret string `json:"-"` // annotation AnnoGitProxySecret
	GitMirrors     string `json:"-"` // annotation AnnoGitMirrors

	GitVerify           string `json:"-"` // annotation AnnoGitVerify
	GitVerifyPrincipals string `json:"-"` // annotation AnnoGitVerifyPrincipals
}

// RepositorySpec holds the fields that limpet acts on.
type RepositorySpec struct {
	Title            string    `json:"title"`
	Type             string    `json:"type"`
	Sync             SyncSpec  `json:"sync"`
	Local            *GitBlock `json:"local,omitempty"`
	GitHub           *GitBlock `json:"github,omitempty"`
	GitHubEnterprise *GitBlock `json:"githubEnterprise,omitempty"`
	Git              *GitBlock `json:"git,omitempty"`
	Bitbucket        *GitBlock `json:"bitbucket,omitempty"`
	GitLab           *GitBlock `json:"gitlab,omitempty"`
	Connection       *struct {
		Name string `json:"name"`
	} `json:"connection,omitempty"`
	// Workflows are the ways in which changes may be written back; none = the
	// Repository is only read.
	Workflows []string    `json:"workflows,omitempty"`
	Commit    *CommitSpec `json:"commit,omitempty"`
	Webhook   *struct {
		BaseURL  string `json:"baseUrl,omitempty"`
		Disabled bool   `json:"disabled,omitempty"`
	} `json:"webhook,omitempty"`
}

// CommitSpec says by whom the commits are that jobs make.
type CommitSpec struct {
	AuthorName     string `json:"authorName,omitempty"`
	AuthorEmail    string `json:"authorEmail,omitempty"`
	SignerName     string `json:"signerName,omitempty"` // the committer, whose key signs
	SignerEmail    string `json:"signerEmail,omitempty"`
	SignerIsAuthor bool   `json:"signerIsAuthor,omitempty"`
	SigningMethod  string `json:"signingMethod,omitempty"` // gpg, ssh or smime
}

// SyncSpec says whether, where to and how often a Repository is pulled.
type SyncSpec struct {
	Enabled         bool   `json:"enabled"`
	Target          string `json:"target"`
	IntervalSeconds int64  `json:"intervalSeconds,omitempty"`
}

// GitBlock is the block of a Repository's spec that its type names. Path is a
// directory below the root; slashes at its ends mean nothing.
type GitBlock struct {
	URL       string `json:"url,omitempty"`
	Branch    string `json:"branch,omitempty"`
	Path      string `json:"path,omitempty"`
	TokenUser string `json:"tokenUser,omitempty"`
}

// SecureValue is a write-only value as answers show it: a name, of a Secret or
// of what the server keeps itself.
type SecureValue struct {
	Name string `json:"name,omitempty"`
}

// RepositoryStatus holds the fields that limpet reads. All times are
// milliseconds since the epoch.
type RepositoryStatus struct {
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	Health             HealthState `json:"health"`
	Sync               SyncStatus  `json:"sync"`
	Stats              []struct {
		Group    string `json:"group"`
		Resource string `json:"resource"`
		Count    int64  `json:"count"`
	} `json:"stats,omitempty"`
	// DeleteError is what keeps a Repository that is being deleted.
	DeleteError string         `json:"deleteError,omitempty"`
	Conditions  []Condition    `json:"conditions,omitempty"`
	FieldErrors []FieldError   `json:"fieldErrors,omitempty"`
	Quota       QuotaStatus    `json:"quota"`
	Token       TokenStatus    `json:"token"`
	Webhook     *WebhookStatus `json:"webhook,omitempty"`
}

// WebhookStatus is about the webhook that was made for a Repository. Its host
// knows it by a number or, on Bitbucket, by a UUID.
type WebhookStatus struct {
	ID          int64    `json:"id,omitempty"`
	UUID        string   `json:"uuid,omitempty"`
	URL         string   `json:"url,omitempty"`
	Events      []string `json:"subscribedEvents,omitempty"`
	LastEvent   int64    `json:"lastEvent,omitempty"`
	LastRotated int64    `json:"lastRotated,omitempty"`
}

// FieldError is a fault of one member of the spec, for clients that show it
// beside the field.
type FieldError struct {
	Type     string `json:"type,omitempty"` // of field.Error, such as FieldValueInvalid
	Field    string `json:"field,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Origin   string `json:"origin,omitempty"`
	BadValue any    `json:"badValue,omitempty"`
}

// QuotaStatus are the limits that hold for a Repository; 0 is none.
type QuotaStatus struct {
	MaxRepositories           int64 `json:"maxRepositories,omitempty"`
	MaxResourcesPerRepository int64 `json:"maxResourcesPerRepository,omitempty"`
}

// TokenStatus is about a token that was minted. An Expiration of 0 is never.
type TokenStatus struct {
	LastUpdated int64 `json:"lastUpdated,omitempty"`
	Expiration  int64 `json:"expiration,omitempty"`
}

// HealthState is the last health check of a Repository or Connection.
type HealthState struct {
	Healthy bool     `json:"healthy"`
	Error   string   `json:"error,omitempty"` // "health" or "hook"; "" when healthy
	Checked int64    `json:"checked,omitempty"`
	Message []string `json:"message,omitempty"`
}

// SyncStatus is the part of a Repository's status that a pull owns.
type SyncStatus struct {
	State       string   `json:"state"`
	Job         string   `json:"job,omitempty"`
	Started     int64    `json:"started,omitempty"`
	Finished    int64    `json:"finished,omitempty"`
	Message     []string `json:"message"`
	LastRef     string   `json:"lastRef,omitempty"`
	Incremental bool     `json:"incremental,omitempty"`
}

// Block returns the block that the type of the Repository names, or nil.
func (s RepositorySpec) Block() *GitBlock {
	switch s.Type {
	case "local":
		return s.Local
	case "github":
		return s.GitHub
	case "githubEnterprise":
		return s.GitHubEnterprise
	case "git":
		return s.Git
	case "bitbucket":
		return s.Bitbucket
	case "gitlab":
		return s.GitLab
	}
	return nil
}

// JobView reads a Job or HistoricJob. Unknown members are passed over; a member
// of the wrong type is an error that names it.
func JobView(u *unstructured.Unstructured) (Job, error) { return view[Job](u) }

// RepositoryView reads a Repository in the same lenient way.
func RepositoryView(u *unstructured.Unstructured) (Repository, error) {
	r, err := view[Repository](u)
	r.GitProvider, r.GitRef = Annotation(u, AnnoGitProvider), Annotation(u, AnnoGitRef)
	r.GitProxySecret, r.GitMirrors = Annotation(u, AnnoGitProxySecret), Annotation(u, AnnoGitMirrors)
	r.GitVerify, r.GitVerifyPrincipals = Annotation(u, AnnoGitVerify), Annotation(u, AnnoGitVerifyPrincipals)
	return r, err
}

func view[T any](u *unstructured.Unstructured) (T, error) {
	var out T
	members := maps.Clone(u.Object)
	delete(members, "metadata") // often the largest, and no view needs all of it
	data, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return out, fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return out, nil
}

// JobName is the name that Grafana's server gives a job of this action, so that
// a second one of the same kind is refused. Jobs of actions "pr" and "test"
// carry a number of their own behind it.
func JobName(repository, action string) string {
	switch action {
	case "pull", "migrate":
		return repository + "-sync"
	}
	return repository + "-" + action
}
