package repos

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/forge"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
)

// A webhook that cannot be made makes no Repository unhealthy: changes are found at the interval.

// Times of webhooks. Source: Grafana's webhook controller.
const (
	rotateAfter     = 30 * 24 * time.Hour // age at which the secret is replaced
	refusedCooldown = time.Hour           // the next try where the right is missing
	webhookTimeout  = 20 * time.Second
)

// webhooks is the step that has the webhooks of Repositories made and removed.
type webhooks struct {
	reporter reporter
	enabled  bool
	base     string // see Options.WebhookBase
	probes   probes
	store    *state.Store
	now      func() time.Time
	handOver func(ctx context.Context, a *attempt) // gives the secret to the server
}

// webhookPlan is what is to be done about the webhook of a Repository.
type webhookPlan struct {
	url    string // of the webhook that is wanted; "" = none
	due    string // why something is to be done; "" = nothing is
	tried  bool   // by this reconcile
	err    error  // of the try
	secret string // of the webhook that was made now
}

// webhookURL returns where the webhook of a Repository sends to, "" when it is to have
// none: it is not wanted, or the Repository is read only. It is not known where this
// agent receives nothing; a webhook that exists then belongs to another controller.
func webhookURL(base string, k reconcile.Key, repo api.Repository) (url string, known bool) {
	if spec := repo.Spec.Webhook; !writes(repo) || repo.Spec.Type == typeLocal || spec != nil && spec.Disabled {
		return "", true
	}
	base = webhookBase(base, repo)
	return WebhookURL(base, k), base != ""
}

// webhookBase returns the address of the receiver, which a Repository may name.
func webhookBase(base string, repo api.Repository) string {
	if spec := repo.Spec.Webhook; spec != nil {
		return cmp.Or(spec.BaseURL, base)
	}
	return base
}

// WebhookURL returns the address of the webhook of a Repository below the base address of a
// receiver.
func WebhookURL(base string, k reconcile.Key) string {
	return fmt.Sprintf("%s/apis/%s/namespaces/%s/repositories/%s/webhook",
		strings.TrimRight(base, "/"), api.Repositories.GroupVersion(), k.Namespace, k.Name)
}

// webhookDue returns why the webhook of a Repository has to be checked; "" is not at all.
// want is its URL, and checked says that this was done since the spec has changed.
func webhookDue(want string, has *api.WebhookStatus, checked bool, now time.Time) string {
	exists := webhookID(has) != ""
	switch {
	case want == "" && !exists:
		return ""
	case want == "":
		return triggerSpec
	case !exists:
		return triggerWebhookMissing
	case !checked || has.URL != want:
		return triggerSpec
	case age(has.LastRotated, now) > rotateAfter:
		return triggerWebhookRotation
	}
	return ""
}

// webhookID returns the name by which the host knows a webhook.
func webhookID(has *api.WebhookStatus) string {
	switch {
	case has == nil || has.UUID == "" && has.ID == 0:
		return ""
	case has.UUID != "":
		return has.UUID
	}
	return strconv.FormatInt(has.ID, 10)
}

// plan returns the address that the webhook is to have and why something is to be
// done about it. A webhook is where the repository was when it was made: so it is checked
// when the condition is of an older spec, also when the agent ends between the two.
func (w *webhooks) plan(a *attempt) (url, due string) {
	f := &a.facts
	url, known := webhookURL(w.base, a.key, f.repo)
	if !w.enabled || !known {
		return "", ""
	}
	if pauseLeft(a.memory.webhookAfter, f.now) == 0 || f.specChanged() {
		told, _ := f.condition(conditionWebhook)
		due = webhookDue(url, f.repo.Status.Webhook, told.Status == "True" && f.current(told.ObservedGeneration), f.now)
	}
	return url, due
}

// next returns when the webhook is tried again; zero is never.
func (w *webhooks) next(a *attempt) time.Time {
	if !w.enabled || !a.facts.repo.Status.Health.Healthy {
		return time.Time{}
	}
	if pause := pauseLeft(a.memory.webhookAfter, a.facts.now); pause > 0 {
		return a.facts.now.Add(pause)
	}
	if _, due := w.plan(a); due != "" {
		return a.facts.now.Add(webhookCooldown)
	}
	return time.Time{}
}

