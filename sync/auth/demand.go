package auth

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"limpet/sync/signature"
)

// Demand is a rule of the configuration: what has to be signed by whom in some
// Repositories, whatever those ask for themselves. Who may edit a Repository cannot
// take it away, so it goes by the URL and by the name, and not by labels.
type Demand struct {
	// URL is a pattern of a host, or of a host and the beginning of a path, as that of a
	// Rule; but scheme and port do not matter, nor whether letters are capital. "*" and ""
	// stand for every URL.
	URL string
	// Repositories are patterns such as team-a/*, of which one has to match namespace
	// and name; none = all.
	Repositories []string
	// Mode is one of package signature, or "none": nothing is asked, and no later rule
	// looked at.
	Mode       string
	Principals []string
	// Values and Files hold keys of signers by names as for [signature.ParseKeys]: the
	// keys themselves, or absolute paths that are read at every look.
	Values map[string]string
	Files  map[string]string
}

// DemandNone is the Mode that asks for nothing.
const DemandNone = "none"

// DemandsFor are the rules for a Repository: for each of its URLs the first that
// matches, each once and those that ask for nothing left out. All of them have to be
// met, so that a URL which asks for less hides nothing.
func DemandsFor(rules []Demand, namespace, name string, urls ...string) (out []*Demand) {
	for _, url := range urls {
		i := slices.IndexFunc(rules, func(d Demand) bool { return d.matches(namespace, name, url) })
		if i >= 0 && rules[i].Mode != DemandNone && !slices.Contains(out, &rules[i]) {
			out = append(out, &rules[i])
		}
	}
	return out
}

func (d Demand) matches(namespace, name, url string) bool {
	if len(d.Repositories) > 0 && !slices.ContainsFunc(d.Repositories, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace+"/"+name)
		return err == nil && ok
	}) {
		return false
	}
	if d.all() {
		return true
	}
	have, err := ParseAddress(url)
	if err != nil {
		return false // nothing can be pulled from it
	}
	want, err := d.pattern()
	if err != nil {
		return false
	}
	have.Host, have.Path = strings.TrimSuffix(have.Host, "."), strings.ToLower(have.Path)
	if all := parts(have.Path); len(all) > 1 && strings.HasPrefix(all[0], "~") { // a home directory, of ssh
		have.Path = strings.Join(all[1:], "/")
	}
	return want.covers(have)
}

func (d Demand) all() bool { return d.URL == "" || d.URL == "*" }

// pattern reads d.URL, in small letters.
func (d Demand) pattern() (Address, error) {
	raw := strings.ToLower(d.URL)
	if !strings.Contains(raw, "://") && !strings.HasPrefix(raw, "/") {
		raw = "https://" + raw
	}
	return Rule{URL: raw}.pattern()
}

// Name tells the rule from others, for people.
func (d Demand) Name() string {
	var parts []string
	if !d.all() {
		parts = append(parts, d.URL)
	}
	if len(d.Repositories) > 0 {
		parts = append(parts, strings.Join(d.Repositories, ", "))
	}
	if len(parts) == 0 {
		return "for all repositories"
	}
	return strings.Join(parts, " ")
}

// Keys reads the keys of the rule.
func (d Demand) Keys() (*Trust, error) {
	found := &Trust{Files: map[string][]byte{}, Place: "verification rule " + d.Name()}
	for k, v := range d.Values {
		found.Files[k] = []byte(v)
	}
	for _, k := range slices.Sorted(maps.Keys(d.Files)) {
		v, err := readPublic(os.Open, d.Files[k])
		if err != nil {
			return nil, fmt.Errorf("verification rule %s: key %s: %w", d.Name(), k, err)
		}
		found.Files[k] = v
	}
	return found, nil
}

// Check reports what is wrong with the rule itself: a pattern that cannot be one, an
// unknown mode, no keys, or keys that cannot be read.
func (d Demand) Check() error {
	wrong := func(err error) error { return fmt.Errorf("verification rule %s: %w", d.Name(), err) }
	if strings.Contains(d.URL, "@") {
		return errors.New("verification rule: the url pattern must not hold a user or a password")
	}
	if !d.all() {
		if _, err := d.pattern(); err != nil {
			return wrong(err)
		}
	}
	for _, pattern := range d.Repositories {
		if _, err := path.Match(pattern, ""); err != nil || strings.Count(pattern, "/") != 1 {
			return wrong(fmt.Errorf("repositories: %q is no pattern such as NAMESPACE/NAME, team-a/* or */site", pattern))
		}
	}
	if d.Mode == DemandNone {
		if len(d.Values)+len(d.Files)+len(d.Principals) > 0 {
			return wrong(errors.New("it has keys or principals, and the mode none, which asks for nothing"))
		}
		return nil
	}
	if _, err := signature.ParseMode(d.Mode); err != nil || d.Mode == "" {
		return wrong(fmt.Errorf("mode: %q is none of %s, %s, %s and %s", d.Mode, signature.HEAD, signature.TagOnly, signature.TagAndHEAD, DemandNone))
	}
	for _, names := range []map[string]string{d.Values, d.Files} {
		for k := range names {
			if !signature.IsKeys(k) {
				return wrong(fmt.Errorf("key %q: the keys of signers are named *.asc, *.sshpub or %s", k, signature.AllowedSigners))
			}
			if _, twice := d.Files[k]; twice && d.Values[k] != "" {
				return wrong(fmt.Errorf("key %s is given as value and as file", k))
			}
		}
	}
	found, err := d.Keys()
	if err != nil {
		return err
	}
	keys, err := signature.ParseKeys(found.Files, found.Place)
	if err != nil {
		return wrong(err)
	}
	if keys.Len() == 0 {
		return wrong(errors.New("it names no keys that may sign: give *.asc, *.sshpub or allowed_signers under files or values"))
	}
	return nil
}

// Paths are the files that the rule reads, in order.
func (d *Demand) Paths() []string {
	return slices.Sorted(maps.Values(d.Files))
}
