package repos

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
)

// Tokens of Connections are minted where they are used, and live in memory. What is written here is
// for others: the API server and its users learn when the token ends, and a server that seals
// secure values gets the token itself. No other server gets it: it would be readable there.

// Tokens mints the tokens of Repositories that name a Connection.
type Tokens struct {
	Minter *forge.Minter
	// Connection reads a Connection, nil when it does not exist or may not be read.
	Connection func(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error)
	// Sealed reports that the API seals secure values. Of one that may not, the server is asked.
	Sealed bool
}

// secrets is the step that mints tokens and hands secure values over to the server.
type secrets struct {
	reporter reporter
	tokens   *Tokens
	server   server
	meter    Meter
	resync   time.Duration
}

// mint returns the token for a Repository, the one that its pulls use. One without a value means
// that there is none to be minted here: the Connection holds one, or does not exist, or its secret
// is somewhere else.
func (t *Tokens) mint(ctx context.Context, a *attempt) (auth.Token, error) {
	u, err := t.Connection(ctx, a.key.Namespace, a.facts.repo.Spec.Connection.Name)
	if err != nil || u == nil {
		return auth.Token{}, err
	}
	c, err := forge.ConnectionOf(u)
	if err != nil || !c.Mints() {
		return auth.Token{}, err
	}
	token, err := t.Minter.Mint(ctx, c, forge.TargetOf(a.obj))
	if errors.Is(err, forge.ErrNoSecret) {
		err = nil
	}
	return token, err
}

// Times of a token. Source: Grafana.
const (
	// newObject is the age up to which a Repository counts as new: what was written of it may not be
	// seen yet.
	newObject = 10 * time.Second
	// maxTokenLife is longer than any token lives: an end that is further away was written by a clock
	// that was wrong.
	maxTokenLife = 48 * time.Hour
	// tokenSpread is the part of its life, as a divisor, over which the renewals of tokens
	// are spread: five minutes of an hour.
	tokenSpread = 12
)

// inlineOrNone reports whether a value is none, or one that the server has sealed itself: any other
// name is that of a Secret that a person has made.
func inlineOrNone(v api.SecureValue) bool {
	return v.Name == "" || strings.HasPrefix(v.Name, "inline-")
}

// tokenFacts is what is known of the token of a Repository that has one minted.
type tokenFacts struct {
	sealed  bool // the server takes one
	created time.Time
	resync  time.Duration
}

// tokenHeld reports whether the server has the token, or does not take one.
func (f *facts) tokenHeld() bool { return !f.token.sealed || f.repo.Secure["token"].Name != "" }

// tokenFacts returns nil where no token is to be minted. A Repository that names a
// Connection has it minted, but a Secret that a person has made stays.
func (s *secrets) tokenFacts(ctx context.Context, a *attempt) *tokenFacts {
	repo := a.facts.repo
	if s.tokens == nil || repo.Spec.Connection == nil || repo.Spec.Connection.Name == "" || repo.Spec.Type == typeLocal ||
		!inlineOrNone(repo.Secure["token"]) || pauseLeft(a.memory.tokenAfter, a.facts.now) > 0 && !a.facts.specChanged() {
		return nil
	}
	return &tokenFacts{sealed: s.seals(ctx, a), created: a.obj.GetCreationTimestamp().Time, resync: s.resync}
}

// seals reports whether the server may be given a secret.
func (s *secrets) seals(ctx context.Context, a *attempt) bool {
	if s.tokens == nil || pauseLeft(a.memory.sealAfter, a.facts.now) > 0 {
		return false
	}
	if s.tokens.Sealed {
		return true
	}
	does, err := s.server.seals(ctx)
	if err != nil {
		s.reporter.log.Debug("cannot find out whether the API seals secure values", "err", err)
	}
	return does && err == nil
}

// tokenDue reports whether a token is to be minted: there is none, its end is not known, or it ends
// soon.
func (f *facts) tokenDue() bool {
	s := f.repo.Status.Token
	switch {
	case f.token == nil || f.waitsForSlot():
		return false
	case !f.tokenHeld() || s.LastUpdated == 0:
		return true
	case s.Expiration == 0: // never
		return false
	case f.now.Sub(f.token.created) < newObject:
		return false
	}
	return !f.now.Before(f.renewal()) || time.UnixMilli(s.Expiration).After(f.now.Add(maxTokenLife))
}

