package checkout

import (
	"cmp"
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

// Signers holds the signature policies of Repositories: that of the Repository itself, with keys
// from the places of credentials, and those of the configuration, with their own keys. Both apply.
// It is safe for concurrent use; a nil *Signers has no keys and no rules.
type Signers struct {
	from  auth.TrustSource
	rules *auth.List[auth.VerificationPolicy]
	saw   func(path string)
}

// NewSigners returns the Signers of an agent. A nil source has no keys. saw, if not nil, is called
// with each file of a rule before it is read.
func NewSigners(from auth.TrustSource, rules *auth.List[auth.VerificationPolicy], saw func(path string)) *Signers {
	return &Signers{from: from, rules: rules, saw: saw}
}

// committer is the principal for the committer of the commit or the tagger of the tag.
const committer = "committer"

// Trust is the signature policy of a Repository with its keys. digest changes with any part of it;
// it is not empty.
type Trust struct {
	demands []demand
	digest  string
}

// demand is one source of a signature policy.
type demand struct {
	git.Verification
	by    string // for messages
	ruled bool   // it is a rule of the configuration
}

// Tag reports whether the tag object has to be signed.
func (t *Trust) Tag() bool {
	return slices.ContainsFunc(t.demands, func(d demand) bool { return d.Mode.Tag() })
}

// Trust returns the signature policy of a Repository; nil for none. An error is a *signature.Error,
// unless it is transient; the digest then covers the readable part.
func (s *Signers) Trust(ctx context.Context, repo api.Repository, l auth.Lookup) (*Trust, error) {
	t := &Trust{}
	var parts []string
	var wrong error
	add := func(d demand, mode, principals string, err error) {
		wrong = cmp.Or(wrong, err)
		parts = append(parts, mode, principals, d.Keys.Digest())
		if err != nil {
			parts = append(parts, err.Error())
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
		// The policies of the mirrors apply as well.
		for _, rule := range auth.PoliciesFor(s.rules.Get(), l.Namespace, l.Repository, append(URLs(repo), l.URL)...) {
			d, err := s.ruled(rule)
			add(d, rule.Mode, strings.Join(rule.Principals, ","), err)
		}
	}
	if len(t.demands) == 0 {
		return nil, nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	t.digest = hex.EncodeToString(sum[:8])
	return t, wrong
}

// policy is Trust for a Repository by its name.
func (s *Signers) policy(ctx context.Context, namespace, name string, repo api.Repository) (*Trust, error) {
	src, err := sourceOf(namespace, name, repo)
	if err != nil {
		return nil, err
	}
	return s.Trust(ctx, repo, src.lookup)
}

// asked returns the demand of the Repository itself.
func (s *Signers) asked(ctx context.Context, repo api.Repository, l auth.Lookup) (demand, error) {
	by := "annotation " + api.AnnoGitVerify
	return s.demand(by, repo.GitVerify, strings.Split(repo.GitVerifyPrincipals, ","), func() (found *auth.Trust, err error) {
		if s != nil && s.from != nil {
			found, err = s.from(ctx, l)
		}
		if found == nil && err == nil {
			err = noKeys("%s asks for signatures, and there are no keys that may sign: "+
				"put *.asc, *.sshpub or %s into the secret of the repository or below --credentials-dir in %s.%s/",
				by, signature.AllowedSigners, l.Namespace, l.Repository)
		}
		return found, err
	})
}

// ruled returns the demand of a rule of the configuration.
func (s *Signers) ruled(rule *auth.VerificationPolicy) (demand, error) {
	d, err := s.demand("rule "+rule.Name()+" of the configuration", rule.Mode, rule.Principals, func() (*auth.Trust, error) {
		for _, path := range rule.Paths() {
			if s.saw != nil {
				s.saw(path)
			}
		}
		return rule.Keys()
	})
	d.ruled = true
	return d, err
}

// Ruled returns what the configuration demands of the signatures of another object than a
// Repository, at a URL.
func (s *Signers) Ruled(namespace, name, url string) (all []git.Verification, err error) {
	return s.verifications(auth.PoliciesFor(s.rules.Get(), namespace, name, url), time.Time{})
}

// verifications returns what rules demand at a time.
func (s *Signers) verifications(rules []*auth.VerificationPolicy, now time.Time) (all []git.Verification, err error) {
	for _, rule := range rules {
		d, err := s.ruled(rule)
		if err != nil {
			return nil, err
		}
		d.Now = now
		all = append(all, d.Verification)
	}
	return all, nil
}

// Submodules returns what the configuration demands of the signatures of submodules, by URL, for
// git.Remote.Demands. A rule that the object with the URLs meets itself holds for them too: a
// signed commit names theirs by hash.
func (s *Signers) Submodules(
	namespace, name string, now func() time.Time, urls ...string,
) func(url string) ([]git.Verification, error) {
	return func(url string) (all []git.Verification, err error) {
		if s == nil {
			return nil, nil
		}
		rules := s.rules.Get()
		met := auth.PoliciesFor(rules, namespace, name, urls...)
		others := slices.DeleteFunc(auth.PoliciesFor(rules, namespace, name, url), func(rule *auth.VerificationPolicy) bool {
			return slices.Contains(met, rule)
		})
		return s.verifications(others, now())
	}
}

// Files returns the files of the keys that Ruled reads.
func (s *Signers) Files(namespace, name, url string) (paths []string) {
	for _, rule := range auth.PoliciesFor(s.rules.Get(), namespace, name, url) {
		paths = append(paths, rule.Paths()...)
	}
	return paths
}

// demand returns a demand with the keys that find returns. One of the principals has to own the
// key.
func (s *Signers) demand(by, mode string, principals []string, find func() (*auth.Trust, error)) (d demand, err error) {
	d.by = by
	if d.Mode, err = signature.ParseMode(mode); err != nil {
		return d, &signature.Error{Kind: signature.WrongMode, Err: fmt.Errorf("%s: %w", by, err)}
	}
	for _, name := range principals {
		switch name = strings.TrimSpace(name); name {
		case "":
		case committer:
			d.OfMaker = true
		default:
			d.Principals = append(d.Principals, name)
		}
	}
	found, err := find()
	switch {
	case err == nil:
		return d, s.keys(&d, found)
	case signature.KindOf(err) != "" || transient(err):
		return d, err
	}
	return d, noKeys("the keys that may sign cannot be read: %w", err)
}

func noKeys(format string, args ...any) error {
	return &signature.Error{Kind: signature.NoKeys, Err: fmt.Errorf(format, args...)}
}

// keys parses the keys that were found.
func (s *Signers) keys(d *demand, found *auth.Trust) (err error) {
	if d.Keys, err = signature.ParseKeys(found.Files, found.Place); err != nil {
		return noKeys("%s: %w", found.Place, err)
	}
	if d.Keys.Len() == 0 {
		return noKeys("%s: there is no key in %s", found.Place, strings.Join(slices.Sorted(maps.Keys(found.Files)), ", "))
	}
	return nil
}

// Asked returns the digest of the signature policy of a Repository and its keys, "" for no policy,
// and whether a tag object has to be signed. An error is transient.
func (s *Signers) Asked(ctx context.Context, namespace, name string, repo api.Repository) (digest string, tag bool, err error) {
	t, err := s.policy(ctx, namespace, name, repo)
	if t == nil {
		return "", false, err
	}
	return t.digest, t.Tag(), nil
}

// EndsSoon is the time before the expiry of a key from which a warning is shown.
const EndsSoon = 14 * 24 * time.Hour

// mostHolders limits the keys that a description lists.
const mostHolders = 5

// KeysLook describes the keys of a signature policy, or the key that signs, for users.
type KeysLook struct {
	Text string // "" = none
	Soon string // what has expired or will soon; "" = nothing
}

// Look describes the signature policy of a Repository and its keys. An error means that nothing can
// be pulled: there are no keys, they cannot be read, or all of them have expired. It makes no
// request to a Git host.
func (s *Signers) Look(ctx context.Context, namespace, name string, repo api.Repository, now time.Time) (KeysLook, error) {
	t, err := s.policy(ctx, namespace, name, repo)
	if err != nil || t == nil {
		return KeysLook{}, err
	}
	return t.look(now)
}

// LookAtKeys is Look for keys of another object than a Repository; by names the source of the
// policy in messages.
func (s *Signers) LookAtKeys(mode signature.Mode, by string, found *auth.Trust, now time.Time) (KeysLook, error) {
	d := demand{by: by}
	d.Mode = mode
	if err := s.keys(&d, found); err != nil {
		return KeysLook{}, err
	}
	return (&Trust{demands: []demand{d}}).look(now)
}

func (t *Trust) look(now time.Time) (KeysLook, error) {
	var texts, soon []string
	for _, d := range t.demands {
		var able []string
		var ended error
		holders := d.Keys.Holders(now)
		for _, h := range holders {
			if h.Err != nil {
				ended = h.Err
				soon = append(soon, h.Err.Error())
				continue
			}
			until, left := expiry(h.Expires, now)
			if left != "" {
				soon = append(soon, fmt.Sprint(h.Key, left))
			}
			able = append(able, signature.Signer{Key: h.Key, Principal: strings.Join(h.Principals, ",")}.String()+until)
		}
		if len(able) == 0 {
			return KeysLook{}, fmt.Errorf("%s asks for signatures, and none of its %s is of use: %w",
				d.by, text.Plural(len(holders), "key"), ended)
		}
		txt := fmt.Sprintf("%s, by %s: %s", d.Mode, d.by, strings.Join(able[:min(len(able), mostHolders)], ", "))
		if more := len(able) - mostHolders; more > 0 {
			txt += fmt.Sprintf(" and %d more", more)
		}
		who := d.Principals
		if d.OfMaker {
			who = append([]string{committer}, who...)
		}
		if len(who) > 0 {
			txt += "; for " + strings.Join(who, ", ")
		}
		texts = append(texts, txt)
	}
	soon = soon[:min(len(soon), mostHolders)]
	return KeysLook{text.Line(strings.Join(texts, "; "), maxVerdict), text.Line(strings.Join(soon, "; "), maxVerdict)}, nil
}

// expiry describes when a key ends, and how soon if that is near.
func expiry(end, now time.Time) (until, soon string) {
	if end.IsZero() {
		return "", ""
	}
	if left := end.Sub(now); left <= EndsSoon {
		soon = " ends in " + text.Age(max(left, 0))
	}
	return " until " + end.UTC().Format(time.DateOnly), soon
}

func transient(err error) bool {
	_, away := errors.AsType[*kube.UnavailableError](err)
	return away || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Takes returns an error if pulls would reject a commit of a committer that is signed with key; nil
// means unsigned.
func (t *Trust) Takes(key *signature.SigningKey, mail string, now time.Time) error {
	for _, d := range t.demands {
		if !d.Mode.Head() {
			continue
		}
		if key == nil {
			return fmt.Errorf("commits that jobs make are not signed, and %s asks for it: they would not be pulled", d.by)
		}
		claim := signature.Claim{Made: now, Now: now, Principals: d.Principals}
		if d.OfMaker {
			claim.Principals = append([]string{mail}, claim.Principals...)
		}
		txt := fmt.Appendf(nil, "committer x <%s> %d +0000\n\n", mail, now.Unix())
		signed, err := key.Sign(txt)
		if err != nil {
			return err
		}
		if _, err := d.Keys.Verify(txt, signed, claim); err != nil {
			if signature.KindOf(err) == signature.UnknownKey {
				err = errors.New("its public key is not among those that may sign")
			}
			return fmt.Errorf("what it signs would not be pulled, by %s: %w", d.by, err)
		}
	}
	return nil
}

// verify verifies a ref in the mirror against all demands and returns its signatures.
func (t *Trust) verify(ctx context.Context, g Git, remote git.Remote, ref git.Ref, now time.Time) (found []git.Verified, err error) {
	for _, d := range t.demands {
		d.Now = now
		signed, err := g.Verify(ctx, remote, ref, d.Verification)
		if err != nil {
			return nil, err
		}
		for _, one := range signed {
			if !slices.Contains(found, one) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// Condition returns the result for the status of the Repository.
func (t *Trust) Condition(ref git.Ref, found []git.Verified, err error) *api.Condition {
	c := &api.Condition{Type: api.ConditionVerified, Status: "True", Reason: "Verified"}
	var texts []string
	for _, one := range found {
		texts = append(texts, fmt.Sprintf("%s is signed by %s", one.Object, one.Signer))
	}
	txt := strings.Join(texts, ", ")
	if err != nil {
		c.Status, c.Reason, txt = "False", reasonOf(signature.KindOf(err)), err.Error()
		if e, ok := errors.AsType[*git.Error](err); ok {
			txt = e.Err.Error()
		}
	}
	for _, d := range t.demands {
		if d.ruled {
			txt += ", required by " + d.by
		}
	}
	verdict := api.Verification{Trust: t.digest, Object: ref.Hash}
	if t.Tag() && ref.Tag != "" {
		verdict.Object = ref.Tag
	}
	c.Message = verdict.Message(text.Line(txt, maxVerdict))
	return c
}

// maxVerdict bounds the text of a condition: a key may have many owners. Unit: bytes.
const maxVerdict = 1000

// reasonOf returns a kind as the reason of a condition: UnknownKey for "unknown-key".
func reasonOf(kind signature.Kind) string {
	var out strings.Builder
	for part := range strings.SplitSeq(string(kind), "-") {
		if part != "" {
			out.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return cmp.Or(out.String(), "NotVerified")
}
