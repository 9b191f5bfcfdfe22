package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Repository is a typed view of a Repository.
type Repository struct {
	Spec   RepositorySpec         `json:"spec"`
	Secure map[string]SecureValue `json:"secure"`
	Status RepositoryStatus       `json:"status"`

	GitRef         string `json:"-"` // annotation AnnoGitRef
	RolledBack     bool   `json:"-"` // has the annotation AnnoGitRefUnpinned, perhaps empty
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
	// Workflows are the ways in which changes may be written back; none = the Repository is only read.
	Workflows []string    `json:"workflows,omitempty"`
	Commit    *CommitSpec `json:"commit,omitempty"`
	Webhook   *struct {
		BaseURL  string `json:"baseUrl,omitempty"`
		Disabled bool   `json:"disabled,omitempty"`
	} `json:"webhook,omitempty"`
}

// CommitSpec holds author, committer and signing of the commits that jobs make.
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
	// RequestLimits bound the requests to the host of a Repository of type git.
	RequestLimits RequestLimits `json:"requestLimits,omitzero"`
}

// RequestLimits bound requests; 0 = no bound. A Burst of 0 is 1.
type RequestLimits struct {
	MaxConcurrent     int `json:"maxConcurrent,omitempty"`
	RequestsPerSecond int `json:"requestsPerSecond,omitempty"`
	Burst             int `json:"burst,omitempty"`
}

// SecureValue is a write-only value as answers show it: a name, of a Secret or of what the server
// keeps itself.
type SecureValue struct {
	Name string `json:"name,omitempty"`
}

// RepositoryStatus holds the fields that limpet reads. All times are milliseconds since the epoch.
type RepositoryStatus struct {
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	Health             HealthState `json:"health"`
	Sync               SyncStatus  `json:"sync"`
	Stats              []struct {
		Group    string `json:"group"`
		Resource string `json:"resource"`
		Count    int64  `json:"count"`
	} `json:"stats,omitempty"`
	// DeleteError is what keeps a Repository that is being deleted, and Deletion the same in parts;
	// see Blocked.
	DeleteError string          `json:"deleteError,omitempty"`
	Deletion    *DeletionStatus `json:"deletion,omitempty"`
	Conditions  []Condition     `json:"conditions,omitempty"`
	FieldErrors []FieldError    `json:"fieldErrors,omitempty"`
	Quota       QuotaStatus     `json:"quota"`
	Token       TokenStatus     `json:"token"`
	Webhook     *WebhookStatus  `json:"webhook,omitempty"`
}

// DeletionStatus is what keeps a Repository that is being deleted. Older servers write one
// Finalizer and Message in place of Errors.
type DeletionStatus struct {
	State     string          `json:"state,omitempty"`
	Errors    []DeletionError `json:"errors,omitempty"`
	Finalizer string          `json:"finalizer,omitempty"`
	Message   string          `json:"message,omitempty"`
}

// Grafana's words for a deletion that a finalizer blocks.
const (
	DeletionBlocked             = "blocked"
	DeletionWebhookRemovalError = "WebhookRemovalFailed"
)

// DeletionError is why a finalizer cannot be removed. Target is the object that is in the way.
type DeletionError struct {
	Code      string          `json:"code,omitempty"`
	Detail    string          `json:"detail,omitempty"`
	Finalizer string          `json:"finalizer,omitempty"`
	Target    *DeletionTarget `json:"target,omitempty"`
}

// DeletionTarget names an object.
type DeletionTarget struct {
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource,omitempty"`
	Name     string `json:"name,omitempty"`
}

func (e DeletionError) String() string {
	if e.Finalizer == "" || strings.HasPrefix(e.Detail, e.Finalizer+": ") {
		return e.Detail
	}
	return e.Finalizer + ": " + e.Detail
}

