package forge

import (
	"context"
	"net/http"
	"time"

	"limpet/sync/auth"
)

// probe is the one question whether a host is Gitea's or Forgejo's.
type probe struct {
	done  chan struct{} // closed after the rest is set
	gitea bool
	err   error // not answered: the next one asks again
	at    time.Time
}

// negativeFor is how long a host counts as none of Gitea's: a proxy may have answered in
// its place, such as one that asks for a password first.
const negativeFor = time.Hour

// stale reports that the host is to be asked anew.
func (p *probe) stale() bool {
	select {
	case <-p.done:
		return p.err == nil && !p.gitea && time.Since(p.at) >= negativeFor
	default:
		return false
	}
}

// isGitea asks a host for the version of its API, without credentials. That it is
// one is remembered, that it is none for an hour; a host that does not answer is
// asked again by the next caller.
func (h *Hosts) isGitea(ctx context.Context, base string, creds *auth.Credentials) (bool, error) {
	for {
		h.mu.Lock()
		p, running := h.probes.get(base)
		if running = running && !p.stale(); !running {
			p = &probe{done: make(chan struct{}), at: time.Now()}
			h.probes.put(base, p)
		}
		h.mu.Unlock()
		if !running {
			h.ask(ctx, base, creds, p)
			return p.gitea, p.err
		}
		select {
		case <-ctx.Done():
			return false, &Error{Kind: Cancelled, Op: "find the forge", Err: context.Cause(ctx)}
		case <-p.done:
		}
		if KindOf(p.err) != Cancelled {
			return p.gitea, p.err
		}
	}
}

// ask makes the question and forgets it again when it had no answer.
func (h *Hosts) ask(ctx context.Context, base string, creds *auth.Credentials, p *probe) {
	defer close(p.done)
	p.gitea, p.err = h.version(ctx, base, creds)
	if p.err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, _ := h.probes.get(base); known == p {
		h.probes.drop(base)
	}
}

func (h *Hosts) version(ctx context.Context, base string, creds *auth.Credentials) (bool, error) {
	var trust *auth.Credentials // what is needed to reach the host, and no identity
	if creds != nil {
		trust = &auth.Credentials{CA: creds.CA}
	}
	c, err := h.caller(base, trust)
	if err != nil {
		return false, err
	}
	r := request{op: "find the forge", method: http.MethodGet, path: "/version"}
	a, err := c.do(ctx, r)
	switch KindOf(err) {
	case "":
		v, err := into[struct {
			Version string `json:"version"`
		}](c, r, a)
		return err == nil && v.Version != "", nil
	case Unavailable, RateLimited, Cancelled:
		return false, err
	}
	return false, nil
}
