package screen

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// object is a job, a repository or a source, as the snapshot or the history has it.
type object struct {
	snapshot.Subject
	job    *snapshot.Job
	repo   *snapshot.Repo // only with a name when it is not in the snapshot
	source *snapshot.Source
	gone   bool // the job has left the snapshot, and is not a row of the history
}

func jobObject(j *snapshot.Job) object {
	return object{job: j, Subject: snapshot.Subject{Kind: onJob, Namespace: j.Namespace, Name: j.Name, UID: j.UID}}
}

func repoObject(r *snapshot.Repo) object {
	return object{repo: r, Subject: snapshot.Subject{Kind: onRepo, Namespace: r.Namespace, Name: r.Name, UID: r.UID}}
}

func sourceObject(from *snapshot.Source) object {
	return object{source: from, Subject: snapshot.Subject{Kind: onSource, Namespace: from.Namespace, Name: from.Name,
		UID: from.UID}}
}

// subject is the object of a screen, in its last known state.
type subject struct {
	object
	live bool // the snapshot has it
}

// page is the frame of the screen of one object: its facts, and below them a list of what belongs to it.
type page[T any] struct {
	subject
	top    int  // first visible line of what scrolls
	turned bool // the facts have the whole screen, or where both do not fit the list
	listed bool // the list is on the screen and has the cursor, as of the last frame
	rows   list[T]
}

func (g *page[T]) listPosition() *position { return &g.rows.position }

// scroll moves the cursor in the list, or scrolls what has no cursor.
func (g *page[T]) scroll(by int) {
	if g.listed {
		g.rows.move(by)
	} else {
		g.top += by
	}
}

// leastList is the height that the list keeps, with its heads and edges.
const leastList = 6

// split returns the areas of n lines of facts and of what is below them, and whether both fit.
func split(at widget.Rect, n, least int) (facts, below widget.Rect, fit bool) {
	facts, below = at.Top(min(n+2, max(at.H-least, min(at.H, leastList))))
	return facts, below, below.H >= 3
}

func (u *subject) follow(s *facts) { u.object, u.live = s.current(u.object) }

func (u *subject) selection(*scene) []object {
	if !u.live {
		return nil
	}
	return []object{u.object}
}

func (s *facts) objects(kind string) iter.Seq[object] {
	return func(yield func(object) bool) {
		for i := 0; kind == onJob && i < len(s.Snap.Jobs) && yield(jobObject(&s.Snap.Jobs[i])); i++ {
		}
		for i := 0; kind == onRepo && i < len(s.Snap.Repos) && yield(repoObject(&s.Snap.Repos[i])); i++ {
		}
		for i := 0; kind == onSource && i < len(s.Snap.Sources) && yield(sourceObject(&s.Snap.Sources[i])); i++ {
		}
	}
}

// same reports whether two objects of a kind are the same one, perhaps in another state.
func (o object) same(other object) bool {
	if o.repo != nil {
		return o.Namespace == other.Namespace && o.Name == other.Name
	}
	return o.UID == other.UID
}

// current returns the present state of an object, and whether the snapshot has it.
func (s *facts) current(o object) (object, bool) {
	for now := range s.objects(o.Kind) {
		if o.same(now) {
			return now, true
		}
	}
	return o, false
}

func repoOf(s *facts, j *snapshot.Job) object {
	o, _ := s.current(repoObject(&snapshot.Repo{Namespace: j.Namespace, Name: j.Repository}))
	return o
}

// onRepos returns the repositories of the selection: also those of jobs.
func onRepos(s *facts, selected []object) (out []object) {
	for _, o := range selected {
		if o.job != nil {
			o = repoOf(s, o.job)
		}
		if o.repo != nil && o.Name != "" && !slices.ContainsFunc(out, o.same) {
			out = append(out, o)
		}
	}
	return out
}

func (s *scene) one() (object, bool) {
	if len(s.selected) != 1 {
		return object{}, false
	}
	return s.selected[0], true
}

// Command lines.

// twin reports whether the snapshot has another object of the same kind and name, elsewhere: in another namespace.
func twin(s *facts, o object, elsewhere bool) bool {
	for other := range s.objects(o.Kind) {
		if other.Name == o.Name && !o.same(other) && (!elsewhere || other.Namespace != o.Namespace) {
			return true
		}
	}
	return false
}

// limpet returns a command line of limpet that selects the state file and the server of this dashboard.
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
		return commandLine(&s.facts, s.files.verb(), s.repo.object)
	}
	if s.screen == screenChanges || s.screen == screenDiff {
		o := s.location.object
		if o.source == nil {
			return commandLine(&s.facts, "show", s.detail.object)
		}
		if value, known, _ := s.changes.files.of(s.compared.query); known && value.From != "" {
			return commandLine(&s.facts, "diff", o, text.ShortRef(artifact.Commit(value.From)), text.ShortRef(artifact.Commit(value.To)))
		}
		return commandLine(&s.facts, "diff", o)
	}
	if row := s.source.rows.here(); s.screen == screenSource && s.source.listed && row != nil {
		return commandLine(&s.facts, "get", s.source.object, "--revision "+text.ShortRef(artifact.Commit(row.Revision)))
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

func editRefusal(s *scene) string {
	return cmp.Or(s.notSentReason(), oneRefusal(s.testable(), "no repository or source is under the cursor"))
}

func (s *State) edit(e snapshot.Edit) {
	s.out.Edit, s.out.EditLine = &e, editLine(&s.scene)
}

// CopyEdit returns the state without an editor: the command line is copied.
func (s State) CopyEdit(out Outcome, why string) State {
	s.showToast(why+"; copied: "+out.EditLine, false)
	return s
}

// Edited returns the state with the text of the user: the difference is checked and shown, and applied after a yes.
func (s State) Edited(e snapshot.Edit) State {
	if e.After == e.Before {
		s.showToast("nothing was changed", false)
		return s
	}
	openPopup(&s, popup{popupKey: popupKey{of: e.Subject}, edit: &e})
	return s
}

// historyLine returns the command that lists the history of the selected repository.
func historyLine(s *scene) string {
	if of := onRepos(&s.facts, s.selected); len(of) == 1 {
		return s.limpet("history list --repository " + text.ShellWord(of[0].Name))
	}
	return s.limpet("history list")
}

// copied copies text to the clipboard of the terminal. It also shows the text, for terminals that refuse the copy.
func (s *State) copied(text string) {
	s.out.Copy = text
	s.showToast("copied: "+text, false)
}

func addresses(s *State) []snapshot.Link {
	o, ok := s.one()
	if f := s.files.rows.here(); s.screen == screenFiles && f != nil {
		if l := grafanaLink(&s.facts, s.repo.Namespace, *f); l.URL != "" {
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
	if row := s.source.rows.here(); s.screen == screenSource && s.source.listed && row != nil {
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
