// Package ignore matches paths with rules in the format of .gitignore, in the dialect of Flux: the last rule that
// matches decides, also below a directory that an earlier rule excludes.
package ignore

import (
	"bufio"
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// Rule is one line.
type Rule struct {
	pattern gitignore.Pattern
	domain  int      // length of the directory that it applies below
	again   bool     // it begins with "!": what it matches is taken in again
	anchor  []string // the parts that a path must begin with below the directory; none = it may match at any depth
}

// Parse reads rules that apply below a directory; none is the root. Comments and empty lines are skipped.
func Parse(data []byte, domain []string) (rules []Rule) {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		r := Rule{pattern: gitignore.ParsePattern(line, domain), domain: len(domain)}
		var text string
		text, r.again = strings.CutPrefix(line, "!")
		if text = strings.TrimSuffix(strings.TrimRight(text, " "), "/"); strings.Contains(text, "/") {
			parts := slices.DeleteFunc(strings.Split(text, "/"), func(part string) bool { return part == "" })
			if i := slices.Index(parts, "**"); i >= 0 {
				parts = parts[:i]
			}
			r.anchor = parts
		}
		rules = append(rules, r)
	}
	return rules
}

// Match reports whether the rules, the last of which wins, exclude a path, and which of them does.
func Match(rules []Rule, path []string, isDir bool) (excluded bool, by int) {
	for by = len(rules) - 1; by >= 0; by-- {
		if m := rules[by].pattern.Match(path, isDir); m > gitignore.NoMatch {
			return m == gitignore.Exclude, by
		}
	}
	return false, by
}

// MayReturn reports whether one of the rules may take in again something below a directory.
func MayReturn(rules []Rule, dir []string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		if !r.again {
			return false
		}
		for i, part := range dir[min(r.domain, len(dir)):] {
			if i >= len(r.anchor) {
				break
			}
			if ok, err := filepath.Match(r.anchor[i], part); err != nil || !ok {
				return false
			}
		}
		return true
	})
}
