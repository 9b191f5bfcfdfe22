package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// Signers knows what has to be signed in a Repository, and by whom: what it asks for
// itself, with keys from the places of credentials, and what the configuration asks for
// with keys of its own. Both have to be met. Keys are read once for as long as they are
// the same. Safe for concurrent use; a nil *Signers has no keys and no rules.
type Signers struct {
	from  auth.TrustSource
	rules []auth.VerificationPolicy
	saw   func(path string)
	cache signature.Cache
}

// NewSigners returns those of an agent. A nil source has no keys. saw, if not nil, is told
// of the files of a rule before they are read.
func NewSigners(from auth.TrustSource, rules []auth.VerificationPolicy, saw func(path string)) *Signers {
	return &Signers{from: from, rules: rules, saw: saw}
}

// committer is the principal that stands for who made the commit or tag, as it says.
const committer = "committer"

// trust is what has to be signed in a Repository, with the keys that are there. Digest
// changes with any of it; it is not empty.
type trust struct {
	demands []demand
	digest  string
}

// demand is one of those who ask for signatures.
type demand struct {
	git.Verification
	by    string // for people
	ruled bool   // it is a rule of the configuration
}

// tag reports that the tag object has to be signed.
func (t *trust) tag() bool {
	return slices.ContainsFunc(t.demands, func(d demand) bool { return d.Mode.Tag() })
}

// of reads what has to be signed and by whom; nil when nothing has to be. An error is a
// *signature.Error, but where the keys cannot be read for the moment; the digest is that
// of what is known.
func (s *Signers) of(ctx context.Context, repo api.Repository, l auth.Lookup) (*trust, error) {
	t := &trust{}
	var text []string
	var wrong error
	add := func(d demand, mode, principals string, err error) {
		if err != nil && wrong == nil {
			wrong = err
		}
		text = append(text, mode, principals, d.Keys.Digest())
		if err != nil {
			text = append(text, err.Error())
		}
		t.demands = append(t.demands, d)
	}
	if repo.GitVerify != "" {
		d, err := s.asked(ctx, repo, l)
		if err != nil && signature.KindOf(err) == "" {
			return nil, err
		}
		add(d, repo.GitVerify, repo.GitVerifyPrincipals, err)
	}
	if s != nil {
		// Who reads another copy has to meet what is asked of that, too.
		for _, rule := range auth.PoliciesFor(s.rules, l.Namespace, l.Repository, append(URLs(repo), l.URL)...) {
			d, err := s.ruled(rule)
			add(d, rule.Mode, strings.Join(rule.Principals, ","), err)
		}
	}
	if len(t.demands) == 0 {
		return nil, nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", text))
	t.digest = hex.EncodeToString(sum[:8])
	return t, wrong
}

// asked is what the Repository itself asks for.
func (s *Signers) asked(ctx context.Context, repo api.Repository, l auth.Lookup) (demand, error) {
	d := demand{by: "annotation " + api.AnnoGitVerify}
	wrong := func(kind signature.Kind, err error) (demand, error) { return d, &signature.Error{Kind: kind, Err: err} }
	mode, err := signature.ParseMode(repo.GitVerify)
	if err != nil {
		return wrong(signature.WrongMode, fmt.Errorf("%s: %w", d.by, err))
	}
	d.Mode = mode
	d.of(strings.Split(repo.GitVerifyPrincipals, ","))
	var found *auth.Trust
	if s != nil && s.from != nil {
		if found, err = s.from(ctx, l); err != nil {
			if _, away := errors.AsType[*kube.UnavailableError](err); away || ctx.Err() != nil {
				return d, err
			}
			return wrong(signature.NoKeys, fmt.Errorf("the keys that may sign cannot be read: %w", err))
		}
	}
	if found == nil {
		return wrong(signature.NoKeys, fmt.Errorf("%s asks for signatures, and there are no keys that may sign: put *.asc, *.sshpub or %s into the secret of the repository or below --credentials-dir in %s.%s/",
			d.by, signature.AllowedSigners, l.Namespace, l.Repository))
	}
	err = s.keys(&d, found)
	return d, err
}

// ruled is what a rule of the configuration asks for.
func (s *Signers) ruled(rule *auth.VerificationPolicy) (demand, error) {
	d := demand{by: "rule " + rule.Name() + " of the configuration", ruled: true}
	mode, err := signature.ParseMode(rule.Mode)
	if err != nil {
		return d, &signature.Error{Kind: signature.WrongMode, Err: fmt.Errorf("%s: %w", d.by, err)}
	}
	d.Mode = mode
	d.of(rule.Principals)
	for _, path := range rule.Paths() {
		if s.saw != nil {
			s.saw(path)
		}
	}
	found, err := rule.Keys()
	if err != nil {
		return d, &signature.Error{Kind: signature.NoKeys, Err: fmt.Errorf("the keys that may sign cannot be read: %w", err)}
	}
	err = s.keys(&d, found)
	return d, err
}

// of takes the persons of whom one has to be the owner of the key.
func (d *demand) of(principals []string) {
	for _, name := range principals {
		switch name = strings.TrimSpace(name); name {
		case "":
		case committer:
			d.OfMaker = true
		default:
			d.Principals = append(d.Principals, name)
		}
	}
}

// keys reads the keys that were found.
func (s *Signers) keys(d *demand, found *auth.Trust) (err error) {
	if d.Keys, err = s.cache.Keys(found.Files, found.Place); err != nil {
		return &signature.Error{Kind: signature.NoKeys, Err: fmt.Errorf("%s: %w", found.Place, err)}
	}
	if d.Keys.Len() == 0 {
		return &signature.Error{Kind: signature.NoKeys, Err: fmt.Errorf("%s: there is no key in %s", found.Place, strings.Join(slices.Sorted(maps.Keys(found.Files)), ", "))}
	}
	return nil
}

// Asked tells what is asked of signatures in a Repository: a text that changes with it
// and with the keys, "" for nothing, and whether a tag object has to be signed. An error
// is one of the moment.
func (s *Signers) Asked(ctx context.Context, namespace, name string, repo api.Repository) (digest string, tag bool, err error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return "", false, err
	}
	t, err := s.of(ctx, repo, src.lookup)
	switch {
	case t != nil:
		return t.digest, t.tag(), nil
	case err != nil:
		return "", false, err
	}
	return "", false, nil
}

// Judge reports whether a ref is signed as it has to be, by the keys of now: as a condition
// for the Repository, nil where this agent cannot tell, because nothing is asked or it has
// no keys. It fetches what is not in the mirror. An error is one of the moment.
func (s *Signers) Judge(ctx context.Context, g Git, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref, now time.Time) (*api.Condition, error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return nil, err
	}
	t, err := s.of(ctx, repo, src.lookup)
	switch {
	case signature.KindOf(err) == signature.NoKeys || err == nil && t == nil:
		return nil, nil
	case signature.KindOf(err) != "":
		return t.condition(ref, nil, err), nil
	case err != nil:
		return nil, err
	}
	if _, err := g.Fetch(ctx, remote, ref); err != nil {
		return nil, err
	}
	found, err := t.verify(ctx, g, remote, ref, now)
	if err != nil && git.KindOf(err) != git.Unverified {
		return nil, err
	}
	return t.condition(ref, found, err), nil
}

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

// Passing reports that an error of a look is one of the moment.
func Passing(err error) bool {
	_, away := errors.AsType[*kube.UnavailableError](err)
	return away || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
