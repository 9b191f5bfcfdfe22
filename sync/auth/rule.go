package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"limpet/sync/signature"
	"limpet/sync/text"
)

// Rule gives credentials to every remote whose URL matches. It comes from the
// configuration file.
type Rule struct {
	// URL is a pattern such as https://git.example.com/team/*. Scheme and port
	// must be equal; the host may begin with "*." for any host below a domain;
	// the path matches from its beginning, part by part, with * and [] as in
	// file names. Without a path it matches the whole host.
	URL string
	// Provider makes credentials of the keys, or of the identity of this host where
	// there are none. "" is Generic.
	Provider string
	// Values by key: meant for those that are no secrets, such as username,
	// known_hosts and githubAppID.
	Values map[string]string
	// Files by key: absolute paths, read at every look-up, refused
	// when others than the owner may read them.
	Files map[string]string
}

// RuleSource tries the rules in order; the first whose URL matches is used. Those
// that only say how a host is reached are left to Lines.
func RuleSource(rules []Rule) Source {
	return SourceFunc(func(_ context.Context, l Lookup) (*Credentials, error) {
		a, err := ParseAddress(l.URL)
		if err != nil {
			return nil, nil
		}
		for _, r := range rules {
			if r.line() || r.onlySigning() || !r.matches(a) {
				continue
			}
			keys, err := r.keys()
			if err != nil {
				return nil, err
			}
			place := "rule " + r.URL
			if r.Provider != "" {
				if l.Provider != "" && l.Provider != r.Provider {
					return nil, ProviderError{fmt.Errorf("credentials in %s: they are for provider %s, and the repository asks for %s", place, r.Provider, text.Clean(l.Provider))}
				}
				l.Provider = r.Provider
			}
			c, err := credentials(keys, l, place)
			return trusted(true, c, err)
		}
		return nil, nil
	})
}

// keys reads what the rule holds but for keys of signers and the one to sign with.
func (r Rule) keys() (map[string][]byte, error) {
	keys := make(map[string][]byte)
	for k, v := range r.Values {
		if !aboutSigning(k) {
			keys[k] = []byte(v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Files)) {
		if aboutSigning(k) {
			continue
		}
		v, err := ReadPrivate(r.Files[k])
		if err != nil {
			return nil, fmt.Errorf("credentials rule %s: key %s: %w", r.URL, k, err)
		}
		keys[k] = v
	}
	return keys, nil
}

// RuleFiles are the files that RuleSource, Lines, TrustRules and SigningRules may read
// for a remote, in order.
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

// Check reports what is wrong with the rule itself: a pattern that is not a
// URL, an unknown key, a key given twice, a file that is missing or open to
// others.
func (r Rule) Check() error {
	if strings.Contains(r.URL, "@") {
		return errors.New("credentials rule: the url pattern must not hold a user or a password")
	}
	if _, err := r.pattern(); err != nil {
		return err
	}
	if err := CheckProvider(r.Provider); err != nil {
		return fmt.Errorf("credentials rule %s: %w", r.URL, err)
	}
	if len(r.Values)+len(r.Files) == 0 && (r.Provider == "" || r.Provider == Generic) {
		return fmt.Errorf("credentials rule %s: it gives no key", r.URL)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Values)) {
		if _, twice := r.Files[k]; twice {
			return fmt.Errorf("credentials rule %s: key %s is given as value and as file", r.URL, k)
		}
		if err := r.checkKey(k); err != nil {
			return err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Files)) {
		if err := r.checkKey(k); err != nil {
			return err
		}
		if signature.IsKeys(k) {
			continue
		}
		if _, err := ReadPrivate(r.Files[k]); err != nil {
			return fmt.Errorf("credentials rule %s: key %s: %w", r.URL, k, err)
		}
	}
	if _, err := r.signing(); err != nil {
		return err
	}
	found, err := r.trust()
	if err != nil {
		return err
	}
	if _, err := signature.ParseKeys(found.Files, found.Place); err != nil {
		return fmt.Errorf("credentials rule %s: %w", r.URL, err)
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
		return fmt.Errorf("credentials rule %s: key %s has no meaning for provider %s", r.URL, k, r.Provider)
	}
	known = slices.Concat(known, signingKeys)
	near, distance := "", len(k)/3+1
	for _, name := range known {
		if d := text.Distance(k, name); d < distance {
			near, distance = name, d
		}
	}
	if near != "" {
		return fmt.Errorf("credentials rule %s: unknown key %q, did you mean %q?", r.URL, k, near)
	}
	return fmt.Errorf("credentials rule %s: unknown key %q, known are %s", r.URL, k, strings.Join(known, ", "))
}

// matches tells whether the rule is for this remote.
func (r Rule) matches(a Address) bool {
	p, err := r.pattern()
	return err == nil && p.Scheme == a.Scheme && p.Port == a.Port && p.covers(a)
}

// covers says that host and path of another are among those of a, a pattern.
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

// pattern reads r.URL; a missing path stands for the whole host.
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
