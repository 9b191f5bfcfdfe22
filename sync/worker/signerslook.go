package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// EndsSoon is from when on it is told that a key ends.
const EndsSoon = 14 * 24 * time.Hour

// mostHolders bounds how many keys are told one by one.
const mostHolders = 5

// SignersLook is what a look at those who may sign has shown, for people.
type SignersLook struct {
	Text string // what has to be signed, and by which keys; "" = nothing
	Soon string // keys that are of no use soon, or any more; "" = none
}

// Look says what has to be signed in a Repository and by whom, and how those keys are.
// An error says that nothing can be pulled: there are no keys, they cannot be read, or
// all of them have ended. It makes no request to a Git host.
func (s *Signers) Look(ctx context.Context, namespace, name string, repo api.Repository, now time.Time) (SignersLook, error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return SignersLook{}, err
	}
	t, err := s.of(ctx, repo, src.lookup)
	if err != nil || t == nil {
		return SignersLook{}, err
	}
	return t.look(now)
}

// LookAtRule is the same for a rule of the configuration.
func (s *Signers) LookAtRule(rule *auth.VerificationPolicy, now time.Time) (SignersLook, error) {
	if rule.Mode == auth.PolicyNone {
		return SignersLook{}, nil
	}
	d, err := s.ruled(rule)
	if err != nil {
		return SignersLook{}, err
	}
	return (&trust{demands: []demand{d}}).look(now)
}

// LookAtKeys is the same for keys that were found for something else than a Repository;
// by is what asks for signatures, for people.
func (s *Signers) LookAtKeys(mode signature.Mode, by string, found *auth.Trust, now time.Time) (SignersLook, error) {
	d := demand{by: by}
	d.Mode = mode
	if err := s.keys(&d, found); err != nil {
		return SignersLook{}, err
	}
	return (&trust{demands: []demand{d}}).look(now)
}

func (t *trust) look(now time.Time) (SignersLook, error) {
	var texts, soon []string
	for _, d := range t.demands {
		holders := d.Keys.Holders(now)
		var named []string
		var ended error
		able := 0
		for _, h := range holders {
			txt := signature.Signer{Key: h.Key, Principal: strings.Join(h.Principals, ",")}.String()
			switch {
			case h.Err != nil:
				ended = h.Err
				soon = append(soon, h.Err.Error())
				continue
			case !h.Expires.IsZero():
				txt += " until " + h.Expires.UTC().Format(time.DateOnly)
				if left := h.Expires.Sub(now); left <= EndsSoon {
					soon = append(soon, fmt.Sprintf("%s ends in %s", h.Key, text.Age(max(left, 0))))
				}
			}
			able++
			if len(named) < mostHolders {
				named = append(named, txt)
			}
		}
		if able == 0 {
			return SignersLook{}, fmt.Errorf("%s asks for signatures, and none of its %s is of use: %w", d.by, text.Plural(len(holders), "key"), ended)
		}
		txt := fmt.Sprintf("%s, by %s: %s", d.Mode, d.by, strings.Join(named, ", "))
		if able > len(named) {
			txt += fmt.Sprintf(" and %d more", able-len(named))
		}
		if who := d.wanted(); who != "" {
			txt += "; for " + who
		}
		texts = append(texts, txt)
	}
	look := SignersLook{Text: text.Clean(cut(strings.Join(texts, "; ")))}
	look.Soon = text.Clean(cut(strings.Join(soon[:min(len(soon), mostHolders)], "; ")))
	return look, nil
}

// wanted are the persons of whom one has to have signed.
func (d demand) wanted() string {
	who := d.Principals
	if d.OfMaker {
		who = append([]string{committer}, who...)
	}
	return strings.Join(who, ", ")
}

// Passing says that an error of a look is one of the moment.
func Passing(err error) bool {
	_, away := errors.AsType[*kube.UnavailableError](err)
	return away || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
