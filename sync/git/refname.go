package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/auth"
	"limpet/sync/view"
)

// checkRefName is auth.CheckRefName with the name in its error.
func checkRefName(name string) error {
	if err := auth.CheckRefName(name); err != nil {
		return fmt.Errorf("%q is not a branch name: %w", clean(name, 100), err)
	}
	return nil
}

// lookUp finds what branch means among the advertised refs: "" is HEAD, then a
// branch, a full name, a tag, and at last a commit by its 40 digits. A tag
// gives the commit it points to.
func lookUp(adv *packp.AdvRefs, branch string) (Ref, bool) {
	if branch == "" {
		branch = defaultBranch(adv)
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

// defaultBranch is the full name of the branch for who names none: the one of the
// remote's HEAD, and where that points to no branch that exists, main, master, or
// the first by name, as Grafana chooses. It is "" where there are no branches.
func defaultBranch(adv *packp.AdvRefs) string {
	first := ""
	for name := range adv.References {
		if strings.HasPrefix(name, "refs/heads/") && (first == "" || name < first) {
			first = name
		}
	}
	for _, name := range []string{headName(adv), "refs/heads/main", "refs/heads/master"} {
		if _, there := adv.References[name]; there {
			return name
		}
	}
	return first
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
