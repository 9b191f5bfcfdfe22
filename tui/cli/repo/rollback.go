package repo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type rollbackCmd struct {
	Name       string `arg:"" help:"Name of the repository."`
	Commit     string `arg:"" optional:"" help:"A commit that was synced before, or how it begins."`
	ToPrevious bool   `help:"The commit that was synced before the present one."`
	Force      bool   `help:"Pin a repository that a file of --manifests declares, too."`
}

func (c rollbackCmd) Run(ctx context.Context, e *command.Env) error {
	list := "limpet history list --repository " + text.ShellWord(c.Name)
	if c.ToPrevious == (c.Commit != "") {
		return command.Usagef("limpet repo rollback "+text.ShellWord(c.Name)+" --to-previous    # or a commit of: "+list,
			"give either a commit or --to-previous")
	}
	var to state.Record
	var synced string // the commit of the last pull
	needs := command.Needs{API: true, Store: true}
	err := e.WithObject(ctx, needs, api.Repositories, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		repo, err := api.RepositoryView(u)
		if err = cmp.Or(err, ownedByFile(u, "rollback "+text.ShellWord(c.Name)+" "+cmp.Or(c.Commit, "--to-previous"), c.Force)); err != nil {
			return err
		}
		past, err := s.Store.History(ctx, state.Query{Namespace: u.GetNamespace(), Repository: c.Name, Brief: true,
			States: []string{api.StateSuccess, api.StateWarning}})
		if err != nil {
			return err
		}
		synced = repo.Status.Sync.LastRef
		if to, err = c.choose(past, synced); err != nil {
			return command.Usagef(list, "%w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	what := text.ShortRef(to.RefTo)
	if to.Commit != nil {
		what += " (" + text.Line(to.Commit.Subject, 60) + ")"
	}
	// The state file is free for others while the question is open.
	if err := e.Confirm(ctx, "This pins repository "+c.Name+" to "+what+", synced "+to.Finished.UTC().Format(time.RFC3339)+"."); err != nil {
		return err
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		done := "pinned to " + text.ShortRef(to.RefTo)
		if to.RefTo != synced {
			done += "; pull it now: " + e.CommandFor(to.Namespace, "repo pull "+c.Name)
		}
		done += "; end it: " + e.CommandFor(to.Namespace, "repo set "+c.Name+" --unpin")
		return patchRepository(ctx, e, s, c.Name, done, func(u *unstructured.Unstructured) (map[string]any, error) {
			repo, err := api.RepositoryView(u)
			notes := map[string]any{api.AnnoGitRef: api.RefCommit + to.RefTo}
			if !repo.RolledBack || repo.Pinned() == "" { // empty = it was the branch
				notes[api.AnnoGitRefUnpinned] = repo.GitRef
			}
			return map[string]any{"metadata": map[string]any{"annotations": notes}}, err
		})
	})
}

// choose returns the record of the commit to pin among those of successful jobs, the newest first.
func (c rollbackCmd) choose(past []state.Record, present string) (to state.Record, err error) {
	past = slices.DeleteFunc(past, func(r state.Record) bool {
		return r.RefTo == "" || !strings.HasPrefix(r.RefTo, c.Commit)
	})
	if c.ToPrevious {
		for _, r := range past {
			switch {
			case r.RefTo == present:
				to = state.Record{} // what is newer is none before it
			case to.RefTo == "":
				to = r
			}
		}
		if to.RefTo == "" {
			err = fmt.Errorf("the local history has no commit that was synced before %s", text.OrDash(text.ShortRef(present)))
		}
		return to, err
	}
	for _, r := range past {
		switch {
		case to.RefTo == "":
			to = r
		case r.RefTo != to.RefTo:
			return to, fmt.Errorf("%q is how several synced commits begin: %s, %s", c.Commit, to.RefTo, r.RefTo)
		}
	}
	if to.RefTo == "" {
		err = fmt.Errorf("commit %q was not synced before: it is not in the local history", c.Commit)
	}
	return to, err
}
