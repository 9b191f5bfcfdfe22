package auth

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"limpet/sync/signature"
)

// VerificationPolicy is a rule of the configuration: what has to be signed by which
// keys in some Repositories, whatever those ask for themselves. The author of a Repository
// must not be able to evade it, so it goes by URL and name, and not by labels.
type VerificationPolicy struct {
	// URL is a pattern of a host, or of a host and the beginning of a path, as that of a Rule; but scheme and port do
	// not matter, nor whether letters are capital. "*" and "" stand for every URL.
	URL string
	// Repositories are patterns such as team-a/*, one of which has to match namespace and name; none = all.
	Repositories []string
	// Mode is one of package signature, or "none": nothing has to be signed, and no later rule is used.
	Mode       string
	Principals []string
	// Values and Files hold keys of signers by names as for [signature.ParseKeys]: the
	// keys themselves, or absolute paths that are read at every look-up.
	Values map[string]string
	Files  map[string]string
}

// PolicyNone is the Mode that requires nothing.
const PolicyNone = "none"

// PoliciesFor returns the rules for a Repository: for each of its URLs the first that matches, each once and without
// those that require nothing. All of them have to be met, so that a URL with a weaker rule hides no other.
func PoliciesFor(rules []VerificationPolicy, namespace, name string, urls ...string) (out []*VerificationPolicy) {
	for _, url := range urls {
		i := slices.IndexFunc(rules, func(p VerificationPolicy) bool { return p.matches(namespace, name, url) })
		if i >= 0 && rules[i].Mode != PolicyNone && !slices.Contains(out, &rules[i]) {
			out = append(out, &rules[i])
		}
	}
	return out
}

func (p VerificationPolicy) matches(namespace, name, url string) bool {
	if len(p.Repositories) > 0 && !slices.ContainsFunc(p.Repositories, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace+"/"+name)
		return err == nil && ok
	}) {
		return false
	}
	if p.all() {
		return true
	}
	have, err := ParseAddress(url) // nothing can be pulled from a wrong one
	want, werr := p.pattern()
	if err != nil || werr != nil {
		return false
	}
	have.Host, have.Path = strings.TrimSuffix(have.Host, "."), strings.ToLower(have.Path)
	if all := parts(have.Path); len(all) > 1 && strings.HasPrefix(all[0], "~") { // a home directory, of ssh
		have.Path = strings.Join(all[1:], "/")
	}
	return want.covers(have)
}

func (p VerificationPolicy) all() bool { return p.URL == "" || p.URL == "*" }

// pattern reads p.URL, in small letters.
func (p VerificationPolicy) pattern() (Address, error) {
	raw := strings.ToLower(p.URL)
	if !strings.Contains(raw, "://") && !strings.HasPrefix(raw, "/") {
		raw = "https://" + raw
	}
	return Rule{URL: raw}.pattern()
}

// Name identifies the rule for people.
func (p VerificationPolicy) Name() string {
	name := ""
	if !p.all() {
		name = p.URL + " "
	}
	return cmp.Or(strings.TrimSpace(name+strings.Join(p.Repositories, ", ")), "for all repositories")
}

// Keys reads the keys of the rule.
func (p VerificationPolicy) Keys() (*Trust, error) {
	keys, err := readKeys(p.Values, p.Files, signature.IsKeys, checkOwned)
	if err != nil {
		return nil, p.wrong("%w", err)
	}
	return &Trust{Files: keys, Place: "verification rule " + p.Name()}, nil
}

// wrong is an error about the rule.
func (p VerificationPolicy) wrong(format string, args ...any) error {
	return fmt.Errorf("verification rule %s: %w", p.Name(), fmt.Errorf(format, args...))
}

// Check returns what is wrong with the rule itself: a malformed pattern, an unknown mode,
// no keys, or keys that cannot be read.
func (p VerificationPolicy) Check() error {
	if strings.Contains(p.URL, "@") {
		return errors.New("verification rule: the url pattern must not hold a user or a password")
	}
	if !p.all() {
		if _, err := p.pattern(); err != nil {
			return p.wrong("%w", err)
		}
	}
	for _, pattern := range p.Repositories {
		if _, err := path.Match(pattern, ""); err != nil || strings.Count(pattern, "/") != 1 {
			return p.wrong("repositories: %q is no pattern such as NAMESPACE/NAME, team-a/* or */site", pattern)
		}
	}
	if p.Mode == PolicyNone {
		if len(p.Values)+len(p.Files)+len(p.Principals) > 0 {
			return p.wrong("it has keys or principals, and the mode none, which requires nothing")
		}
		return nil
	}
	if _, err := signature.ParseMode(p.Mode); err != nil || p.Mode == "" {
		return p.wrong("mode: %q is none of %s, %s, %s and %s", p.Mode, signature.HEAD, signature.TagOnly, signature.TagAndHEAD,
			PolicyNone)
	}
	for _, k := range slices.Concat(slices.Collect(maps.Keys(p.Values)), slices.Collect(maps.Keys(p.Files))) {
		if !signature.IsKeys(k) {
			return p.wrong("key %q: the keys of signers are named *.asc, *.sshpub or %s", k, signature.AllowedSigners)
		}
	}
	found, err := p.Keys()
	if err != nil {
		return err
	}
	keys, err := signature.ParseKeys(found.Files, found.Place)
	if err != nil {
		return p.wrong("%w", err)
	}
	if keys.Len() == 0 {
		return p.wrong("it names no keys that may sign: give *.asc, *.sshpub or allowed_signers under files or values")
	}
	return nil
}

// Paths returns the files that the rule reads, in order.
func (p *VerificationPolicy) Paths() []string {
	return slices.Sorted(maps.Values(p.Files))
}
