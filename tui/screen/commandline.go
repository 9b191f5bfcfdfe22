package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"limpet/tui/widget"

	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
)

// twin reports whether the snapshot has another object of the same kind and name, elsewhere: in
// another namespace.
func twin(s *facts, o object, elsewhere bool) bool {
	for other := range s.objects(o.Kind) {
		if other.Name == o.Name && !o.same(other) && (!elsewhere || other.Namespace != o.Namespace) {
			return true
		}
	}
	return false
}

// limpet returns a command line of limpet that selects the state file and the server of this
// dashboard.
func (s *facts) limpet(words string) string { return s.complete("limpet " + words) }

// complete does the same to the command lines of a text.
func (s *facts) complete(txt string) string {
	if s.Invocation == nil {
		return txt
	}
	return s.Invocation.Complete(txt)
}

// named returns the name of an object as an argument, with its namespace if it needs one.
func named(s *facts, o object) string {
	if twin(s, o, true) {
		return text.ShellWord(o.Name) + " --namespace " + text.ShellWord(o.Namespace)
	}
	return text.ShellWord(o.Name)
}

// command returns the command line of a verb on an object; flags stand behind its name.
func commandLine(s *facts, verb string, o object, flags ...string) string {
	words := "job " + verb + " " + text.ShellWord(o.Name)
	switch {
	case o.source != nil:
		words = "source " + verb + " " + named(s, o)
	case o.repo != nil:
		words = "repo " + verb + " " + named(s, o)
	case verb == "show" && !o.job.Finished.IsZero():
		words = "history show " + text.ShellWord(o.UID)
	case twin(s, o, false): // the UID selects one of several jobs with the same name
		words = "job " + verb + " " + text.ShellWord(o.UID)
	}
	return s.limpet(strings.Join(append([]string{words}, flags...), " "))
}

// shownBy returns the command line that shows the selection, "" when there is none.
func shownBy(s *State) string {
	if s.screen == screenFiles {
		return commandLine(&s.facts, s.files.verb(), s.repo.page.subject.object)
	}
	if s.screen == screenChanges || s.screen == screenDiff {
		o := s.location.object
		if o.source == nil {
			return commandLine(&s.facts, "show", s.detail.subject.object)
		}
		if value, known, _ := s.changes.files.of(s.compared.query); known && value.From != "" {
			return commandLine(&s.facts, "diff", o, text.ShortRef(artifact.Commit(value.From)), text.ShortRef(artifact.Commit(value.To)))
		}
		return commandLine(&s.facts, "diff", o)
	}
	if row := s.source.page.rows.here(); s.screen == screenSource && s.source.page.listed && row != nil {
		return commandLine(&s.facts, "get", s.source.page.subject.object, "--revision "+text.ShortRef(artifact.Commit(row.Revision)))
	}
	if of := s.showable(); len(of) > 0 {
		return commandLine(&s.facts, "show", of[0])
	}
	return ""
}

// editLine returns the command line that edits the selected object.
func editLine(s *scene) string {
	if of := s.testable(); len(of) == 1 {
		return s.limpet("edit " + of[0].Kind + " " + named(&s.facts, of[0]))
	}
	return ""
}

// historyLine returns the command that lists the history of the selected repository.
func historyLine(s *scene) string {
	if of := onRepos(&s.facts, s.selected); len(of) == 1 {
		return s.limpet("history list --repository " + text.ShellWord(of[0].Name))
	}
	return s.limpet("history list")
}

// copied copies text to the clipboard of the terminal. It also shows the text, for terminals that
// refuse the copy.
func (s *State) copied(text string) {
	s.out.Copy = text
	s.showToast("copied: "+text, false)
}

func addresses(s *State) []snapshot.Link {
	o, ok := s.one()
	if f := s.files.rows.here(); s.screen == screenFiles && f != nil {
		if l := grafanaLink(&s.facts, s.repo.page.subject.object.Namespace, *f); l.URL != "" {
			return []snapshot.Link{l}
		}
	}
	switch {
	case ok && o.source != nil:
		out := []snapshot.Link{{Name: "source", URL: o.source.URL}, {Name: "artifact", URL: ArtifactOf(*o.source).URL}}
		return slices.DeleteFunc(out, func(l snapshot.Link) bool { return l.URL == "" })
	case ok && o.job != nil && len(o.job.URLs) > 0:
		return o.job.URLs
	}
	if of := onRepos(&s.facts, s.selected); len(of) == 1 && strings.HasPrefix(of[0].repo.URL, "http") {
		return []snapshot.Link{{Name: "repository", URL: of[0].repo.URL}}
	}
	return nil
}

// copyLink copies an address; the next press copies the next one.
func copyLink(s *State) {
	all := s.links
	l := all[s.linkAt%len(all)]
	s.linkAt = (s.linkAt + 1) % len(all)
	said := "copied: " + l.Name + " " + l.URL
	if len(all) > 1 {
		said += fmt.Sprintf(" (u: %s)", all[s.linkAt].Name)
	}
	s.out.Copy = l.URL
	s.showToast(said, false)
}

func commitHere(s *State) string {
	if row := s.source.page.rows.here(); s.screen == screenSource && s.source.page.listed && row != nil {
		return artifact.Commit(row.Revision)
	}
	switch o, ok := s.one(); {
	case !ok:
		return ""
	case o.source != nil:
		return o.source.Commit()
	case o.job != nil:
		return o.job.RefTo
	default:
		return o.repo.LastRef
	}
}

// next returns the command to run next.
func nextCommand(s *facts, e issue) string {
	verbs := map[string]string{"job": "job show ", "repo": "repo test ", "files": "repo show ", "source": "source show ",
		"connection": "connection test "}
	if verb, ok := verbs[e.kind]; ok {
		return s.limpet(verb + text.ShellWord(cmp.Or(e.uid, e.name)))
	}
	return s.limpet("doctor")
}

func requestLine(s *facts, v Verb, o object) string {
	if v == snapshot.PullFull {
		return commandLine(s, "pull", o, "--full")
	}
	return commandLine(s, strings.TrimSuffix(string(v), "-source"), o)
}

// missing returns a refusal once an object is gone.
func missing(s *scene, o object) string {
	_, there := s.current(o)
	return widget.When(!there, o.Name+" no longer exists"+
		widget.When(o.job != nil, ": "+s.limpet("history show "+text.ShellWord(o.UID))))
}
