package forge

import (
	"context"
	"net/http"
	"time"

	"limpet/sync/auth"
)

// probe is the check whether a host is Gitea or Forgejo.
type probe struct {
	done  chan struct{} // closed after the rest is set
	gitea bool
	err   error // not answered: the next one asks again
	at    time.Time
}

// negativeFor is the lifetime of a negative result: a proxy may have answered instead
// of the host, such as one that asks for a password first.
const negativeFor = time.Hour

// stale reports whether the host has to be probed again.
func (p *probe) stale() bool {
	select {
	case <-p.done:
		return p.err == nil && !p.gitea && time.Since(p.at) >= negativeFor
	default:
		return false
	}
}

// isGitea requests the version of the API of a host, without credentials. A positive
// result is kept, a negative one for an hour; a host that does not answer is probed
// again by the next caller.
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

// ask runs the probe and drops it when there was no answer.
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
	var trust *auth.Credentials // transport settings without an identity
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
