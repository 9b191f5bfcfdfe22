package lfs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/text"
)

// Pointer stands in a tree for a file that Git LFS keeps elsewhere.
type Pointer struct {
	OID  string // SHA-256 of the content, 64 hex digits
	Size int64  // of the content, in bytes
}

// MaxPointer is the size up to which a file may be a pointer, in bytes. Source: git-lfs, which reads no more to decide.
const MaxPointer = 1024

// specs begins the first line of a pointer, and versions are those that are the same but for their names: since
// the launch of git-lfs, before it, and of its alpha. Source: git-lfs lfs/pointer.go.
const specs = "https://git-lfs.github.com/spec/"

var versions = []string{specs + "v1", "https://hawser.github.com/spec/v1", "http://git-media.io/v/2"}

// ParsePointer reports whether a file is a pointer of Git LFS, and reads it. An error says that it is one which
// cannot be used; it must not be taken for the content. Source: git-lfs docs/spec.md.
func ParsePointer(data []byte) (p Pointer, is bool, err error) {
	first, _, _ := strings.Cut(string(data[:min(len(data), MaxPointer)]), "\n")
	version, named := strings.CutPrefix(first, "version ")
	known := slices.Contains(versions, version)
	switch {
	case len(data) > MaxPointer, !named, !known && !strings.HasPrefix(version, specs):
		return p, false, nil
	case !known:
		err = fmt.Errorf("version %q is not known here", text.Line(version, 80))
	default:
		p, err = parsePointer(string(data))
	}
	if err != nil {
		return Pointer{}, true, fmt.Errorf("unusable pointer of Git LFS: %w", err)
	}
	return p, true, nil
}

func parsePointer(data string) (p Pointer, err error) {
	body, ended := strings.CutSuffix(data, "\n")
	if !ended {
		return p, errors.New("its last line has no end")
	}
	lines := strings.Split(body, "\n")
	sized := false
	for i, line := range lines[1:] {
		key, value, ok := strings.Cut(line, " ")
		if !ok || key == "" || strings.ContainsFunc(key, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
		}) {
			return p, fmt.Errorf("line %d is not of the form \"key value\"", i+2)
		}
		if before, _, _ := strings.Cut(lines[i], " "); i > 0 && before >= key {
			return p, fmt.Errorf("unsorted keys: %s before %s", before, key)
		}
		switch {
		case key == "oid":
			sum, is := strings.CutPrefix(value, "sha256:")
			if raw, err := hex.DecodeString(sum); !is || err != nil || len(raw) != 32 || strings.ToLower(sum) != sum {
				return p, fmt.Errorf("oid %q is not sha256: and 64 hex digits", text.Line(value, 80))
			}
			p.OID = sum
		case key == "size":
			if p.Size, err = strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(p.Size, 10) != value || p.Size < 0 {
				return p, fmt.Errorf("size %q is not a number of bytes", text.Line(value, 40))
			}
			sized = true
		case strings.HasPrefix(key, "ext-"):
			return p, errors.New("it was made with an extension of Git LFS, which only git-lfs can undo")
		}
	}
	if p.OID == "" || !sized {
		return p, errors.New("oid or size is missing")
	}
	return p, nil
}
