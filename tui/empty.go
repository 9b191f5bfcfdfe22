package tui

import (
	"fmt"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// What stands where a list has nothing to show: why that is, and what comes next.

// noJobs says why the list is empty and what comes next.
func (p *view) noJobs() []string {
	if problem := p.s.filterProblem(); problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		seen := len(p.s.Snap.Jobs)
		if all := p.s.Snap.Counts.All(); all > seen {
			return []string{fmt.Sprintf("None of the first %d jobs of %d matches %q; limpet job list has them all. Esc clears the filter.", seen, all, p.s.filter())}
		}
		return []string{fmt.Sprintf("No job of %d matches %q. Esc clears the filter.", seen, p.s.filter())}
	}
	if why := p.notReadYet("The jobs"); why != nil {
		return why
	}
	txt := "No jobs."
	var next, look time.Time // a repository that fails is looked at, and not pulled
	var last snapshot.Repo
	name, sick := "", ""
	for _, r := range p.s.Snap.Repos {
		if r.Synced.After(last.Synced) {
			last = r
		}
		switch failing := health(r) == "failing"; {
		case r.Next.IsZero() || r.Suspended || !r.Enabled:
		case failing && (look.IsZero() || r.Next.Before(look)):
			look, sick = r.Next, r.Name
		case !failing && (next.IsZero() || r.Next.Before(next)):
			next, name = r.Next, r.Name
		}
	}
	if !last.Synced.IsZero() {
		how := last.Name
		if last.SyncState != "working" && last.SyncState != "pending" { // which are of the next one
			how += ": " + text.OrDash(last.SyncState)
		}
		txt += fmt.Sprintf(" The last pull ended %s (%s).", ago(p.s.Now, last.Synced), how)
	}
	switch {
	case p.s.offline(): // nobody knows, and nothing is pulled
	case name != "":
		txt += fmt.Sprintf(" Next pull in %s: %s.", text.Age(next.Sub(p.s.Now)), name)
	case sick != "":
		txt += fmt.Sprintf(" None is pulled while it fails; the next look is in %s: %s.", text.Age(look.Sub(p.s.Now)), sick)
	}
	return []string{txt + p.startHint(" p on a repository starts one.")}
}

// startHint is starts, where there is a repository for the key.
func (p *view) startHint(txt string) string {
	switch snap := p.s.Snap; {
	case len(snap.Repos) > 0:
	case !snap.API.Synced: // then nobody knows
		return ""
	default:
		return " A job is about a repository, and there is none yet."
	}
	return p.ifSendable(txt)
}

// ifSendable is a text that says which key begins something, where it does.
func (p *view) ifSendable(txt string) string {
	if p.s.notSentReason() != "" {
		return ""
	}
	return txt
}

// notReadYet says why a list is empty that the server has not told, such as that it is
// not allowed; nil = it has. An empty list would say that there is nothing.
func (p *view) notReadYet(what string) []string {
	snap := p.s.Snap
	if snap.API.Synced || p.s.Source == FromDisk {
		return nil
	}
	out := []string{what + " have not been read yet" + p.g.more}
	if snap.Problem != "" {
		out = []string{what + " cannot be read: " + snap.Problem}
	}
	return out
}

func (p *view) noRepos() []string {
	if problem := p.s.filterProblem(); problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		return []string{fmt.Sprintf("No repository of %d matches %q. Esc clears the filter.", len(p.s.Snap.Repos), p.s.filter())}
	}
	if why := p.notReadYet("The repositories"); why != nil {
		return why
	}
	if p.s.Snap.API.Embedded {
		return []string{"No repositories. limpet repo create NAME --url https://HOST/REPO.git makes one."}
	}
	return []string{"No repositories here yet. Create one in Grafana under Administration, Provisioning, and it appears by itself."}
}
