package gitref

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"limpet/sync/text"
)

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

// Parse reads a Selector from the form in which people write it: words with a key
// in front, such as "tag:v1.2.3", "semver:>=1.0.0 <2.0.0 prefix:app/",
// "ref:refs/pull/420/head" or "commit:<40 digits> branch:main". A word without a
// key goes on with what was begun. The error says what would be right.
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
