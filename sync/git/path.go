package git

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"limpet/sync/api/repopath"
	"limpet/sync/git/pack"
	"limpet/sync/text"

	"golang.org/x/text/unicode/norm"
)

// The path rule. Every entry of every tree passes it, in listings and in differences alike. A name
// that could mean another place, on any file system that it may be written to later, is refused;
// the rest of the directory goes on. Of two names that some file systems take for one, the first
// stays.

// filterEntries sorts the entries of a directory into those that may be used and those
// that may not. prefix is the directory with a slash at its end, or "".
func filterEntries(entries []pack.TreeEntry, prefix string, l pack.Limits) (pass []pack.TreeEntry, refused []Refusal) {
	pass = entries[:0]
	seen := make(map[string]string, len(entries)) // folded -> as written
	for _, e := range entries {
		why := cmp.Or(badName(e.Name), badMode(e.Mode))
		if why == allowed && len(prefix)+len(e.Name) > l.PathBytes {
			why = objection{"long path", fmt.Sprintf("the path is longer than %d bytes", l.PathBytes)}
		}
		if why == allowed {
			key := fold(e.Name)
			switch first, twin := seen[key]; {
			case !twin:
				seen[key] = e.Name
			case first == e.Name:
				why = objection{duplicateName, "the name is there twice"}
			default:
				why = objection{duplicateName, fmt.Sprintf("the name is taken for %q by some file systems", first)}
			}
		}
		if why != allowed {
			refused = append(refused, Refusal{showPath(prefix + e.Name), why.kind, why.text, e.ID.String()})
			continue
		}
		pass = append(pass, e)
	}
	return pass, refused
}

// fold brings names that some file systems take for one to one form.
func fold(name string) string {
	return strings.ToLower(norm.NFC.String(name))
}

// devices are names that Windows opens as devices, with any extension.
var devices = []string{"con", "prn", "aux", "nul"}

// objection is why an entry may not be used: the kind of such entries, and a sentence. The zero one
// is that it may.
type objection struct{ kind, text string }

var allowed objection

// The kinds of refused entries, in the singular. Those of Refusal.ByMode go by the mode and not by
// the name.
const (
	symbolicLink  = "symbolic link"
	submodule     = "submodule"
	oddMode       = "odd mode"
	invalidName   = "invalid name"
	duplicateName = "duplicate name"
	deepPath      = "deep path"
	gitName       = ".git name"
)

// ByMode reports whether the entry is refused for what it is, whatever its name.
func (r Refusal) ByMode() bool {
	return r.Kind == symbolicLink || r.Kind == submodule || r.Kind == oddMode
}

// badName returns why a single name may not be used. A tab is an ordinary character.
func badName(name string) objection {
	switch {
	case name == "":
		return objection{invalidName, "the name is empty"}
	case name == "." || name == "..":
		return objection{invalidName, "the name means another directory"}
	case strings.ContainsAny(name, "/\\"):
		return objection{invalidName, "the name holds a slash or a backslash"}
	case len(name) > 255:
		return objection{invalidName, "the name is longer than 255 bytes"}
	case !utf8.ValidString(name):
		return objection{invalidName, "the name is not UTF-8"}
	case strings.ContainsFunc(name, func(r rune) bool { return r != '\t' && text.Hidden(r) }):
		return objection{"control character", "the name holds a control character"}
	}
	// What HFS+ leaves out, and what NTFS takes for the same name.
	low := strings.ToLower(strings.Map(func(r rune) rune {
		if r == '\u200b' || r == '\u200c' || r == '\u200d' || r >= '\u206a' && r <= '\u206f' {
			return -1
		}
		return r
	}, name))
	low = strings.TrimRight(low, ". ")
	stem, _, _ := strings.Cut(low, ":")
	if stem = strings.TrimRight(stem, ". "); stem == ".git" || stem == "git~1" || low == "" {
		return objection{gitName, "the name means git's own directory or none"}
	}
	stem, _, _ = strings.Cut(stem, ".")
	stem = strings.TrimRight(stem, " ")
	port := len(stem) == 4 && (strings.HasPrefix(stem, "com") || strings.HasPrefix(stem, "lpt")) && stem[3] >= '0' && stem[3] <= '9'
	if port || slices.Contains(devices, stem) {
		return objection{"device name", "the name is that of a device"}
	}
	return allowed
}

// badMode returns why an entry of this kind is not followed.
func badMode(mode uint32) objection {
	switch {
	case mode == pack.ModeTree, regular(mode):
		return allowed
	case mode == pack.ModeLink:
		return objection{symbolicLink, "a symbolic link is not followed"}
	case mode == pack.ModeSubmodule:
		return objection{submodule, "a submodule is not fetched"}
	}
	return objection{oddMode, fmt.Sprintf("an entry of mode %o has no meaning", mode)}
}

// regular reports whether a mode is that of a file. git takes any permissions, and writes two of
// them.
func regular(mode uint32) bool { return mode&^0o777 == 0o100000 }

// showPath makes a path safe to show: no control characters, not too long.
func showPath(p string) string {
	if p = repopath.Quote(p); p == "" {
		return "(root)"
	}
	if len(p) > 200 {
		p = strings.ToValidUTF8(p[:160], "") + "…" + strings.ToValidUTF8(p[len(p)-30:], "")
	}
	return strings.Map(func(r rune) rune {
		if text.Hidden(r) {
			return '?'
		}
		return r
	}, p)
}
