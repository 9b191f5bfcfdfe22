package repos

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
)

// Tokens of Connections are minted where they are used, and live in memory. What
// is written here is for others: the API server and those who look at it learn
// when the token ends, and a server that seals secure values has the token itself.
// No other server is given one: it would lie there for everybody to read.

// Tokens are where the tokens of Repositories come from that name a Connection.
type Tokens struct {
	// Mint gives the token for a Repository, the one that its pulls use. A token
	// without a value says that there is none to be minted here: the Connection
	// holds one, or is not there, or its secret is somewhere else.
	Mint func(ctx context.Context, repo *unstructured.Unstructured) (auth.Token, error)
	// Seals says whether the server takes secure values and seals them. An error is
	// of the moment.
	Seals func(ctx context.Context) (bool, error)
}

// Times of a token. Source: Grafana.
const (
	// newObject is the age up to which a Repository counts as new: what was written
	// of it may not be seen yet.
	newObject = 10 * time.Second
	// longestToken is longer than any token lives: an end that is further away was
	// written by a clock that was wrong.
	longestToken = 48 * time.Hour
	// tokenSpread is the part of its life, as a divisor, over which the renewals of
	// tokens are spread: five minutes of an hour.
	tokenSpread = 12
)

// inlineName begins the name of a value that the server has sealed itself; any
// other name is that of a Secret that a person has made.
const inlineName = "inline-"

func inlineOrNone(v api.SecureValue) bool {
	return v.Name == "" || strings.HasPrefix(v.Name, inlineName)
}

// tokenFacts is what is known of the token of a Repository that has one minted.
type tokenFacts struct {
	held    bool // the server has one, or is not to have any
	created time.Time
	resync  time.Duration
}

// gatherToken finds out whether a token is to be minted, and what is known of the
// present one. Whoever names a Connection leaves the token to it, but a Secret that
// a person has made stays.
func (r *reconciling) gatherToken(ctx context.Context) {
	repo := r.facts.repo
	if r.o.Tokens == nil || repo.Spec.Connection == nil || repo.Spec.Connection.Name == "" || repo.Spec.Type == typeLocal ||
		!inlineOrNone(repo.Secure["token"]) || r.facts.now.Before(r.note.tokenAfter) && !r.facts.specChanged() {
		return
	}
	r.facts.token = &tokenFacts{held: repo.Secure["token"].Name != "" || !r.seals(ctx), created: r.obj.GetCreationTimestamp().Time, resync: r.o.Resync}
}

// seals says whether the server may be given a secret.
func (r *reconciling) seals(ctx context.Context) bool {
	if r.o.Tokens == nil || r.facts.now.Before(r.note.sealAfter) {
		return false
	}
	does, err := r.o.Tokens.Seals(ctx)
	if err != nil {
		r.log.Debug("not known whether the API seals secure values", "err", err)
	}
	return does && err == nil
}

// tokenDue says that a token is to be minted: there is none, nobody has said when
// it ends, or it ends soon.
func (f *facts) tokenDue() bool {
	t, s := f.token, f.repo.Status.Token
	switch {
	case t == nil:
		return false
	case f.repo.Status.Health.Checked > 0 && !f.specChanged() && f.now.Before(f.start.first(f.uid, f.interval)):
		return false // what became due while nobody looked has its place
	case !t.held || s.LastUpdated == 0:
		return true
	case s.Expiration == 0: // never
		return false
	case f.now.Sub(t.created) < newObject:
		return false
	}
	return !f.now.Before(f.renewal()) || time.UnixMilli(s.Expiration).After(f.now.Add(longestToken))
}

// renewal is when a token is to be replaced: two looks before its end, or in the
// last fifth of a shorter life. A thousand that were minted in one minute must not be
// replaced in one minute too, so each has a place of its own before that.
func (f *facts) renewal() time.Time {
	s := f.repo.Status.Token
	life := time.Duration(s.Expiration-s.LastUpdated) * time.Millisecond
	margin := min(2*f.token.resync+newObject, life/5) + time.Duration(place(f.uid)*float64(life/tokenSpread))
	return time.UnixMilli(s.Expiration).Add(-margin)
}

// nextToken is when a token is due by time alone; zero is never.
func (r *reconciling) nextToken() time.Time {
	s := r.facts.repo.Status.Token
	switch {
	case !r.facts.repo.Status.Health.Healthy:
		return time.Time{}
	case r.note.tokenAfter.After(r.facts.now):
		return r.note.tokenAfter
	case r.facts.token == nil:
		return time.Time{}
	case r.facts.tokenDue():
		return r.facts.now.Add(hookCooldown)
	case s.Expiration == 0:
		return time.Time{}
	}
	at := r.facts.renewal()
	if first := r.facts.start.first(r.facts.uid, r.facts.interval); at.Before(first) {
		return first
	}
	return at
}

