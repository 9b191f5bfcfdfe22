package auth

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"limpet/sync/signature"
)

// Rule gives credentials to every remote whose URL matches. It comes from the configuration file.
type Rule struct {
	// URL is a pattern such as https://git.example.com/team/*. Scheme and port must be equal; the host
	// may begin with "*." for any host below a domain; the path matches from its beginning, part by
	// part, with * and [] as in file names. Without a path it matches the whole host.
	URL string
	// Provider makes credentials of the keys, or of the identity of this host where there are none. ""
	// is Generic.
	Provider string
	// Values by key: meant for what is not secret, such as username, known_hosts and githubAppID.
	Values map[string]string
	// Files by key: absolute paths, read at every look-up, refused when others than the owner may read
	// them, of a CA when they may write to it.
	Files map[string]string
}

// keys reads the keys of a kind, nil when there are none.
func (r Rule) keys(is func(string) bool, check fileCheck) (map[string][]byte, error) {
	keys, err := readKeys(r.Values, r.Files, is, check)
	if err != nil {
		return nil, r.wrong("%w", err)
	}
	return keys, nil
}

func (r Rule) wrong(format string, args ...any) error {
	return fmt.Errorf("credentials rule %s: %w", r.URL, fmt.Errorf(format, args...))
}

// readKeys reads the keys of a kind, given as values or as files, nil when there are none.
func readKeys(values, files map[string]string, is func(string) bool, check fileCheck) (map[string][]byte, error) {
	var at place
	for k, v := range values {
		if _, twice := files[k]; twice {
			return nil, fmt.Errorf("key %s is given as value and as file", k)
		}
		if is(k) {
			at.set(k, []byte(v))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(files)) {
		if !is(k) {
			continue
		}
		v, err := readFile(os.OpenFile, files[k], check.of(k))
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", k, err)
		}
		at.set(k, v)
	}
	return at.keys, nil
}

// onlyTransport reports whether the rule only says how a host is reached.
func (r Rule) onlyTransport() bool {
	return r.Provider == "" && r.all(func(k string) bool { return slices.Contains(transportKeys, k) })
}

// onlySigning reports whether the rule has keys of signers or one to sign with, and nothing else.
func (r Rule) onlySigning() bool {
	return r.Provider == "" && len(r.Values)+len(r.Files) > 0 && r.all(aboutSigning)
}

// all reports whether all keys are of a kind.
func (r Rule) all(is func(string) bool) bool {
	other := func(k string) bool { return !is(k) }
	return !slices.ContainsFunc(slices.Collect(maps.Keys(r.Values)), other) && !slices.ContainsFunc(slices.Collect(maps.Keys(r.Files)), other)
}

