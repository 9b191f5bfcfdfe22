// Package webhook receives the webhooks of Git hosts: a push becomes a pull job at once instead of
// at the next interval. It understands GitHub, GitLab, Bitbucket, Gitea and Forgejo, at the path
// and with the answers of Grafana's own endpoint.
//
// What it promises:
//
//   - A webhook may only cause a pull: it queues a job of the Repository in
//     its path and nothing else. Neither a branch, a commit nor a URL of the
//     payload decides what is pulled: the pull asks Git itself. A job for a pull
//     request contains the data of its host.
//   - Nothing of a payload is parsed before its signature is right. A wrong
//     signature, a missing one and a Repository that is not there have one answer.
//   - A delivery is remembered after its job is queued, not before. A power cut in
//     between costs a second pull, never a lost one. A delivery whose job could
//     not be queued is answered with 503 and may come again.
//   - What strangers can make it hold is bounded: connections, headers, bodies,
//     clients, time, lines of the log. None of it reaches the state file.
//     See maxConnections, maxPerClient, maxHeaderBytes, maxBody, maxClients; of
//     signed deliveries maxRemembered are kept.
//
// Host, table and Repository are evaluated by pure functions (Parse, Decide);
// the Receiver is the HTTP side; Store is the agent behind it.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/text"
)

// Pattern is the path of the endpoint, for http.ServeMux. Source: Grafana.
const Pattern = "/apis/" + api.ProvisioningGroup + "/v0alpha1/namespaces/{namespace}/repositories/{name}/webhook"

const (
	requestTimeout = 30 * time.Second // of a request, its body included. Source: Grafana
	// queueTimeout bounds the requests to the API. It leaves time to ask the host to
	// retry: GitHub waits 10 s for an answer.
	queueTimeout = 8 * time.Second
	seenTimeout  = 5 * time.Second  // of the update of the status, which follows the answer
	seenEvery    = time.Minute      // between updates of status.webhook.lastEvent. Source: Grafana
	logEvery     = time.Minute      // between refused requests, and failures, that reach the log
	retryAfter   = 30 * time.Second // Retry-After of a failed delivery
)

// ErrNotRun is returned by Store.Queue when no agent would run the job.
var ErrNotRun = errors.New("no agent here runs jobs of this kind")

// Store is the agent behind the receiver. Its methods may be called concurrently.
type Store interface {
	// Repository returns the cached Repository with its secrets, or nil.
	Repository(ctx context.Context, namespace, name string) *Repository
	// Blind reports whether Repositories or their secrets may be unavailable now, so
	// that an invalid signature cannot be told from a missing secret.
	Blind() bool
	// Queue creates the job and returns it. The errors are those of the API, and ErrNotRun.
	Queue(ctx context.Context, r *Repository, spec map[string]any) (*unstructured.Unstructured, error)
	// Seen records a working webhook in the status.
	Seen(ctx context.Context, r *Repository) error
	// Now is the time; zero when the host's clock cannot be trusted.
	Now() time.Time
}

// Options configures a Receiver. All but Trusted, Incremental and Pushed are required.
type Options struct {
	Store   Store
	Facts   Facts
	Trusted []netip.Prefix // proxies whose X-Forwarded-For counts
	// Incremental reports whether a push is pulled incrementally; nil = always, where limpet
	// alone runs the pulls: they compare the commits themselves.
	Incremental func(push Event) bool
	// Count receives the outcome of each request, one of Outcomes, and Processed the
	// action of the job of an authentic event, or "none".
	Count     func(outcome string)
	Processed func(job string)
	// Pushed learns the URL of a Repository to which something was pushed, whatever the branch. It
	// must not block.
	Pushed func(url string)
	// Accepted receives each served event, in a line for people.
	Accepted func(repository, text string)
	Logger   *slog.Logger
}

