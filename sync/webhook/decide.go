package webhook

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	block := view.Spec.GitBlock()
	r.URL, r.Branch = block.URL, block.Branch
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

// refusal returns why no webhook of this Repository is served, however it is signed; 0 means that
// it is served.
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

// Listed returns the policy of pulls where Grafana's workers may run them: a push is pulled
// incrementally when its payload is complete and has at most so many changes, 0 = any. Where a
// directory lost the file that stands for it and nothing else, Grafana's incremental pull would
// leave its folder. Source: Grafana's incremental sync policy.
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

const (
	rememberFor   = 24 * time.Hour // hosts repeat deliveries for hours; a later copy causes one more pull
	maxRemembered = 10_000         // beyond it the oldest are deleted; each has some 70 bytes in the state file
	forgetBatch   = 16             // how many one write forgets at most
	// memoryPrefix begins the keys of the facts: time in milliseconds, in hex, so
	// that their order is that of time. The value is the digest.
	memoryPrefix = "replay/"
)

// Facts is the part of the state file that keeps the memory.
type Facts interface {
	Facts(ctx context.Context, prefix string) (map[string][]byte, error)
	// ChangeFacts writes and forgets facts in one transaction.
	ChangeFacts(ctx context.Context, put map[string][]byte, forget []string) error
}

// memory knows the deliveries that were served, over restarts.
type memory struct {
	facts Facts

	mu    sync.Mutex // guards what follows
	known map[digest]int64
	order []remembered // the oldest first
	last  int64        // the newest time that was given
}

// remembered is one delivery and when it was served, in milliseconds; no two have the same.
type remembered struct {
	at int64
	digest
}

func (r remembered) key() string { return fmt.Sprintf("%s%012x", memoryPrefix, r.at) }

func loadMemory(ctx context.Context, facts Facts) (*memory, error) {
	m := &memory{facts: facts, known: map[digest]int64{}}
	all, err := facts.Facts(ctx, memoryPrefix)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries that were served: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		at, err := strconv.ParseInt(strings.TrimPrefix(key, memoryPrefix), 16, 64)
		if err != nil || len(all[key]) != len(digest{}) {
			continue
		}
		r := remembered{at, digest(all[key])}
		m.known[r.digest], m.order, m.last = r.at, append(m.order, r), r.at
	}
	return m, nil
}

// has reports whether a delivery was served.
func (m *memory) has(d digest, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.known[d]
	return ok && now.Sub(time.UnixMilli(at)) < rememberFor
}

// add remembers a delivery. It is known from now on even when err says that the state file could
// not take it. What is too old or too much goes in the same write, a few at a time.
func (m *memory) add(ctx context.Context, d digest, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = max(m.last+1, now.UnixMilli())
	r := remembered{m.last, d}
	m.known[d], m.order = r.at, append(m.order, r)
	var forget []string
	for i := range min(forgetBatch, len(m.order)-1) {
		if len(m.order)-i <= maxRemembered && now.Sub(time.UnixMilli(m.order[i].at)) < rememberFor {
			break
		}
		forget = append(forget, m.order[i].key())
	}
	err := m.facts.ChangeFacts(ctx, map[string][]byte{r.key(): d[:]}, forget)
	if err != nil {
		err = fmt.Errorf("remember a delivery: %w", err)
		if len(m.order) <= 2*maxRemembered {
			return err
		}
	}
	// After an error a start finds those that stay in the file, and forgets them then.
	for _, old := range m.order[:len(forget)] {
		if m.known[old.digest] == old.at {
			delete(m.known, old.digest)
		}
	}
	m.order = m.order[len(forget):]
	return err
}