// RuleFiles returns the files that rules may read for a remote, in order.
func RuleFiles(rules []Rule, url string) []string {
	a, err := ParseAddress(url)
	if err != nil {
		return nil
	}
	var files []string
	for _, r := range rules {
		if r.matches(a) {
			files = append(files, slices.Collect(maps.Values(r.Files))...)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// Check returns what is wrong with the rule itself: a pattern that is not a URL, an unknown key, a
// key given twice, a file that is missing or open to others.
func (r Rule) Check() error {
	if strings.Contains(r.URL, "@") {
		return errors.New("credentials rule: the url pattern must not hold a user or a password")
	}
	if _, err := r.pattern(); err != nil {
		return err
	}
	if err := CheckProvider(r.Provider); err != nil {
		return r.wrong("%w", err)
	}
	if len(r.Values)+len(r.Files) == 0 && (r.Provider == "" || r.Provider == Generic) {
		return r.wrong("it gives no key")
	}
	for _, k := range append(slices.Sorted(maps.Keys(r.Values)), slices.Sorted(maps.Keys(r.Files))...) {
		if err := r.checkKey(k); err != nil {
			return err
		}
	}
	_, err := r.keys(isForGit, checkPrivate)
	signing, serr := r.keys(isSigningKey, checkPrivate)
	signers, kerr := r.keys(signature.IsKeys, checkOwned)
	if err := cmp.Or(err, serr, kerr); err != nil {
		return err
	}
	if _, err := signingKey(place{keys: signing, name: "rule " + r.URL}); err != nil {
		return err
	}
	if _, err := signature.ParseKeys(signers, ""); err != nil {
		return r.wrong("%w", err)
	}
	return nil
}

// checkKey refuses a key that has no meaning, or one of another provider.
func (r Rule) checkKey(k string) error {
	if aboutSigning(k) {
		return nil
	}
	known := slices.Concat(keyNames, identityKeys[r.Provider])
	if r.Provider == "" {
		known = usedKeys
	}
	if slices.Contains(known, k) {
		return nil
	}
	if slices.Contains(usedKeys, k) {
		return r.wrong("key %s has no meaning for provider %s", k, r.Provider)
	}
	return r.wrong("unknown key %q, %s", k, meant(k, slices.Concat(known, signingNames)))
}

// matches reports whether the rule is for this remote.
func (r Rule) matches(a Address) bool {
	p, err := r.pattern()
	return err == nil && p.Scheme == a.Scheme && p.Port == a.Port && p.covers(a)
}

// covers reports whether host and path of another match those of a, a pattern.
func (a Address) covers(other Address) bool {
	if below, wild := strings.CutPrefix(a.Host, "*."); wild {
		if !strings.HasSuffix(other.Host, "."+below) {
			return false
		}
	} else if a.Host != other.Host {
		return false
	}
	want, have := parts(a.Path), parts(other.Path)
	if len(want) > len(have) {
		return false
	}
	for i, w := range want {
		ok, err := path.Match(w, have[i])
		last := i == len(have)-1
		if !ok && last { // the pattern may leave .git out
			ok, err = path.Match(w, strings.TrimSuffix(have[i], ".git"))
		}
		if err != nil || !ok {
			return false
		}
	}
	return true
}

// pattern parses r.URL; a missing path stands for the whole host.
func (r Rule) pattern() (Address, error) {
	raw, whole := r.URL, false
	if scheme, rest, ok := strings.Cut(raw, "://"); ok && !strings.Contains(strings.Trim(rest, "/"), "/") {
		raw, whole = scheme+"://"+strings.Trim(rest, "/")+"/x", true
	}
	a, err := ParseAddress(raw)
	if err != nil {
		return a, fmt.Errorf("credentials rule %q: %w", r.URL, err)
	}
	if whole {
		a.Path = ""
	}
	for _, part := range parts(a.Path) {
		if _, err := path.Match(part, ""); err != nil {
			return a, fmt.Errorf("credentials rule %q: %w", r.URL, err)
		}
	}
	return a, nil
}

func parts(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// VerificationPolicy is a rule of the configuration: what has to be signed by which
// keys in some Repositories, whatever those ask for themselves. The author of a Repository
// must not be able to evade it, so it goes by URL and name, and not by labels.
type VerificationPolicy struct {
	// URL is a pattern of a host, or of a host and the beginning of a path, as that of a Rule; but
	// scheme and port do not matter, nor whether letters are capital. "*" and "" stand for every URL.
	URL string
	// Repositories are patterns such as team-a/*, one of which has to match namespace and name; none =
	// all.
	Repositories []string
	// Mode is one of package signature, or "none": nothing has to be signed, and no later rule is
	// used.
	Mode       string
	Principals []string
	// Values and Files hold keys of signers by names as for [signature.ParseKeys]: the
	// keys themselves, or absolute paths that are read at every look-up.
	Values map[string]string
	Files  map[string]string
}

// PolicyNone is the Mode that requires nothing.
const PolicyNone = "none"

// PoliciesFor returns the rules for a Repository: for each of its URLs the first that matches, each
// once and without those that require nothing. All of them have to be met, so that a URL with a
// weaker rule hides no other.
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

// Paths returns the files that the rule reads, sorted.
func (p *VerificationPolicy) Paths() []string {
	return slices.Sorted(maps.Values(p.Files))
}
