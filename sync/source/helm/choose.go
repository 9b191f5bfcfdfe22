package helm

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// longRange bounds a range of versions, in bytes.
const longRange = 1024

// Range is a range of versions of a spec.
type Range struct {
	text   string
	within *semver.Constraints
}

// ParseRange parses a range; "" is "*", all versions that are no pre-releases.
func ParseRange(version string) (r Range, err error) {
	if len(version) > longRange {
		return r, fmt.Errorf("a range of versions has at most %d bytes", longRange)
	}
	r.text = cmp.Or(version, "*")
	r.within, err = semver.NewConstraint(r.text)
	return r, err
}

func (r Range) String() string { return r.text }

// Choose returns the version that a range means, by the rule of Flux: one whose text is that of the
// range, else the highest in it, and of equals the one that was made last.
func (r Range) Choose(all []Version) (chosen Version, ok bool) {
	var highest *semver.Version
	for _, v := range all {
		if v.Version == r.text {
			return v, true
		}
		is, err := semver.NewVersion(v.Version)
		if err != nil || strings.Count(v.Version, ".") < 2 || !r.within.Check(is) {
			continue
		}
		if highest == nil || is.GreaterThan(highest) || is.Equal(highest) && v.Created.After(chosen.Created) {
			highest, chosen = is, v
		}
	}
	return chosen, highest != nil
}
