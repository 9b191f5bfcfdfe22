package screen

import (
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// reposScreen is the list of repositories on the whole screen.
type reposScreen struct{}

func (reposScreen) draw(p *view, at widget.Rect) { p.repoList(at, true) }
func (reposScreen) list(s *State) *position      { return &s.repos.position }
func (reposScreen) selection(s *State) []object  { return s.repos.targets(repoObject) }
func (reposScreen) open(s *State)                { openRow(s, &s.repos, repoObject) }

func (p *view) repoList(at widget.Rect, focused bool) {
	l := &p.s.repos
	drawList(p, at, widget.Box{Title: p.listTitle("Repositories", &l.position), Note: p.place(&l.position, 0), Foot: reposNote(l.rows),
		Focused: focused}, func(s *State) *list[snapshot.Repo] { return &s.repos }, p.repoTable(), p.noRepos())
}

func (p *view) repoTable() widget.Table[snapshot.Repo] {
	type repo = snapshot.Repo
	now := p.Now
	return widget.Table[repo]{Grow: 1,
		Columns: []widget.Column[repo]{
			{Width: 1, Cell: func(r repo, _ int) (string, widget.Role) {
				state := repoState(r)
				if p.offline() && state == "working" {
					state = "unknown"
				}
				return p.StateGlyph(state), widget.StateRole(state)
			}},
			{Head: "NAME", Width: 14, Wide: 18, Whole: p.s.wide, Cell: widget.Plain(func(r repo) string { return r.Name })},
			{Head: "TYPE", Width: 6, Wide: 9, Rank: 4, Cell: widget.Plain(func(r repo) string { return r.Type })},
			{Head: "HEALTH", Width: 11, Wide: 12, Rank: 3, Cell: func(r repo, _ int) (string, widget.Role) {
				return failingText(r, now), widget.StateRole(health(r))
			}},
			{Head: "SYNC", Width: 7, Cell: func(r repo, _ int) (string, widget.Role) {
				return text.OrDash(r.SyncState), widget.StateRole(r.SyncState)
			}},
			{Head: "REF", Width: 7, Wide: 15, Rank: 2, Cell: func(r repo, w int) (string, widget.Role) {
				ref := text.OrDash(text.ShortRef(r.LastRef))
				if w > 7 {
					ref = strings.TrimSpace(r.Branch + " " + ref)
				}
				return ref, widget.RolePlain
			}},
			{Head: "SYNCED", Width: 8, Cell: widget.Plain(func(r repo) string { return widget.Ago(now, r.Synced) })},
			{Head: "NEXT", Width: 7, Wide: 9, Rank: 5, Cell: widget.Plain(p.nextPull)},
			{Head: "WEBHOOK", Width: 8, Rank: 8, Cell: widget.Plain(p.hookText)},
			{Head: "RES", Width: 6, Rank: 7, Right: true, Cell: dim(func(r repo) string { return fmt.Sprint(r.Resources) })},
			{Head: "24H", Width: 6, Wide: 24, Rank: 6, Cell: func(r repo, w int) (string, widget.Role) {
				return p.Spark(r.Runs, w), widget.RoleDim
			}},
			{Head: "URL", Width: 24, Rank: 9, Cell: dim(func(r repo) string { return r.URL })},
		}}
}

// nextPull returns when a repository is pulled next.
func (p *view) nextPull(r snapshot.Repo) string {
	switch {
	case !r.Enabled:
		return "off"
	case p.offline():
	case r.SyncState == "working":
		return "now"
	case r.Suspended:
		return "paused"
	case !r.Next.IsZero():
		return "in " + text.Age(r.Next.Sub(p.Now))
	}
	return "-"
}

func reposNote(rows []snapshot.Repo) string {
	if len(rows) == 0 {
		return ""
	}
	n := map[string]int{}
	for i := range rows {
		switch state := repoState(rows[i]); {
		case state == "pending" && rows[i].SyncState == state && rows[i].LastRef != "":
			n["waiting"]++
		case state == "error" || state == "warning" || state == "pending":
			n[state]++
		default:
			n["in order"]++
		}
	}
	return countsText([]string{fmt.Sprintf("%d in order", n["in order"])}, count{n["warning"], "with warnings"},
		count{n["error"], "failing"}, count{n["waiting"], "waiting"}, count{n["pending"], "not pulled yet"})
}

func repoState(r snapshot.Repo) string {
	switch {
	case r.Failing():
		return "error"
	case r.SyncState == "":
		return "pending"
	}
	return r.SyncState
}

func health(r snapshot.Repo) string {
	switch {
	case r.Checked.IsZero():
		return "unchecked"
	case r.Healthy:
		return "healthy"
	}
	return "failing"
}

// failingText returns the health of a repository, and the duration of a failure if it is known.
func failingText(r snapshot.Repo, now time.Time) string {
	h := health(r)
	if since := failingSince(r); h == "failing" && !since.IsZero() {
		h += " " + text.Age(now.Sub(since))
	}
	return h
}

// failingSince returns when the repository became unhealthy, zero when unknown: the transition
// time of its condition Ready.
func failingSince(r snapshot.Repo) time.Time {
	for _, c := range r.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return c.Since
		}
	}
	return time.Time{}
}

// hookText returns whether there is a webhook, and the time of its last delivery.
func (p *view) hookText(r snapshot.Repo) string {
	switch {
	case r.Webhook == nil:
		return "none"
	case r.Webhook.LastEvent.IsZero():
		return p.G.Dot + " quiet"
	}
	return p.G.Dot + " " + widget.Ago(p.Now, r.Webhook.LastEvent)
}
