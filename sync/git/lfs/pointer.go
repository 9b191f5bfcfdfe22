package lfs

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
)

// Pointer stands in a tree for a file that Git LFS keeps elsewhere.
type Pointer struct {
	OID  string // SHA-256 of the content, 64 hex digits
	Size int64  // of the content, in bytes
}

// MaxPointer is the size up to which a file may be a pointer, in bytes. Source: git-lfs, which
// reads no more to decide.
const MaxPointer = 1024

// pointer is the form of a pointer without spaces around it and empty lines: the versions that are
// the same but for their names, since the launch of git-lfs, before it, and of its alpha,
// extensions, name and size. Source: git-lfs lfs/pointer.go.
var pointer = regexp.MustCompile(`^version (?:https://(?:git-lfs|hawser)\.github\.com/spec/v1|http://git-media\.io/v/2)\n` +
	`((?:ext-\d-\w+ .*\n)*)oid sha256:([0-9a-f]{64})\nsize (\d+)$`)

var lineEnds = regexp.MustCompile(`(?:\r?\n)+`)

// ParsePointer reports whether a file is a pointer to git-lfs, and reads it. An error says that it
// is one which cannot be used; it must not be taken for the content. What git-lfs does not
// understand is no pointer: it stays as it is.
func ParsePointer(data []byte) (p Pointer, is bool, err error) {
	if len(data) > MaxPointer {
		return p, false, nil
	}
	parts := pointer.FindSubmatch(lineEnds.ReplaceAll(bytes.TrimSpace(data), []byte("\n")))
	if parts == nil {
		return p, false, nil
	}
	p.OID = string(parts[2])
	if p.Size, err = strconv.ParseInt(string(parts[3]), 10, 64); err != nil {
		return Pointer{}, false, nil
	}
	if len(parts[1]) > 0 {
		return p, true, errors.New("it was made with an extension of Git LFS, which only git-lfs can undo")
	}
	return p, true, nil
}
