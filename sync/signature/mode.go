package signature

import "fmt"

// Mode is which objects of a ref have to be signed.
type Mode string

// The modes. Source: spec.verify.mode of Flux.
const (
	HEAD       Mode = "HEAD" // the commit
	TagOnly    Mode = "Tag"  // the tag object
	TagAndHEAD Mode = "TagAndHEAD"
)

// ParseMode reads a mode; "" is none, and "head" is HEAD.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "", HEAD, TagOnly, TagAndHEAD:
		return m, nil
	case "head":
		return HEAD, nil
	}
	return "", fmt.Errorf("unknown mode of verification %q, known are %s, %s and %s", s, HEAD, TagOnly, TagAndHEAD)
}

// Head says that the commit has to be signed.
func (m Mode) Head() bool { return m == HEAD || m == TagAndHEAD }

// Tag says that the tag object has to be signed.
func (m Mode) Tag() bool { return m == TagOnly || m == TagAndHEAD }
