package repopath

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Paths inside a repository. Every path is relative to spec.path and has no leading slash; the path
// of a directory ends in one, the root is "". The rule is that of Grafana's API: a name that it
// would refuse is never written to a server, wherever the tree came from.

// Limits of the path rule. Source: Grafana's safepath and filepath packages.
const (
	MaxPathLength = 1024 // characters
	MaxPathDepth  = 8    // segments, the file name included
)

// FolderFile is the name of the file that gives its directory a stable UID and
// a title. It is not a resource of its own.
const FolderFile = "_folder.json"

// PathError says why a path is not allowed. It is a warning: the file is left out and the rest goes
// on.
type PathError struct {
	Path   string
	Reason string
	// Hidden marks a path with a segment that begins with a dot. Such files are
	// no resources by convention, so leaving them out is not worth a warning.
	Hidden bool
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %q is not allowed: %s", e.Path, e.Reason)
}

// CheckPath reports whether p, a file or a directory, passes the path rule. The
// error is a *PathError. The empty path is the root and passes.
func CheckPath(p string) error {
	refuse := func(reason string) error { return &PathError{Path: p, Reason: reason, Hidden: hidden(p)} }
	if p == "" {
		return nil
	}
	if len(p) > MaxPathLength {
		return refuse(fmt.Sprintf("it is longer than %d characters", MaxPathLength))
	}
	if p[0] == '/' {
		return refuse("it is absolute")
	}
	for _, r := range p {
		if r >= 0x80 || !AllowedByte(byte(r)) {
			return refuse(fmt.Sprintf("%q is not one of letters, digits, blank, '_', '.', '-'", r))
		}
	}
	segments := Segments(p)
	for _, s := range segments {
		switch {
		case s == "":
			return refuse("it has an empty segment")
		case s == "." || s == "..":
			return refuse("it leaves its directory")
		case s[0] == '.':
			return refuse("it is hidden")
		}
	}
	if len(segments) > MaxPathDepth {
		return refuse(fmt.Sprintf("it is deeper than %d levels", MaxPathDepth))
	}
	return nil
}

// Check is CheckPath, or with disk what holds for a file that is written to a directory: hidden
// ones alone are refused, because a tree of package git has no other name that is unsafe on a disk.
func Check(p string, disk bool) error {
	if !disk {
		return CheckPath(p)
	}
	if hidden(p) {
		return &PathError{Path: p, Reason: "it is hidden", Hidden: true}
	}
	return nil
}

func hidden(p string) bool {
	return slices.ContainsFunc(Segments(p), func(s string) bool { return strings.HasPrefix(s, ".") && s != "." && s != ".." })
}

func AllowedByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == ' ' || c == '_' || c == '.' || c == '-' || c == '/'
}

// Segments splits p at its slashes; one trailing slash makes no segment.
func Segments(p string) []string {
	p = strings.TrimSuffix(p, "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// IsDir reports whether p names a directory.
func IsDir(p string) bool { return p == "" || strings.HasSuffix(p, "/") }

// AsDir returns p with a trailing slash; the root stays "".
func AsDir(p string) string {
	if p == "" || strings.HasSuffix(p, "/") {
		return p
	}
	return p + "/"
}

// Parent returns the directory that holds p, with a trailing slash, or "" when that is the root.
func Parent(p string) string {
	p = strings.TrimSuffix(p, "/")
	i := strings.LastIndexByte(p, '/')
	return p[:i+1]
}

// Base returns the last segment of p without slashes.
func Base(p string) string {
	p = strings.TrimSuffix(p, "/")
	return p[strings.LastIndexByte(p, '/')+1:]
}

// Ancestors returns the directories above p, the outermost first. For a directory it includes the
// directory itself.
func Ancestors(p string) []string {
	var dirs []string
	for i := range len(p) {
		if p[i] == '/' {
			dirs = append(dirs, p[:i+1])
		}
	}
	return dirs
}

// SafeDir returns the longest directory above p, or p itself, that passes the path rule. Grafana
// makes that folder even when the file in it is not one that it can read.
func SafeDir(p string) string {
	safe := ""
	for _, dir := range Ancestors(p) {
		if CheckPath(dir) != nil {
			break
		}
		safe = dir
	}
	return safe
}

// IsResourceFile reports whether the extension of p is one that holds resources: .json, .yaml or
// .yml in any case.
func IsResourceFile(p string) bool {
	switch strings.ToLower(path.Ext(p)) {
	case ".json", ".yaml", ".yml":
		return !IsDir(p)
	}
	return false
}

// IsFolderFile reports whether p is the folder file of its directory.
func IsFolderFile(p string) bool { return Base(p) == FolderFile && !IsDir(p) }

// Quote returns the text that stands for a path where only UTF-8 can: in JSON, in a table. A path
// is bytes, and one that is no UTF-8, or that begins with a quotation mark, is put in quotation
// marks with escapes, nearly as git prints it.
func Quote(p string) string {
	if utf8.ValidString(p) && !strings.HasPrefix(p, `"`) {
		return p
	}
	return strconv.Quote(p)
}

// Unquote returns the path of a text of Quote. Any other text stands for itself.
func Unquote(text string) string {
	if p, err := strconv.Unquote(text); err == nil && strings.HasPrefix(text, `"`) {
		return p
	}
	return text
}

// IsHidden reports whether err is a *PathError for a hidden path.
func IsHidden(err error) bool {
	path, ok := errors.AsType[*PathError](err)
	return ok && path.Hidden
}
