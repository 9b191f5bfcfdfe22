// Package gitref says which revision of a Git repository is wanted: a branch, a tag, the newest
// version of a range, a ref by its full name, or a commit. It is pure: the refs of a remote are
// arguments. Bounds: maxText for what selects one, maxRange for a range and a filter of tags, whose
// number the list of refs bounds.
package gitref

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"

	"limpet/sync/auth"
	"limpet/sync/text"
)

// Selector is what is wanted of a remote. The zero Selector is what the remote's HEAD points to. At
// most one of Branch, Tag, SemVer, Name and Commit is set, but Branch may stand beside Commit,
// which then has to be on it.
type Selector struct {
	Branch string // without refs/heads/
	Tag    string // without refs/tags/
	// SemVer is a range of versions, such as 1.x, ~1.4, ">=1.2.0 <2.0.0" or
	// "1.x || 3.x". Pre-releases are in it only if it names one, as in ">=1.0.0-0".
	SemVer       string
	TagPrefix    string // of the tags of SemVer; the version is what follows
	SemVerFilter string // regular expression that the tags of SemVer match, prefix included
	Name         string // of any ref in full, such as refs/pull/420/head
	Commit       string // 40 hex digits
}

// Branch selects a branch; "" is the remote's HEAD. The name may be written in full.
func Branch(name string) Selector {
	return Selector{Branch: strings.TrimPrefix(name, "refs/heads/")}
}

// maxRange bounds the length of a range and of a filter, in bytes.
const maxRange = 256

// Check returns what is wrong with the Selector, with a hint.
func (s Selector) Check() error {
	var set []string
	for _, c := range []struct{ what, value string }{{"branch", s.Branch}, {"tag", s.Tag}, {"semver", s.SemVer}, {"ref", s.Name},
		{"commit", s.Commit}} {
		if c.value != "" {
			set = append(set, c.what)
		}
	}
	switch {
	case len(set) > 2, len(set) == 2 && (s.Branch == "" || s.Commit == ""):
		return fmt.Errorf("%s: only one of them can be selected, or a commit and the branch that it is on", strings.Join(set, " and "))
	case s.SemVer == "" && (s.TagPrefix != "" || s.SemVerFilter != ""):
		return errors.New("prefix and filter choose among the tags of a range of versions; give a range, such as semver:*")
	}
	for _, c := range []struct{ what, value string }{{"branch", s.Branch}, {"tag", s.Tag}, {"ref", s.Name}} {
		if err := auth.CheckRefName(c.value); err != nil && c.value != "" {
			return fmt.Errorf("%q is not the name of a %s: %w", text.Line(c.value, 100), c.what, err)
		}
	}
	if s.Name != "" && (!strings.HasPrefix(s.Name, "refs/") || strings.Count(s.Name, "/") < 2) {
		return fmt.Errorf("%q is not the full name of a ref; write it as refs/pull/420/head or refs/heads/main", text.Line(s.Name, 100))
	}
	if err := auth.CheckRefName(s.TagPrefix + "0"); err != nil {
		return fmt.Errorf("no tag begins with %q: %w", text.Line(s.TagPrefix, 100), err)
	}
	if s.SemVer != "" {
		if _, err := s.compile(); err != nil {
			return err
		}
	}
	_, err := hex.DecodeString(s.Commit)
	switch {
	case err == nil && len(s.Commit) == 64:
		return errors.New("a commit of 64 digits is one of a SHA-256 repository, which cannot be read")
	case s.Commit != "" && (err != nil || len(s.Commit) != 40):
		return fmt.Errorf("%q is not a commit; give all 40 digits of its hash", text.Line(s.Commit, 100))
	}
	return nil
}

// compiled is a Selector of versions, ready to look at tags.
type compiled struct {
	prefix string
	within *semver.Constraints
	filter *regexp.Regexp // nil = all
}

func (s Selector) compile() (compiled, error) {
	c := compiled{prefix: s.TagPrefix}
	if len(s.SemVer) > maxRange || len(s.SemVerFilter) > maxRange {
		return c, fmt.Errorf("a range of versions and a filter have at most %d bytes", maxRange)
	}
	var err error
	if c.within, err = semver.NewConstraint(s.SemVer); err != nil {
		return c, fmt.Errorf("%q is not a range of versions; write one such as 1.x, ~1.4 or >=1.2.0 <2.0.0", text.Line(s.SemVer, 100))
	}
	if s.SemVerFilter != "" {
		if c.filter, err = regexp.Compile(s.SemVerFilter); err != nil {
			return c, fmt.Errorf("the filter %q is not a regular expression; write one such as ^v[0-9.]+$", text.Line(s.SemVerFilter, 100))
		}
	}
	return c, nil
}

// String is the Selector in the form that Parse reads, "HEAD" for the zero one.
func (s Selector) String() string {
	var words []string
	for _, k := range s.keys() {
		if *k.value != "" {
			words = append(words, k.name+":"+*k.value)
		}
	}
	if len(words) == 0 {
		return "HEAD"
	}
	return strings.Join(words, " ")
}