// Blocked returns what keeps a Repository that is being deleted, whichever shape the server gives
// it.
func (s RepositoryStatus) Blocked() []DeletionError {
	switch d := s.Deletion; {
	case d != nil && len(d.Errors) > 0:
		return d.Errors
	case d != nil && d.Finalizer+d.Message != "":
		return []DeletionError{{Detail: d.Message, Finalizer: d.Finalizer}}
	case s.DeleteError != "":
		finalizer, _, _ := strings.Cut(s.DeleteError, ": ")
		return []DeletionError{{Detail: s.DeleteError, Finalizer: finalizer}}
	}
	return nil
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

// FieldError is a fault of one member of the spec, for clients that show it beside the field.
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
	// Source is what the target was made from, beside LastRef.
	Source SyncSource `json:"source,omitzero"`
}

// SyncSource names the last pull that was accepted: the next one starts from its result, and other
// hosts may repeat it. It is zero where it is unknown, also after a pull that has failed among its
// writes.
type SyncSource struct {
	Hash            string `json:"hash,omitempty"`            // of what the target depends on beside the commit
	AllowMassDelete bool   `json:"allowMassDelete,omitempty"` // AnnoAllowMassDelete of a Job that pulled LastRef
}

// UnhealthyText is the message of status.sync while a Repository is unhealthy, with the state
// error. Source: Grafana.
const UnhealthyText = "Repository is unhealthy"

// PullState returns the state of the last pull, also where status.sync has the state of the health;
// "" when none has ended.
func (s RepositoryStatus) PullState() string {
	if s.Sync.State != StateError || s.Sync.Finished > 0 && !slices.Contains(s.Sync.Message, UnhealthyText) {
		return s.Sync.State
	}
	for _, c := range s.Conditions {
		switch {
		case s.Sync.Finished == 0 || c.Type != ConditionSyncStatus:
		case c.Status == "True":
			return StateSuccess
		case c.Reason == ReasonSyncFailed:
			return StateError
		default:
			return StateWarning
		}
	}
	return ""
}

// Pinned returns the commit that the Repository is pinned to by its annotation, "" when it is not.
func (r Repository) Pinned() string {
	commit, pinned := strings.CutPrefix(r.GitRef, RefCommit)
	if !pinned {
		return ""
	}
	return commit
}

// Block returns the block that the type of the Repository names, or nil.
func (s RepositorySpec) Block() *GitBlock {
	return map[string]*GitBlock{
		"local": s.Local, "github": s.GitHub, "githubEnterprise": s.GitHubEnterprise,
		"git": s.Git, "bitbucket": s.Bitbucket, "gitlab": s.GitLab,
	}[s.Type]
}

// GitBlock returns a copy of that block, an empty one where there is none.
func (s RepositorySpec) GitBlock() GitBlock { return *cmp.Or(s.Block(), new(GitBlock)) }

// Dir returns the directory below the root of a commit that is pulled; "" is the root, as for a
// directory of plain files, where the path names the root itself.
func (s RepositorySpec) Dir() string {
	if b := s.Block(); b != nil && s.Type != "local" {
		return strings.Trim(b.Path, "/")
	}
	return ""
}