// Receiver answers webhooks. It is an http.Handler; Serve runs it on a listener.
type Receiver struct {
	o       Options
	mux     *http.ServeMux
	clients clients
	memory  *memory
	room    *semaphore.Weighted

	refusals, failures rate.Sometimes // limit what strangers and a failing API write to the log

	serving singleflight.Group // of deliveries, by their digest
}

// New returns a Receiver that remembers the deliveries in Facts.
func New(ctx context.Context, o Options) (*Receiver, error) {
	m, err := loadMemory(ctx, o.Facts)
	if err != nil {
		return nil, err
	}
	r := &Receiver{o: o, mux: http.NewServeMux(), clients: newClients(), memory: m, room: semaphore.NewWeighted(bodyRoom),
		refusals: rate.Sometimes{Interval: logEvery}, failures: rate.Sometimes{Interval: logEvery}}
	r.mux.HandleFunc(Pattern, r.webhook)
	r.mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		r.answer(w, req, refuse(NotFound, http.StatusNotFound, metav1.StatusReasonNotFound, "this is the webhook endpoint of limpet: "+Pattern))
	})
	return r, nil
}

// ServeHTTP answers one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }

func (r *Receiver) webhook(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), requestTimeout)
	defer cancel()
	a := r.receive(ctx, req)
	r.answer(w, req, a)
	if a.verified != nil {
		// The host has its answer; what follows is for people.
		_ = http.NewResponseController(w).Flush() // a host that is gone needs none
		r.recordDelivery(ctx, a.verified)
	}
}

func (r *Receiver) receive(ctx context.Context, req *http.Request) answer {
	if req.Method != http.MethodPost {
		return refuse(Refused, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "webhooks are sent by POST")
	}
	host, event, delivery := requestOrigin(req.Header)
	proof, ok := proofOf(host, req.Header)
	if !ok {
		return r.invalidSignature()
	}
	b, release, err := readBody(req, r.room)
	defer release()
	if err != nil {
		switch {
		case errors.Is(err, errTooLarge):
			return refuse(TooLarge, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "%v", err)
		case errors.Is(err, errNoRoom):
			return unavailable(err.Error())
		case errors.Is(err, errSlow):
			return refuse(Broken, http.StatusRequestTimeout, metav1.StatusReasonTimeout, "%v", err)
		}
		return refuse(Broken, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err)
	}
	namespace, name := req.PathValue("namespace"), req.PathValue("name")
	repo := r.o.Store.Repository(ctx, namespace, name)
	secrets := [][]byte{noSecret}
	if repo != nil && len(repo.Secrets) > 0 {
		secrets = repo.Secrets
	}
	now := r.o.Store.Now()
	for _, secret := range secrets {
		if proof.proves(secret, b, now) && repo != nil {
			digest := proof.digest(secret, namespace+"/"+name, b)
			return r.serve(ctx, repo, verifiedDelivery{host, event, delivery, digest, b, req.Header.Get("Content-Type")})
		}
	}
	return r.invalidSignature()
}

// invalidSignature is the one answer to a wrong signature, a missing one, and a Repository that is
// not there.
func (r *Receiver) invalidSignature() answer {
	if r.o.Store.Blind() {
		return unavailable("the API cannot be asked at the moment; deliver again later")
	}
	return refuse(Forged, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "invalid signature")
}

// verifiedDelivery is a request whose signature is right.
type verifiedDelivery struct {
	host        Host
	event, id   string
	digest      digest
	body        []byte
	contentType string
}

// serve serves each delivery once. Copies that come meanwhile wait for its end.
func (r *Receiver) serve(ctx context.Context, repo *Repository, d verifiedDelivery) answer {
	first := false
	// The job is queued even when the host closes the connection.
	ctx = context.WithoutCancel(ctx)
	served, _, _ := r.serving.Do(string(d.digest[:]), func() (any, error) {
		first = true
		if r.memory.has(d.digest, time.Now()) {
			return respond(Replayed, http.StatusOK, "ok"), nil
		}
		a := r.act(ctx, repo, d)
		if a.code < 300 {
			if err := r.memory.add(ctx, d.digest, time.Now()); err != nil {
				r.failures.Do(func() { r.o.Logger.Warn("a webhook delivery is not remembered over a restart", "err", err) })
			}
		}
		return a, nil
	})
	if a := served.(answer); first || a.code >= 300 {
		return a
	}
	return respond(Replayed, http.StatusOK, "ok")
}