// key is a word of the annotation and the member that it is for.
type key struct {
	name  string
	value *string
}

// keys are in the order in which they are written.
func (s *Selector) keys() []key {
	return []key{{"tag", &s.Tag}, {"semver", &s.SemVer}, {"prefix", &s.TagPrefix}, {"filter", &s.SemVerFilter},
		{"ref", &s.Name}, {"commit", &s.Commit}, {"branch", &s.Branch}}
}

// forms is what an annotation may say.
const forms = "write tag:NAME, semver:RANGE [prefix:TEXT] [filter:REGEXP], ref:FULLNAME or commit:SHA [branch:NAME]"

// maxText is how long a text may be that selects a revision. Unit: bytes.
const maxText = 1000

// Parse reads a Selector from words with a key in front, such as "tag:v1.2.3", "semver:>=1.0.0
// <2.0.0 prefix:app/", "ref:refs/pull/420/head" or "commit:<40 digits> branch:main". A word without
// a key goes on with what was begun. The error says what would be right.
func Parse(selector string) (Selector, error) {
	var s Selector
	switch {
	case len(selector) > maxText:
		return s, fmt.Errorf("longer than %d bytes; %s", maxText, forms)
	case !utf8.ValidString(selector):
		return s, errors.New("not UTF-8; " + forms)
	}
	var at *string
	for word := range strings.FieldsSeq(selector) {
		if strings.ContainsFunc(word, text.Hidden) {
			return s, errors.New("holds a control or an invisible character; " + forms)
		}
		if k, rest := s.key(word); k != nil {
			if *k != "" {
				return s, fmt.Errorf("%q: given twice", text.Line(word, 100))
			}
			if at, *k = k, rest; rest == "" {
				return s, fmt.Errorf("%q: nothing follows the colon; %s", text.Line(word, 100), forms)
			}
			continue
		}
		if at != &s.SemVer && at != &s.SemVerFilter { // the others have no blanks
			return s, fmt.Errorf("%q is not understood; %s", text.Line(word, 100), forms)
		}
		*at += " " + word
	}
	switch s.Commit = strings.ToLower(s.Commit); {
	case s == (Selector{}):
		return s, errors.New("empty; " + forms)
	case s.Branch != "" && s == Branch(s.Branch):
		return s, errors.New("a branch alone is given in the spec; leave the annotation out")
	}
	return s, s.Check()
}

// key is the member that a word begins, nil for none.
func (s *Selector) key(word string) (member *string, rest string) {
	for _, k := range s.keys() {
		if rest, ok := strings.CutPrefix(word, k.name+":"); ok {
			return k.value, rest
		}
	}
	return nil, ""
}

// Of is what a Repository selects: what its annotation says, without one the branch
// of its spec, and without that the remote's HEAD.
func Of(annotation, branch string) (Selector, error) {
	if annotation == "" {
		s := Branch(branch)
		return s, s.Check()
	}
	return Parse(annotation)
}

// Newest is what Selector.Newest found.
type Newest struct {
	// Tags are those of the highest version in the range, by name: several where they differ in the
	// metadata of a build or a v in front alone. None = none is in the range.
	Tags     []string
	Versions int    // tags that are versions, those outside of the range among them
	Highest  string // tag of the highest of them
}

// Newest finds the tags with the highest version of the range. A tag is a version when what follows
// the prefix and a v that may be missing is a strict semantic version, as for Flux: three numbers
// without zeros in front. The Selector must have passed Check.
func (s Selector) Newest(tags iter.Seq[string]) (Newest, error) {
	c, err := s.compile()
	if err != nil {
		return Newest{}, err
	}
	var out Newest
	var best, highest *semver.Version
	for tag := range tags {
		v := c.version(tag)
		if v == nil {
			continue
		}
		out.Versions++
		if highest == nil || compare(v, tag, highest, out.Highest) > 0 {
			highest, out.Highest = v, tag
		}
		switch {
		case best != nil && v.LessThan(best) || !c.within.Check(v):
			continue
		case best == nil || v.GreaterThan(best):
			best, out.Tags = v, nil
		}
		out.Tags = append(out.Tags, tag)
	}
	slices.Sort(out.Tags)
	return out, nil
}

// version reads a tag, nil when it is no version or is left out.
func (c compiled) version(tag string) *semver.Version {
	text, ok := strings.CutPrefix(tag, c.prefix)
	v, err := semver.StrictNewVersion(strings.TrimPrefix(text, "v"))
	if !ok || err != nil || c.filter != nil && !c.filter.MatchString(tag) {
		return nil
	}
	return v
}

// compare orders two tags by version, then by name.
func compare(a *semver.Version, tagA string, b *semver.Version, tagB string) int {
	return cmp.Or(a.Compare(b), cmp.Compare(tagA, tagB))
}
