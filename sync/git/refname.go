package git

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/view"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// maxRefName is longer than any file system that git runs on allows.
const maxRefName = 250

// checkRefName applies git's check-ref-format to what a user wrote, and refuses
// what could be read as an option.
func checkRefName(name string) error {
	bad := func(why string) error { return fmt.Errorf("%q is not a branch name: %s", clean(name, 100), why) }
	switch {
	case name == "" || name == "@":
		return bad("it is empty")
	case len(name) > maxRefName:
		return bad(fmt.Sprintf("it is longer than %d bytes", maxRefName))
	case name[0] == '-':
		return bad("it begins with a dash")
	case strings.HasPrefix(name, "/"), strings.HasSuffix(name, "/"), strings.Contains(name, "//"):
		return bad("it begins or ends with a slash, or has two in a row")
	case strings.Contains(name, ".."), strings.Contains(name, "@{"), strings.HasSuffix(name, "."):
		return bad("it holds \"..\" or \"@{\", or ends with a dot")
	}
	for _, r := range name {
		if r <= ' ' || strings.ContainsRune("~^:?*[\\", r) || view.Hidden(r) {
			return bad("it holds a blank, a control character or one of ~^:?*[\\")
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return bad("a part of it begins with a dot or ends with .lock")
		}
	}
	return nil
}

// lookUp finds what branch means among the advertised refs: "" is HEAD, then a
// branch, a full name, a tag, and at last a commit by its 40 digits. A tag
// gives the commit it points to.
func lookUp(adv *packp.AdvRefs, branch string) (Ref, bool) {
	if branch == "" {
		branch = headName(adv)
	}
	for _, name := range []string{"refs/heads/" + branch, branch, "refs/tags/" + branch} {
		if !strings.HasPrefix(name, "refs/") {
			continue
		}
		if id, ok := adv.Peeled[name]; ok {
			return Ref{Name: name, Hash: id.String()}, true
		}
		if id, ok := adv.References[name]; ok {
			return Ref{Name: name, Hash: id.String()}, true
		}
	}
	if id, ok := parseID(branch); ok {
		return Ref{Name: id.String(), Hash: id.String()}, true
	}
	return Ref{}, false
}

// headName is the full name of the branch that the remote's HEAD points to, ""
// when it points nowhere. Servers that do not say are guessed at as git does.
func headName(adv *packp.AdvRefs) string {
	for _, s := range adv.Capabilities.Get(capability.SymRef) {
		if name, ok := strings.CutPrefix(s, "HEAD:"); ok {
			return name
		}
	}
	if adv.Head == nil {
		return ""
	}
	guesses := []string{"refs/heads/main", "refs/heads/master"}
	for name := range adv.References {
		if strings.HasPrefix(name, "refs/heads/") {
			guesses = append(guesses, name)
		}
	}
	slices.Sort(guesses[2:])
	for _, name := range guesses {
		if adv.References[name] == *adv.Head {
			return name
		}
	}
	return ""
}

// similarBranches are up to three branches that somebody who wrote name may
// have meant, the closest first; when none is close, some of those there are.
func similarBranches(adv *packp.AdvRefs, name string) (close bool, names []string) {
	type candidate struct {
		name string
		dist int
	}
	var all []candidate
	for full := range adv.References {
		if b, ok := strings.CutPrefix(full, "refs/heads/"); ok {
			all = append(all, candidate{b, view.Distance(strings.ToLower(b), strings.ToLower(name))})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if a.dist != b.dist {
			return a.dist - b.dist
		}
		return strings.Compare(a.name, b.name)
	})
	if len(all) > 3 {
		all = all[:3]
	}
	for _, c := range all {
		close = close || c.dist <= max(2, len(name)/3)
		names = append(names, clean(c.name, 80))
	}
	return close, names
}