// renewal returns when a token is to be replaced: two reconciles before its end, or in the
// last fifth of a shorter life. A thousand that were minted in one minute must not be
// replaced in one minute too, so each has a slot of its own before that.
func (f *facts) renewal() time.Time {
	s := f.repo.Status.Token
	life := time.Duration(s.Expiration-s.LastUpdated) * time.Millisecond
	margin := min(2*f.token.resync+newObject, life/5) + time.Duration(reconcile.Fraction(f.uid)*float64(life/tokenSpread))
	return time.UnixMilli(s.Expiration).Add(-margin)
}

// nextToken returns when a token is due by time alone; zero is never.
func (a *attempt) nextToken() time.Time {
	f := &a.facts
	switch {
	case !f.repo.Status.Health.Healthy:
		return time.Time{}
	case pauseLeft(a.memory.tokenAfter, f.now) > 0:
		return a.memory.tokenAfter
	case f.token == nil:
		return time.Time{}
	case f.tokenDue():
		return f.now.Add(webhookCooldown)
	case f.repo.Status.Token.Expiration == 0:
		return time.Time{}
	}
	return later(f.renewal(), f.earliest())
}

// mintToken mints what is due and adds it to the patch. A refusal was found by the request
// to the remote, which needs the same token.
func (s *secrets) mintToken(ctx context.Context, a *attempt) (bool, error) {
	if a.probe == nil || a.facts.token == nil || !a.due.token && !a.probe.renewed {
		return false, nil
	}
	token, err := auth.Token{}, a.probe.err
	if _, refused := errors.AsType[*netx.Error](err); !refused {
		token, err = s.tokens.mint(ctx, a)
	}
	m, f := a.memory, &a.facts
	switch status := f.repo.Status.Token; {
	case err != nil:
		s.meter.Failed(phaseToken, forgeResult(err, "").permanent())
		if m.tokenAfter.IsZero() {
			s.reporter.logOf(a).Warn("cannot mint a token of the connection", "err", err)
		}
		m.tokenAfter = f.now.Add(webhookCooldown)
		return false, nil
	case token.Value == "":
		m.tokenAfter = f.now.Add(refusedCooldown) // or until the Connection is another
		return false, nil
	case f.tokenHeld() && status.LastUpdated > 0 && !a.probe.renewed && !newer(token, status, f.now):
		m.tokenAfter = f.now.Add(webhookCooldown) // the one of before, since no other could be had
		return false, nil
	}
	m.tokenAfter = time.Time{}
	a.change.set(map[string]any{"lastUpdated": f.now.UnixMilli(), "expiration": expiration(token, f.now)}, "token")
	if s.seals(ctx, a) {
		a.change.secret("token", token.Value)
	}
	return false, nil
}

// expiration returns the end of a token by the clock of the server, in milliseconds; 0 is never.
func expiration(t auth.Token, now time.Time) int64 {
	if t.Life <= 0 {
		return 0
	}
	return now.Add(t.Life - max(0, time.Since(t.Minted), time.Since(t.Minted.Round(0)))).UnixMilli()
}

// newer reports whether a token lives longer than the one of the status.
func newer(t auth.Token, status api.TokenStatus, now time.Time) bool {
	end := expiration(t, now)
	return end == 0 || end > status.Expiration+time.Second.Milliseconds() || time.UnixMilli(status.Expiration).After(now.Add(maxTokenLife))
}

// handOver gives the server the secret of a webhook that was just made, so that others than this
// agent can check deliveries, or removes it with the webhook. A Secret that a person has made
// stays.
func (s *secrets) handOver(ctx context.Context, a *attempt) {
	const name = "webhookSecret"
	if has := a.facts.repo.Secure[name]; inlineOrNone(has) && (has.Name != "" || a.webhook.secret != "") && s.seals(ctx, a) {
		a.change.secret(name, a.webhook.secret)
	}
}

// send writes the change. A server that takes no secure values after all, or drops them, is not
// given any for a while.
func (s *secrets) send(ctx context.Context, a *attempt) (*unstructured.Unstructured, error) {
	now, err := s.server.PatchStatus(ctx, a.key, a.change.patch())
	var answered apierrors.APIStatus
	_, away := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err))
	refused := a.change.secrets && errors.As(err, &answered) && !away && !errors.Is(err, reconcile.ErrConflict)
	if refused || err == nil && a.change.dropped(now) {
		s.reporter.logOf(a).Warn("the API keeps no secure values", "err", err)
		a.memory.sealAfter = a.facts.now.Add(refusedCooldown)
	}
	if err != nil {
		return nil, err
	}
	if now.GetGeneration() != a.obj.GetGeneration() {
		a.ownGeneration(now, !a.facts.specChanged() || a.change.observed)
	}
	return now, nil
}