// RepositoryView reads a Repository in the same lenient way.
func RepositoryView(u *unstructured.Unstructured) (Repository, error) {
	r, err := view[Repository](u)
	r.GitProvider, r.GitRef = Annotation(u, AnnoGitProvider), Annotation(u, AnnoGitRef)
	r.GitProxySecret, r.GitMirrors = Annotation(u, AnnoGitProxySecret), Annotation(u, AnnoGitMirrors)
	r.GitVerify, r.GitVerifyPrincipals = Annotation(u, AnnoGitVerify), Annotation(u, AnnoGitVerifyPrincipals)
	_, r.RolledBack = u.GetAnnotations()[AnnoGitRefUnpinned]
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

// ConditionDrifted is True while the server has something else than the commit that was synced
// last; limpet's own.
const ConditionDrifted = "Drifted"

// Values of AnnoDrift.
const (
	DriftReport  = "report" // the default: differences are looked for and reported
	DriftCorrect = "correct"
	DriftOff     = "off"
)

// DriftModes are the values of AnnoDrift.
var DriftModes = []string{DriftReport, DriftCorrect, DriftOff}

// DriftMode returns what is done about drift of a Repository.
func DriftMode(repo *unstructured.Unstructured) string {
	return cmp.Or(Annotation(repo, AnnoDrift), DriftReport)
}

const maxPointers = 100

var pointerForm = regexp.MustCompile(`^(/([^~/]|~[01])+)+$`)

// ParsePointers reads AnnoDriftIgnore: JSON pointers of RFC 6901, separated by commas or line ends.
// A segment "*" stands for each member or element.
func ParsePointers(text string) (out [][]string, err error) {
	for _, pointer := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		if pointer = strings.TrimSpace(pointer); pointer == "" {
			continue
		}
		if !pointerForm.MatchString(pointer) {
			return nil, fmt.Errorf("%q is no JSON pointer, such as /spec/refresh", pointer)
		}
		segments := strings.Split(pointer[1:], "/")
		for i, s := range segments {
			segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
		if out = append(out, segments); len(out) > maxPointers {
			return nil, fmt.Errorf("more than %d pointers", maxPointers)
		}
	}
	return out, nil
}

// Connections is the resource of Connection objects.
var Connections = schema.GroupVersionResource{Group: ProvisioningGroup, Version: "v0alpha1", Resource: "connections"}

// Connection is a typed view of a Connection.
type Connection struct {
	Spec   ConnectionSpec         `json:"spec"`
	Secure map[string]SecureValue `json:"secure"`
	Status ConnectionStatus       `json:"status"`
}

// ConnectionStatus holds the fields that limpet reads.
type ConnectionStatus struct {
	ObservedGeneration int64        `json:"observedGeneration,omitempty"`
	Health             HealthState  `json:"health"`
	Conditions         []Condition  `json:"conditions,omitempty"`
	FieldErrors        []FieldError `json:"fieldErrors,omitempty"`
	Token              TokenStatus  `json:"token"`
}

// ConnectionSpec holds the fields that limpet acts on.
type ConnectionSpec struct {
	Title            string     `json:"title"`
	Type             string     `json:"type"`
	URL              string     `json:"url,omitempty"`
	GitHub           *GitHubApp `json:"github,omitempty"`
	GitHubEnterprise *GitHubApp `json:"githubEnterprise,omitempty"`
	EnterpriseOAuth  *struct {
		ServerURL string `json:"serverUrl"`
	} `json:"githubEnterpriseOAuth,omitempty"`
	Bitbucket *struct {
		Workspace string `json:"workspace"`
	} `json:"bitbucket,omitempty"`
	Webhook *struct {
		Disabled bool `json:"disabled,omitempty"`
	} `json:"webhook,omitempty"`
}

// GitHubApp is the identity of a GitHub App: numbers, written as text. ServerURL is that of a
// GitHub Enterprise server.
type GitHubApp struct {
	AppID          string `json:"appID"`
	InstallationID string `json:"installationID"`
	ServerURL      string `json:"serverUrl,omitempty"`
}

// ConnectionView reads a Connection as leniently as RepositoryView reads a Repository.
func ConnectionView(u *unstructured.Unstructured) (Connection, error) { return view[Connection](u) }

// Server is the address of the host that a Connection is for, "" when its spec has none. It need
// not be a valid URL.
func (s ConnectionSpec) Server() string {
	switch s.Type {
	case "github", "githubOAuth":
		return cmp.Or(s.URL, "https://github.com")
	case "githubEnterprise":
		if s.GitHubEnterprise != nil {
			return s.GitHubEnterprise.ServerURL
		}
	case "githubEnterpriseOAuth":
		if s.EnterpriseOAuth != nil {
			return s.EnterpriseOAuth.ServerURL
		}
	case "gitlab":
		return cmp.Or(s.URL, "https://gitlab.com")
	case "bitbucket":
		return cmp.Or(s.URL, "https://bitbucket.org")
	}
	return ""
}
