// Package ignore matches paths with rules in the format of .gitignore, in the dialect of Flux: the
// last rule that matches decides, also below a directory that an earlier rule excludes.
//
// # Bounds
//
// The files of a tree share one Budget: MaxBytes of text and MaxRules rules, where equal lines of a
// file count once. A line has at most maxLine bytes. A plain name costs one lookup for each part of
// a path, however many there are.
package ignore

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// Bounds of the rules of a tree.
const (
	MaxBytes = 1 << 20
	MaxRules = 10_000
	maxLine  = 64 << 10
)

// LimitError reports rules beyond a bound.
type LimitError struct {
	What  string // "bytes", "rules" or "bytes in a line"
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the rules have more than %d %s, the limit; write patterns in place of lists", e.Limit, e.What)
}

// Budget is what the rules of one tree may still have.
type Budget struct{ bytes, rules int }

// NewBudget returns the budget of a tree.
func NewBudget() *Budget { return &Budget{MaxBytes, MaxRules} }

// Rules are those of one file, or of a spec.
type Rules struct {
	domain   []string      // the directory that they apply below; none is the root
	names    map[name]rule // the last rule of each plain name, which matches at any depth
	patterns []rule        // all others, the last first
	again    []rule        // of those that begin with "!" the ones with an anchor, the last first
	anywhere int           // line of the last of them without an anchor, 0 = none
}

// name is that of a file or directory, or of directories only.
type name struct {
	text    string
	dirOnly bool
}

type rule struct {
	line    int // from 1; a later one decides
	again   bool
	pattern gitignore.Pattern
	anchor  []string // the parts that a path must begin with below the directory
}

// Len returns how many rules there are.
func (r *Rules) Len() int { return len(r.names) + len(r.patterns) }

// Parse reads rules that apply below a directory; none is the root. Comments and empty lines are
// skipped. The error is a *LimitError.
func (b *Budget) Parse(data []byte, domain []string) (*Rules, error) {
	if b.bytes -= len(data); b.bytes < 0 {
		return nil, &LimitError{"bytes", MaxBytes}
	}
	r := &Rules{domain: domain, names: map[name]rule{}}
	seen := map[string]bool{}
	for at := bytes.Count(data, []byte("\n")) + 1; at > 0; at-- { // the last of equal lines decides
		start := bytes.LastIndexByte(data, '\n') + 1
		line := string(bytes.TrimSuffix(data[start:], []byte("\r")))
		data = data[:max(start-1, 0)]
		if len(line) > maxLine {
			return nil, &LimitError{"bytes in a line", maxLine}
		}
		if seen[line] || strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		seen[line] = true
		r.add(line, at)
		if r.Len() > b.rules {
			return nil, &LimitError{"rules", MaxRules}
		}
	}
	b.rules -= r.Len()
	return r, nil
}

// add takes in a line, those after it being there.
func (r *Rules) add(line string, at int) {
	text, again := strings.CutPrefix(line, "!")
	text, dirOnly := strings.CutSuffix(strings.TrimRight(text, " "), "/")
	own := rule{line: at, again: again}
	if strings.Contains(text, "/") {
		own.anchor = slices.DeleteFunc(strings.Split(text, "/"), func(part string) bool { return part == "" })
		if i := slices.Index(own.anchor, "**"); i >= 0 {
			own.anchor = own.anchor[:i]
		}
	}
	switch {
	case !again:
	case len(own.anchor) == 0:
		r.anywhere = max(r.anywhere, at)
	case r.anywhere == 0: // else one that is after it says the same
		r.again = append(r.again, own)
	}
	if !strings.ContainsAny(text, `/*?[\`) {
		if _, decided := r.names[name{text, dirOnly}]; !decided {
			r.names[name{text, dirOnly}] = own
		}
		return
	}
	own.pattern = gitignore.ParsePattern(line, r.domain)
	r.patterns = append(r.patterns, own)
}

// last returns the last rule that matches a path, whose line is 0 when none does. It ends with ctx.
func (r *Rules) last(ctx context.Context, path []string, isDir bool) (found rule, err error) {
	if n := len(r.domain); len(path) <= n || !slices.Equal(path[:n], r.domain) {
		return found, nil
	}
	below := path[len(r.domain):]
	for i, part := range below {
		if len(r.names) == 0 {
			break
		}
		for _, dirOnly := range []bool{false, true} {
			own := r.names[name{part, dirOnly}]
			if own.line > found.line && (!dirOnly || isDir || i < len(below)-1) {
				found = own
			}
		}
	}
	for i, own := range r.patterns {
		if own.line < found.line {
			break
		}
		if i%16 == 15 && ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		if own.pattern.Match(path, isDir) > gitignore.NoMatch {
			return own, nil
		}
	}
	return found, nil
}

// Place is that of a rule in a list of Rules.
type Place struct{ file, line int }

// Match reports whether the rules of files, the last of which wins, exclude a path, and which of
// them does. It is as long as the rules are, and ends with ctx.
func Match(ctx context.Context, files []*Rules, path []string, isDir bool) (excluded bool, by Place, err error) {
	for i, file := range slices.Backward(files) {
		found, err := file.last(ctx, path, isDir)
		if err != nil || found.line > 0 {
			return !found.again, Place{i, found.line}, err
		}
	}
	return false, Place{}, nil
}

// MayReturn reports whether a rule after one that excludes a directory may take in again something
// below that.
func MayReturn(files []*Rules, by Place, dir []string) bool {
	for i, file := range files[by.file:] {
		after := by.line
		if i > 0 {
			after = 0
		}
		if file.anywhere > after || slices.ContainsFunc(file.again, func(r rule) bool {
			return r.line > after && r.mayReturn(dir[min(len(file.domain), len(dir)):])
		}) {
			return true
		}
	}
	return false
}

// mayReturn reports whether the rule may match something below a directory.
func (r rule) mayReturn(dir []string) bool {
	for i, part := range dir[:min(len(dir), len(r.anchor))] {
		if ok, err := filepath.Match(r.anchor[i], part); err != nil || !ok {
			return false
		}
	}
	return true
}
