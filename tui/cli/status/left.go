package status

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/job"
)

// leftReport describes the objects in the state file of a stopped agent.
type leftReport struct {
	Jobs  leftJobs        `json:"jobs"`
	Repos []snapshot.Repo `json:"repos"` // as the last agent saw them
}

type leftJobs struct {
	Pending int       `json:"pending"`
	Resting int       `json:"resting"`         // in backoff
	Claimed int       `json:"claimed"`         // by an agent that is gone
	Oldest  time.Time `json:"oldest,omitzero"` // creation time of the oldest
}

// abandonedAfter is the age from which a pending job means that an agent is missing, and not about to start.
const abandonedAfter = 5 * time.Minute

// readLeft reads the report; nil without jobs and repositories, as in the file of an agent of another server.
func readLeft(ctx context.Context, e *command.Env, store *state.Store) (*leftReport, error) {
	s := &command.Session{File: store}
	var err error
	if s.Client, err = e.Connect(ctx, s, ""); err != nil {
		return nil, err
	}
	defer func() { s.Client.Close(); s.Embedded.Close() }()
	left, now, namespace := &leftReport{Repos: []snapshot.Repo{}}, time.Now(), e.Flags.ListNamespace()
	_, err = s.List(ctx, api.Jobs, namespace, "", func(u *unstructured.Unstructured) bool {
		left.Jobs.add(u, now)
		return false
	}, 0)
	if err != nil {
		return nil, err
	}
	var paused []repos.Suspension
	if kept, err := repos.OpenSuspensions(ctx, store); err == nil { // else 'repo list' reports the error
		paused, _ = kept.Suspended(ctx)
	}
	list, err := s.List(ctx, api.Repositories, namespace, "", nil, 0)
	for i := range list {
		if repo, ok := snapshot.RepoOf(&list[i]); ok {
			repo.Suspended = slices.ContainsFunc(paused, func(p repos.Suspension) bool { return p.UID == repo.UID })
			left.Repos = append(left.Repos, repo)
		}
	}
	if err != nil || left.Jobs == (leftJobs{}) && len(left.Repos) == 0 {
		return nil, err
	}
	return left, nil
}

func (l *leftJobs) add(u *unstructured.Unstructured, now time.Time) {
	if at := api.Time(u.GetCreationTimestamp().Time); !at.IsZero() && (l.Oldest.IsZero() || at.Before(l.Oldest)) {
		l.Oldest = at
	}
	switch {
	case u.GetLabels()[api.LabelClaim] != "":
		l.Claimed++
	case job.RestOf(u).After(now):
		l.Resting++
	default:
		l.Pending++
	}
}

// judgeLeft reports jobs without an agent, which is a failure where an agent should run. The health of
// repositories is not: it is out of date.
func (s *report) judgeLeft(e *command.Env, now time.Time) {
	for _, repo := range s.Left.Repos {
		for _, issue := range repo.Issues() {
			issue.Failing = false
			s.add(e, []snapshot.Issue{issue})
		}
	}
	jobs := s.Left.Jobs
	n := jobs.Pending + jobs.Resting + jobs.Claimed
	if n == 0 {
		return
	}
	txt := "no agent runs, and " + text.Plural(n, "job") + " left"
	age := now.Sub(jobs.Oldest)
	old := !jobs.Oldest.IsZero() && age > abandonedAfter
	if old {
		txt += ", the oldest since " + text.Age(age)
	}
	txt += ": " + e.CommandFor("", "--daemon")
	if old || jobs.Claimed > 0 || jobs.Resting > 0 {
		s.OK, s.Why = false, append(s.Why, txt)
		return
	}
	s.Warnings = append(s.Warnings, txt)
}