// register makes, changes or removes the webhook of the Repository if that is due.
// It is done before anything of it is written: a webhook whose patch was lost is found
// again by its URL. It is the first step that writes, so the change begins here.
func (w *webhooks) register(ctx context.Context, a *attempt) (bool, error) {
	a.facts.now = w.now()
	a.change = &change{obj: a.obj, now: a.facts.now}
	if a.webhook.due == "" || a.probe == nil || a.probe.err != nil || a.probe.mirrored() || !a.healthy {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	change, err := w.apply(limited, a)
	if ctx.Err() != nil {
		return false, nil // the host is not to blame
	}
	a.webhook.tried, a.webhook.err = a.webhook.url != "" || err != nil, err
	before := a.memory.webhookAfter
	a.memory.webhookAfter = time.Time{}
	if err != nil {
		none, pause := errors.Is(err, forge.ErrNone), webhookCooldown
		if none || notAllowed(err) || webhookLimit.MatchString(err.Error()) {
			pause = refusedCooldown
		}
		if !none && before.IsZero() {
			w.reporter.report(a.key, "warn", "no webhook, changes are found at the interval: "+err.Error())
			w.reporter.logOf(a).Warn("no webhook, changes are found at the interval", "err", err)
		}
		a.memory.webhookAfter = a.facts.now.Add(pause)
	}
	if change != nil {
		a.change.ops = append(a.change.ops, *change)
		w.handOver(ctx, a)
	}
	return false, nil
}

// apply brings the host to what is planned, and returns what changes in the status; nil is nothing.
func (w *webhooks) apply(ctx context.Context, a *attempt) (*patch.Op, error) {
	const path = "/status/webhook"
	before := a.facts.repo.Status.Webhook
	id := webhookID(before)
	host, err := w.probes.hosts(ctx, a.obj, a.probe.remote.Creds)
	if err != nil {
		return nil, err
	}
	if a.webhook.url != "" {
		made, err := w.make(ctx, a, host, id)
		if made == nil {
			return nil, err
		}
		w.reporter.report(a.key, "info", "webhook registered")
		op := patch.Add(path, wireWebhook(*made, before, a.facts.now))
		return &op, err // also when it is not confirmed: it is there
	}
	if err := host.Delete(ctx, id); err != nil && netx.KindOf(err) != netx.Unauthorized {
		return nil, err
	}
	if err := w.store.DeleteSecret(ctx, WebhookSecretKey(a.key)); err != nil {
		w.reporter.logOf(a).Warn("cannot drop the secret of a webhook", "err", err)
		return nil, nil
	}
	return &patch.Op{Op: "remove", Path: path}, nil
}

// make creates the webhook, or gives one that exists a new secret if it is another
// one or its secret is too old. nil = nothing is to be changed.
func (w *webhooks) make(ctx context.Context, a *attempt, host Host, id string) (*forge.Hook, error) {
	want := forge.Hook{ID: id, URL: a.webhook.url, Events: host.Events(), Active: true}
	if id != "" {
		has, err := host.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		status := a.facts.repo.Status.Webhook
		if has != nil && want.Same(*has) && age(status.LastRotated, a.facts.now) <= rotateAfter && status.URL == want.URL {
			return nil, nil
		}
		if has == nil {
			id = ""
		}
	}
	secrets := webhookSecrets{w.store, WebhookSecretKey(a.key)}
	secret, err := secrets.next(ctx)
	if err != nil {
		return nil, err
	}
	want.Secret, a.webhook.secret = forge.Secret(secret), secret
	write := host.Edit
	if id == "" {
		write = host.Create
	}
	made, err := write(ctx, want)
	if err != nil {
		return nil, err
	}
	made.URL = want.URL // a host may write it in its own way, and this is compared
	return &made, secrets.confirm(ctx)
}

func wireWebhook(h forge.Hook, before *api.WebhookStatus, now time.Time) api.WebhookStatus {
	out := api.WebhookStatus{URL: h.URL, Events: h.Events, LastRotated: now.UnixMilli(), ID: h.Number()}
	if out.ID == 0 {
		out.UUID = h.ID
	}
	if before != nil {
		out.LastEvent = before.LastEvent
	}
	return out
}

// conditionWebhook is whether the host of a Repository announces changes. It is limpet's own, as
// its prefix says, and neither Ready nor status.health depend on it. Grafana reports a webhook that
// it cannot make by health.error "hook", which stops the pulls of the Repository; here they go on
// at the interval.
const conditionWebhook = "limpet/Webhook"

// condition returns the condition to write, false for none: nothing was done about the webhook, and
// one is wanted.
func (p webhookPlan) condition() (api.Condition, bool) {
	if p.tried {
		return webhookCondition(p.err, p.url == ""), true
	}
	return api.Condition{Type: conditionWebhook}, p.url == ""
}

// webhookCondition returns how a try has ended; removal reports that the webhook was to be removed.
// Where a host may put its failure in other words each time, the words are ours: what is the same
// is not written again.
func webhookCondition(err error, removal bool) api.Condition {
	if err == nil {
		return api.Condition{Type: conditionWebhook, Status: "True", Reason: "Registered", Message: "the host announces changes"}
	}
	reason, text := "NotTaken", err.Error()
	if e, ok := errors.AsType[*netx.Error](err); ok {
		text = e.Err.Error()
	}
	switch kind := netx.KindOf(err); {
	case errors.Is(err, forge.ErrNone):
		reason, text = "NoHost", "webhooks of this host are not supported"
	case kind == netx.RateLimited:
		reason, text = netx.ReasonRateLimited, "the host gets too many requests"
	case kind == netx.Unavailable || kind == netx.Protocol || kind == netx.Cancelled:
		reason, text = netx.ReasonServiceUnavailable, "the host does not answer as it should"
	case notAllowed(err):
		reason = "NotAllowed"
	case webhookLimit.MatchString(text):
		reason, text = "LimitReached", "the host allows no further webhook for the repository ("+text+"); delete one there that is not used"
	}
	if removal {
		text = "the webhook is still at the host: " + text
	} else {
		text += "; changes are found at the interval"
	}
	return api.Condition{Type: conditionWebhook, Status: "False", Reason: reason, Message: text}
}

// webhookLimit matches what hosts say at their limit: GitHub at 20 webhooks of an event, Bitbucket
// at 50 and GitLab at 100 of a repository.
var webhookLimit = regexp.MustCompile(`(?i)cannot have more than \d+ (web)?hooks|(maximum|limit)[a-z ]* (web)?hooks|(web)?hooks? limit`)

func notAllowed(err error) bool {
	kind := netx.KindOf(err)
	return kind == netx.Unauthorized || kind == netx.Forbidden || kind == netx.NotFound
}

// webhookSecrets are those of one webhook. It is signed with the secret that its host was given
// last, and a host does not return it. So a new secret is stored before the host has it, as the
// third line: behind the one that the host is known to have, and the one before, whose deliveries
// may be under way. A delivery may be signed with any of them. As long as the host has not
// confirmed the third, it is offered again: with another one each time the secret that the host
// goes on signing with would be pushed out.
type webhookSecrets struct {
	store *state.Store
	key   string
}

// WebhookSecretKey returns where the secrets of a webhook are stored, one per line.
func WebhookSecretKey(k reconcile.Key) string { return "webhook/" + k.Namespace + "/" + k.Name }

// next returns the secret to offer to the host: it is stored when this returns.
func (s webhookSecrets) next(ctx context.Context) (string, error) {
	lines, err := s.read(ctx)
	if err != nil {
		return "", err
	}
	next := rand.Text()
	switch len(lines) {
	case 0:
		lines = []string{next, next}
	case 1:
		lines = append(lines, lines[0])
	case 3:
		return lines[2], nil
	}
	return next, s.write(ctx, append(lines, next))
}

// confirm notes that the host has the secret that was offered.
func (s webhookSecrets) confirm(ctx context.Context) error {
	lines, err := s.read(ctx)
	if err != nil || len(lines) != 3 {
		return err
	}
	now := []string{lines[2]}
	if lines[0] != lines[2] {
		now = append(now, lines[0])
	}
	return s.write(ctx, now)
}

func (s webhookSecrets) read(ctx context.Context) ([]string, error) {
	data, err := s.store.Secret(ctx, s.key)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("read the secret of the webhook: %w", err)
	}
	return strings.Fields(string(data)), nil
}