func (r *Receiver) act(ctx context.Context, repo *Repository, d verifiedDelivery) answer {
	if code, why := repo.refusal(); code != 0 {
		return refuse(Refused, code, reasonOf(code), "%s", why)
	}
	var e Event
	payload, err := payloadOf(d.body, d.contentType)
	if err == nil {
		e, err = Parse(d.host, d.event, payload)
	}
	if err != nil {
		return refuse(Invalid, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err)
	}
	v := Decide(repo, e, r.o.Incremental)
	a, action, said := respond(Ignored, v.Code, v.Message), "none", v.Message
	if e.Kind == Push && v.Code < 400 && r.o.Pushed != nil {
		r.o.Pushed(repo.URL)
	}
	queued, note := "", "" // the job, and what is said of it to people
	switch {
	case v.Code == http.StatusNotImplemented:
		a.outcome = Unsupported
	case v.Code >= 400:
		return refuse(Mismatched, v.Code, metav1.StatusReasonBadRequest, "%s", v.Message)
	case v.Job != nil:
		ctx, cancel := context.WithTimeout(ctx, queueTimeout)
		defer cancel()
		job, err := r.o.Store.Queue(ctx, repo, v.Job)
		switch {
		case errors.Is(err, ErrNotRun):
			a = respond(Ignored, http.StatusOK, err.Error())
			said += ": " + err.Error()
		case err != nil:
			return r.queueError(repo, err)
		default:
			a = answer{outcome: Queued, code: v.Code, body: job.Object}
			queued, action = job.GetName(), fmt.Sprint(v.Job["action"])
			if note = "webhook: push to " + cmp.Or(repo.Branch, "the repository") + " → pull queued"; e.Kind != Push {
				note = fmt.Sprintf("webhook: pull request %d %s → pr queued", e.Number, e.Action)
			}
		}
	}
	a.verified = repo
	r.o.Processed(action)
	r.o.Logger.Info("webhook", "repo", repo.Name, "namespace", repo.Namespace, "host", d.host, "event", text.Clean(short(d.event)),
		"delivery", text.Clean(short(d.id)), "answer", text.Clean(said), "job", queued)
	r.o.Accepted(repo.Name, text.Clean(cmp.Or(note, "webhook: "+said)))
	return a
}

// queueError is the answer when the API refuses the job. Errors about this very job
// are passed on; all others are temporary.
func (r *Receiver) queueError(repo *Repository, err error) answer {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		outcome := Refused
		if apierrors.IsAlreadyExists(err) {
			outcome = Exists
		}
		switch s.Code {
		case http.StatusNotFound, http.StatusConflict, http.StatusFailedDependency, http.StatusUnprocessableEntity:
			return refuse(outcome, int(s.Code), s.Reason, "%s", text.Redact(s.Message))
		}
	}
	r.failures.Do(func() {
		r.o.Logger.Warn("a webhook cannot queue its job, the host is asked to deliver again",
			"repo", repo.Name, "namespace", repo.Namespace, "err", err)
	})
	return unavailable("the job cannot be queued at the moment; deliver again later")
}

// recordDelivery records once a minute that the webhook of a Repository works.
func (r *Receiver) recordDelivery(ctx context.Context, repo *Repository) {
	if !repo.Hooked || time.Since(repo.LastEvent).Abs() < seenEvery {
		return
	}
	// Hosts close the connection as soon as they have their answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seenTimeout)
	defer cancel()
	if err := r.o.Store.Seen(ctx, repo); err != nil {
		r.o.Logger.Debug("the time of the last webhook is not noted", "repo", repo.Name, "namespace", repo.Namespace, "err", err)
	}
}
