package git

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"limpet/sync/git/pack"
	"limpet/sync/text"

	"golang.org/x/text/unicode/norm"
)

// The path rule. Every entry of every tree passes it, in listings and in differences alike. A name that could
// mean another place, on any file system that it may be written to later, is refused; the rest of the directory
// goes on. Of two names that some file systems take for one, the first stays.

// filterEntries sorts the entries of a directory into those that may be used and those
// that may not. prefix is the directory with a slash at its end, or "".
func filterEntries(entries []pack.TreeEntry, prefix string, l pack.Limits) (pass []pack.TreeEntry, refused []Refusal) {
	pass = entries[:0]
	seen := make(map[string]string, len(entries)) // folded -> as written
	for _, e := range entries {
		why := cmp.Or(badName(e.Name), badMode(e.Mode))
		if why == "" && len(prefix)+len(e.Name) > l.PathBytes {
			why = fmt.Sprintf("the path is longer than %d bytes", l.PathBytes)
		}
		if why == "" {
			key := fold(e.Name)
			switch first, twin := seen[key]; {
			case !twin:
				seen[key] = e.Name
			case first == e.Name:
				why = "the name is there twice"
			default:
				why = fmt.Sprintf("the name is taken for %q by some file systems", first)
			}
		}
		if why != "" {
			refused = append(refused, Refusal{showPath(prefix + e.Name), why, e.ID.String()})
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

// badName returns why a single name may not be used; "" when it may.
func badName(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case name == "." || name == "..":
		return "the name means another directory"
	case strings.ContainsAny(name, "/\\"):
		return "the name holds a slash or a backslash"
	case len(name) > 255:
		return "the name is longer than 255 bytes"
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.ContainsFunc(name, text.Hidden):
		return "the name holds a control character"
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
		return "the name means git's own directory or none"
	}
	stem, _, _ = strings.Cut(stem, ".")
	stem = strings.TrimRight(stem, " ")
	port := len(stem) == 4 && (strings.HasPrefix(stem, "com") || strings.HasPrefix(stem, "lpt")) && stem[3] >= '0' && stem[3] <= '9'
	if port || slices.Contains(devices, stem) {
		return "the name is that of a device"
	}
	return ""
}

// badMode returns why an entry of this kind is not followed.
func badMode(mode uint32) string {
	switch mode {
	case pack.ModeTree, pack.ModeFile, pack.ModeGroupFile, pack.ModeExec:
		return ""
	case pack.ModeLink:
		return "a symbolic link is not followed"
	case pack.ModeSubmodule:
		return submoduleReason
	}
	return fmt.Sprintf("an entry of mode %o has no meaning", mode)
}

// showPath makes a path safe to show: no control characters, not too long.
func showPath(p string) string {
	if p == "" {
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
