package screen

import (
	"iter"
	"slices"

	"limpet/sync/snapshot"
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
		UID: from.UID, Source: otherKind(from)}}
}

// otherKind returns the kind of a source, "" for a GitRepository.
func otherKind(from *snapshot.Source) string {
	if from.Kind == "GitRepository" {
		return ""
	}
	return from.Kind
}

// subject is the object of a screen, in its last known state.
type subject struct {
	object object
	live   bool // the snapshot has it
}

// page is the frame of the screen of one object: its facts, and below them a list of what belongs
// to it.
type page[T any] struct {
	subject subject
	top     int  // first visible line of what scrolls
	turned  bool // the facts have the whole screen, or where both do not fit the list
	listed  bool // the list is on the screen and has the cursor, as of the last frame
	rows    list[T]
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

func (s *State) edit(e snapshot.Edit) {
	s.out.Edit, s.out.EditLine = &e, editLine(&s.scene)
}

// CopyEdit returns the state without an editor: the command line is copied.
func (s State) CopyEdit(out Outcome, why string) State {
	s.showToast(why+"; copied: "+out.EditLine, false)
	return s
}

// Edited returns the state with the text of the user: the difference is checked and shown, and
// applied after a yes.
func (s State) Edited(e snapshot.Edit) State {
	if e.After == e.Before {
		s.showToast("nothing was changed", false)
		return s
	}
	openPopup(&s, popup{popupKey: popupKey{of: e.Subject}, edit: &e})
	return s
}
