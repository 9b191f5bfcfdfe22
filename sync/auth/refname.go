package auth

import (
	"errors"
	"fmt"
	"strings"

	"limpet/sync/text"
)

// maxRefName is less than what any file system that git runs on allows for a path below refs/heads. Unit: bytes.
const maxRefName = 250

// CheckRefName applies the rules of git check-ref-format(1) to the name of a branch, and
// refuses what could be taken for an option. The error does not repeat the name.
func CheckRefName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > maxRefName:
		return fmt.Errorf("it is longer than %d bytes", maxRefName)
	case name == "@" || strings.Contains(name, "@{"):
		return errors.New(`it is "@" or contains "@{"`)
	case name[0] == '-':
		return errors.New(`it begins with "-"`)
	case strings.HasPrefix(name, "/"), strings.HasSuffix(name, "/"), strings.Contains(name, "//"):
		return errors.New("it begins or ends with a slash, or has two in a row")
	case strings.Contains(name, ".."), strings.HasSuffix(name, "."):
		return errors.New("it contains two dots in a row or ends with one")
	case strings.ContainsAny(name, ` ~^:?*[\`):
		return errors.New(`it contains a space or one of ~ ^ : ? * [ \`)
	case strings.ContainsFunc(name, text.Hidden):
		return errors.New("it contains a control or an invisible character")
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return errors.New("a part of it begins with a dot or ends with .lock")
		}
	}
	return nil
}
