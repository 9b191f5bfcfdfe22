package gitref

import (
	"cmp"
	"iter"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Newest is what Selector.Newest found.
type Newest struct {
	Tag      string // "" = none is in the range
	Versions int    // tags that are versions, those outside of the range among them
	Highest  string // tag of the highest of them
}

// Newest finds the tag with the highest version of the range. A tag is a version when it has three numbers,
// which may begin with zeros, after the prefix and a v that may be missing. Versions that differ only in the
// metadata of their builds go by the name of the tag. The Selector must have passed Check.
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
		if (best == nil || compare(v, tag, best, out.Tag) > 0) && c.within.Check(v) {
			best, out.Tag = v, tag
		}
	}
	return out, nil
}

// version reads a tag, nil when it is no version or is left out.
func (c compiled) version(tag string) *semver.Version {
	text, ok := strings.CutPrefix(tag, c.prefix)
	if !ok {
		return nil
	}
	text = strings.TrimPrefix(text, "v")
	numbers, _, _ := strings.Cut(text, "+")
	if numbers, _, _ = strings.Cut(numbers, "-"); strings.Count(numbers, ".") != 2 || text[0] < '0' || text[0] > '9' {
		return nil
	}
	v, err := semver.NewVersion(text)
	if err != nil || c.filter != nil && !c.filter.MatchString(tag) {
		return nil
	}
	return v
}

// compare puts two tags in order.
func compare(a *semver.Version, tagA string, b *semver.Version, tagB string) int {
	return cmp.Or(a.Compare(b), cmp.Compare(tagA, tagB))
}
