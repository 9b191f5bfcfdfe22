package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/resources"
)

// Repository is the state of a Repository that the answer to a webhook depends on.
type Repository struct {
	Namespace, Name string
	// Secrets may sign the webhook: the current one and, during a rotation, the
	// previous one. Without secrets there is no webhook.
	Secrets [][]byte
	Given   bool // the secret is configured and not created by limpet: there is a webhook, whatever the status says

	URL       string // of the remote
	Branch    string // "" = not known yet
	Revision  string // that is pulled in place of the branch, and may be moved by any push
	Sync      bool   // spec.sync.enabled
	Disabled  bool   // spec.webhook.disabled
	Suspended bool   // a person wants this agent to ask for nothing
	Deleting  bool
	Unhealthy []string // why not, never empty when it is; nil = healthy or not looked at yet
	Hooked    bool     // status.webhook is there
	LastEvent time.Time
}

// repositoryOf reads a Repository object; its secrets are not in it.
func repositoryOf(u *unstructured.Unstructured, view api.Repository) *Repository {
	r := &Repository{Namespace: u.GetNamespace(), Name: u.GetName(), Sync: view.Spec.Sync.Enabled, Deleting: u.GetDeletionTimestamp() != nil,
		Disabled: view.Spec.Webhook != nil && view.Spec.Webhook.Disabled, Hooked: view.Status.Webhook != nil}
	if block := view.Spec.Block(); block != nil {
		r.URL, r.Branch = block.URL, block.Branch
	}
	if r.Revision = view.GitRef; r.Revision != "" {
		r.Branch = ""
	}
	if health := view.Status.Health; health.Checked > 0 && !health.Healthy {
		r.Unhealthy = append([]string{"the repository is not healthy"}, health.Message...)
	}
	if r.Hooked && view.Status.Webhook.LastEvent > 0 {
		r.LastEvent = time.UnixMilli(view.Status.Webhook.LastEvent)
	}
	return r
}

// hasFullName reports whether a full name in a payload is that of the Repository: the
// end of the path of its URL. Payloads lack the directory that a host serves from.
func (r *Repository) hasFullName(fullName string) bool {
	a, err := auth.ParseAddress(r.URL)
	if err != nil {
		return false
	}
	have := strings.ToLower(strings.TrimSuffix(strings.Trim(a.Path, "/"), ".git"))
	name := strings.ToLower(strings.TrimSuffix(strings.Trim(fullName, "/"), ".git"))
	return name != "" && (have == name || strings.HasSuffix(have, "/"+name))
}

// refusal returns why no webhook of this Repository is served, however it is signed; 0 means that it is served.
func (r *Repository) refusal() (code int, why string) {
	switch {
	case r.Deleting:
		return http.StatusConflict, "the repository is being deleted"
	case r.Disabled:
		return http.StatusBadRequest, "webhook integration is disabled for this repository"
	case !r.Hooked && !r.Given:
		return http.StatusBadRequest, "unexpected webhook request"
	case r.Unhealthy != nil:
		return http.StatusFailedDependency, strings.Join(r.Unhealthy, ": ")
	}
	return 0, ""
}

// Verdict is the decision about an event.
type Verdict struct {
	Code    int
	Message string
	Job     map[string]any // spec of the job to queue, without the repository; nil = none
}

// Listed returns the policy of pulls where Grafana's workers may run them: a push is pulled incrementally when its
// payload is complete and has at most so many changes, 0 = any. Where a directory lost the file that stands for it and
// nothing else, Grafana's incremental pull would leave its folder. Source: Grafana's incremental sync policy.
func Listed(most int) func(push Event) bool {
	return func(push Event) bool {
		_, lost := resources.LostMarker(push.Deleted)
		return !push.Partial && (most <= 0 || push.Changes <= most) && !lost
	}
}

// Decide returns the answer to an event, as the endpoint of Grafana does. It is pure.
// incremental is Options.Incremental.
func Decide(r *Repository, e Event, incremental func(push Event) bool) Verdict {
	nothing := func(format string, args ...any) Verdict {
		return Verdict{http.StatusOK, fmt.Sprintf(format, args...), nil}
	}
	switch e.Kind {
	case Ping:
		return nothing("ping received")
	case Push, PullRequest:
	default:
		return Verdict{Code: http.StatusNotImplemented, Message: "unsupported event: " + short(e.Name)}
	}
	ours := slices.Contains(e.Branches, r.Branch) && r.Branch != ""
	switch {
	case !r.hasFullName(e.Repository):
		return Verdict{Code: http.StatusBadRequest, Message: "repository mismatch: the event is about " + short(e.Repository)}
	case r.Suspended:
		return nothing("ignoring the event: the repository is suspended on this agent")
	case e.Kind == Push && !r.Sync:
		return nothing("ignoring push event: sync is disabled")
	case e.Kind == Push && !ours && r.Revision == "":
		return nothing("ignoring push event: it is not about the configured branch")
	case e.Kind == Push:
		return Verdict{http.StatusAccepted, "push", map[string]any{"action": "pull", "pull": map[string]any{
			"incremental": incremental == nil || incremental(e)}}}
	case !ours:
		return nothing("ignoring pull request event as %s is not the configured branch", short(e.Branches[0]))
	case e.Action != Opened && e.Action != Reopened && e.Action != Updated:
		return nothing("ignore pull request event: %s", short(e.Action))
	}
	return Verdict{http.StatusAccepted, "pull request: " + e.Action, map[string]any{"action": "pr", "pr": map[string]any{
		"url": e.URL, "pr": e.Number, "ref": e.HeadRef, "hash": e.Head}}}
}

// maxText bounds foreign text in an answer, in bytes.
const maxText = 200

func short(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}
