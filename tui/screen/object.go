package screen

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
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

func (u *subject) follow(s *State) { u.object, u.live = s.current(u.object) }

func (u *subject) selection(*State) []object {
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

func (s *facts) repoOf(j *snapshot.Job) object {
	o, _ := s.current(repoObject(&snapshot.Repo{Namespace: j.Namespace, Name: j.Repository}))
	return o
}

// onRepos returns the repositories of the selection: also those of jobs.
func (s *facts) onRepos(selected []object) (out []object) {
	for _, o := range selected {
		if o.job != nil {
			o = s.repoOf(o.job)
		}
		if o.repo != nil && o.Name != "" && !slices.ContainsFunc(out, o.same) {
			out = append(out, o)
		}
	}
	return out
}

func (s *target) one() (object, bool) {
	if len(s.selected) != 1 {
		return object{}, false
	}
	return s.selected[0], true
}

// Command lines.

// twin reports whether the snapshot has another object of the same kind and name, elsewhere: in another namespace.
func (s *facts) twin(o object, elsewhere bool) bool {
	for other := range s.objects(o.Kind) {
		if other.Name == o.Name && !o.same(other) && (!elsewhere || other.Namespace != o.Namespace) {
			return true
		}
	}
	return false
}

// named returns the name of an object as an argument, with its namespace if it needs one.
func (s *facts) named(o object) string {
	if s.twin(o, true) {
		return text.ShellWord(o.Name) + " --namespace " + text.ShellWord(o.Namespace)
	}
	return text.ShellWord(o.Name)
}

func (s *facts) command(verb string, o object) string {
	switch {
	case o.source != nil:
		return "limpet source " + verb + " " + s.named(o)
	case o.repo != nil:
		return "limpet repo " + verb + " " + s.named(o)
	case verb == "show" && !o.job.Finished.IsZero():
		return "limpet history show " + text.ShellWord(o.UID)
	case s.twin(o, false): // the UID selects one of several jobs with the same name
		return "limpet job " + verb + " " + text.ShellWord(o.UID)
	}
	return "limpet job " + verb + " " + text.ShellWord(o.Name)
}

func (s *facts) getCommand(o object) string {
	return "limpet get " + o.Kind + " " + s.named(o) + " -o yaml"
}

// shownBy returns the command line that shows the selection, "" when there is none.
func (s *State) shownBy() string {
	if s.screen == screenChanges || s.screen == screenDiff {
		return s.command("show", s.detail.object)
	}
	if len(s.selected) == 0 || s.selected[0].Kind == onJob && s.selected[0].UID == "" {
		return ""
	}
	return s.command("show", s.selected[0])
}

// editLine returns the command line that edits the selected object: no key writes a spec.
func (s *target) editLine() string {
	of := s.testable()
	if len(of) != 1 {
		return ""
	}
	file := text.ShellWord(of[0].Name + ".yaml")
	return fmt.Sprintf("%s > %s && ${EDITOR:-vi} %s && limpet apply -f %s", s.getCommand(of[0]), file, file, file)
}

// historyLine returns the command that lists the history of the selected repository.
func (s *target) historyLine() string {
	if of := s.onRepos(s.selected); len(of) == 1 {
		return "limpet history list --repository " + text.ShellWord(of[0].Name)
	}
	return "limpet history list"
}

// copied copies text to the clipboard of the terminal. It also shows the text, for terminals that refuse the copy.
func (s *answer) copied(text string) {
	s.out.Copy = text
	s.showToast("copied: "+text, false)
}

func (s *target) links() []snapshot.Link {
	o, ok := s.one()
	switch {
	case ok && o.source != nil:
		out := []snapshot.Link{{Name: "source", URL: o.source.URL}, {Name: "artifact", URL: ArtifactOf(*o.source).URL}}
		return slices.DeleteFunc(out, func(l snapshot.Link) bool { return l.URL == "" })
	case ok && o.job != nil && len(o.job.URLs) > 0:
		return o.job.URLs
	}
	if of := s.onRepos(s.selected); len(of) == 1 && strings.HasPrefix(of[0].repo.URL, "http") {
		return []snapshot.Link{{Name: "repository", URL: of[0].repo.URL}}
	}
	return nil
}

// copyLink copies an address; the next press copies the next one.
func copyLink(s *State) {
	all := s.links()
	l := all[s.linkAt%len(all)]
	s.linkAt = (s.linkAt + 1) % len(all)
	said := "copied: " + l.Name + " " + l.URL
	if len(all) > 1 {
		said += fmt.Sprintf(" (u: %s)", all[s.linkAt].Name)
	}
	s.out.Copy = l.URL
	s.showToast(said, false)
}

func (s *target) commit() string {
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