func (s webhookSecrets) write(ctx context.Context, lines []string) error {
	err := s.store.PutSecret(ctx, s.key, []byte(strings.Join(lines, "\n")+"\n"))
	if err != nil {
		return fmt.Errorf("store the secret of the webhook: %w", err)
	}
	return nil
}

// clean removes the webhook of a deleted Repository, and what is stored of it. It may be repeated.
// A webhook that does not exist is removed, and so is one whose host refuses the credentials: it
// could never be removed. Source: Grafana. One that the status does not name may exist all the
// same, made just before a power cut: it is searched once, and a failure of that is ignored.
func (w *webhooks) clean(ctx context.Context, k reconcile.Key, u *unstructured.Unstructured) error {
	if w.probes.hosts == nil || w.store == nil {
		return nil
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return err
	}
	if id := webhookID(repo.Status.Webhook); id != "" {
		err := w.remove(ctx, k, u, repo, id)
		if err != nil && netx.KindOf(err) != netx.Unauthorized && !errors.Is(err, forge.ErrNone) {
			return err
		}
	} else if _, err := w.store.Secret(ctx, WebhookSecretKey(k)); err == nil {
		if err := w.remove(ctx, k, u, repo, ""); err != nil {
			w.reporter.log.Debug("cannot search for a webhook", "repo", k.Name, "namespace", k.Namespace, "err", err)
		}
	}
	return w.store.DeleteSecret(ctx, WebhookSecretKey(k))
}

// remove removes the webhook with an id, "" = the one that sends to this agent.
func (w *webhooks) remove(ctx context.Context, k reconcile.Key, u *unstructured.Unstructured, repo api.Repository, id string) error {
	remote, err := w.probes.remotes(ctx, k.Namespace, k.Name, repo)
	switch {
	case err != nil:
		return err
	case remote.Down != nil:
		return remote.Down
	}
	host, err := w.probes.hosts(ctx, u, remote.Creds)
	if err != nil {
		return err
	}
	if id == "" {
		found, err := host.Find(ctx, WebhookURL(webhookBase(w.base, repo), k))
		if err != nil || found == nil {
			return err
		}
		id = found.ID
	}
	return host.Delete(ctx, id)
}