// token mints what is due and adds it to the patch. A refusal was found by the look
// at the remote, which wants the same token.
func (r *reconciling) token(ctx context.Context, c *change) {
	if r.probe == nil || r.facts.token == nil || !r.due.token && !r.replaced() {
		return
	}
	token, err := auth.Token{}, r.probe.err
	if _, refused := errors.AsType[*forge.Error](err); !refused {
		token, err = r.o.Tokens.Mint(ctx, r.obj)
	}
	f, given := &r.facts, sha256.Sum256([]byte(token.Value))
	switch told := f.repo.Status.Token; {
	case err != nil:
		r.o.Meter.Failed(phaseToken, forgeFinding(err, "").lasts())
		if r.note.tokenAfter.IsZero() {
			r.log.Warn("no token of the connection", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		}
		r.note.tokenAfter = f.now.Add(hookCooldown)
		return
	case token.Value == "":
		r.note.tokenAfter = f.now.Add(refusedCooldown) // or until the Connection is another
		return
	case !r.due.token && given == r.note.given:
		return // the look at the remote was made with the credentials of somebody else
	case f.token.held && told.LastUpdated > 0 && !r.replaced() && !newer(token, told, f.now):
		r.note.tokenAfter = f.now.Add(hookCooldown) // the one of before, since no other could be had
		return
	}
	r.note.tokenAfter, r.note.given = time.Time{}, given
	c.set(map[string]any{"lastUpdated": f.now.UnixMilli(), "expiration": expiration(token, f.now)}, "token")
	if r.seals(ctx) {
		c.secret("token", token.Value)
	}
}

// replaced says that the look at the remote was made with another token than the one
// that was told: a host did not take that any more, or a pull has had it renewed.
func (r *reconciling) replaced() bool {
	creds := r.probe.remote.Creds
	return r.probe.renewed || r.note.given != [sha256.Size]byte{} && creds != nil && creds.Forget != nil && sha256.Sum256([]byte(creds.Password)) != r.note.given
}

// expiration is the end of a token by the clock of the server, in milliseconds; 0
// is never.
func expiration(t auth.Token, now time.Time) int64 {
	if t.Life <= 0 {
		return 0
	}
	return now.Add(t.Life - max(0, time.Since(t.Minted), time.Since(t.Minted.Round(0)))).UnixMilli()
}

// newer says that a token lives longer than the one that the status tells of.
func newer(t auth.Token, told api.TokenStatus, now time.Time) bool {
	end := expiration(t, now)
	return end == 0 || end > told.Expiration+time.Second.Milliseconds() || time.UnixMilli(told.Expiration).After(now.Add(longestToken))
}

// handOver gives the server the secret of a webhook that was just made, so that
// others than this agent can check deliveries, or takes it away with the webhook. A
// Secret that a person has made stays.
func (r *reconciling) handOver(ctx context.Context, c *change) {
	const name = "webhookSecret"
	if has := r.facts.repo.Secure[name]; inlineOrNone(has) && (has.Name != "" || r.hookSecret != "") && r.seals(ctx) {
		c.secret(name, r.hookSecret)
	}
}

// send writes what was gathered. A server that cannot keep secure values after all
// must not keep the rest from being told, and one that drops them is not given them
// at every look.
func (r *reconciling) send(ctx context.Context, c *change) (*unstructured.Unstructured, error) {
	now, err := r.server.patch(ctx, r.key, true, c.patch())
	var answered apierrors.APIStatus
	if err != nil && c.secrets && ctx.Err() == nil && !errors.Is(err, errMoved) && !passes(err) && errors.As(err, &answered) {
		r.log.Warn("the API takes no secure values", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		r.note.sealAfter = r.facts.now.Add(refusedCooldown)
		c.withoutSecrets()
		if ops := c.patch(); ops != nil {
			now, err = r.server.patch(ctx, r.key, true, ops)
		}
	}
	if err == nil && c.dropped(now) {
		r.note.sealAfter = r.facts.now.Add(refusedCooldown)
	}
	if err == nil && now.GetGeneration() != r.obj.GetGeneration() {
		r.settle(now, !r.facts.specChanged() || c.observed)
	}
	return now, err
}

// settle notes a generation that a write of this controller has made, which asks
// for nothing if the one before did not.
func (r *reconciling) settle(now *unstructured.Unstructured, dealt bool) {
	generation := now.GetGeneration()
	r.facts.generation, r.note.generation = generation, generation
	if dealt {
		r.facts.settled, r.note.settled = generation, generation
	}
}
