package pack

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxTags is how many tags of tags are followed: people make none, or one by
// mistake.
const MaxTags = 8

// ParseTag reads what a raw tag object points to.
func ParseTag(data []byte) (target ID, err error) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	text, ok := bytes.CutPrefix(line, []byte("object "))
	if target, valid := ParseID(string(text)); ok && valid {
		return target, nil
	}
	return target, errors.New("malformed tag: it names no object")
}

// Tagged checks that a tag object is there and points to a commit. Errors wrap
// ErrIncomplete or ErrBadPack.
func (s *Store) Tagged(tag, commit ID) error {
	for range MaxTags {
		k, data, err := s.Read(tag, s.Limit)
		switch {
		case errors.Is(err, ErrMissing):
			return fmt.Errorf("%w: tag %s", ErrIncomplete, tag)
		case err != nil:
			return err
		case k != TagKind:
			return fmt.Errorf("%w: the tag ends at the %s %s, not at commit %s", ErrBadPack, k, tag, commit)
		}
		target, err := ParseTag(data)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrBadPack, err)
		case target == commit:
			return nil
		}
		tag = target
	}
	return fmt.Errorf("%w: tags of tags have no end", ErrBadPack)
}
