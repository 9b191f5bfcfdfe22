package git

import (
	"bytes"
	"errors"
	"fmt"
)

// maxTags is how many tags of tags are followed: people make none, or one by
// mistake.
const maxTags = 8

// parseTag reads what a raw tag object points to.
func parseTag(data []byte) (target objectID, err error) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	text, ok := bytes.CutPrefix(line, []byte("object "))
	if target, valid := parseID(string(text)); ok && valid {
		return target, nil
	}
	return target, errors.New("malformed tag: it names no object")
}

// tagged checks that a tag object is there and points to a commit. Errors wrap
// errNotWhole or errBadPack.
func (s *store) tagged(tag, commit objectID) error {
	for range maxTags {
		k, data, err := s.read(tag, s.limit)
		switch {
		case errors.Is(err, errMissing):
			return fmt.Errorf("%w: tag %s", errNotWhole, tag)
		case err != nil:
			return err
		case k != tagKind:
			return fmt.Errorf("%w: the tag ends at the %s %s, not at commit %s", errBadPack, k, tag, commit)
		}
		target, err := parseTag(data)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errBadPack, err)
		case target == commit:
			return nil
		}
		tag = target
	}
	return fmt.Errorf("%w: tags of tags have no end", errBadPack)
}
