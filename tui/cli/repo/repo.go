// Package repo has the commands of repositories and connections.
package repo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
	"limpet/tui/cli/job"
)

// Command has the commands of 'limpet repo'.
type Command struct {
	Create createCmd `cmd:"" writes:"" help:"Create a repository."`
	List   listCmd   `cmd:"" help:"All repositories."`
	Show   showCmd   `cmd:"" help:"One repository."`
	Pull   pullCmd   `cmd:"" writes:"" help:"Pull a repository now."`

	Diff     diffCmd     `cmd:"" help:"What differs between Git and the API, or the sink directory, now."`
	Files    filesCmd    `cmd:"" help:"The files of a repository at the synced commit: kind, title, UID, state."`
	Set      setCmd      `cmd:"" writes:"" help:"Change settings of a repository."`
	Rollback rollbackCmd `cmd:"" writes:"" help:"Pin a repository to a commit that was synced before."`

	Export ExportCmd `cmd:"" help:"Write the commit that was synced last to a file: a Git bundle."`
	Import ImportCmd `cmd:"" writes:"" help:"Put a Git bundle into the directory of a repository with a bundle:// URL."`

	Suspend  suspendCmd  `cmd:"" writes:"" help:"Suspend a repository on this agent: no health checks, no pulls."`
	Resume   resumeCmd   `cmd:"" writes:"" help:"End a suspension."`
	Test     testCmd     `cmd:"" help:"Test a repository now: rules, credentials, sink, remote, branch, path."`
	Open     openCmd     `cmd:"" help:"Print the web address of a repository, and open it in a browser where there is one."`
	Validate validateCmd `cmd:"" help:"Check a file of objects without a server."`
}

type listCmd struct {
	Limit uint `help:"Maximum number; 0 = all." default:"0"`
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	now := time.Now()
	t := command.Table{Columns: []string{"NAME", "TYPE", "HEALTH", "SYNC", "LAST REF", "SYNCED", "TARGET"},
		Wide: []string{"TITLE", "URL", "BRANCH", "PATH", "REASON"}}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		paused, err := job.Suspensions(ctx, s)
		if err != nil {
			return err
		}
		return e.PrintObjects(ctx, s, []command.Resource{api.Repositories}, "", nil, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
			repo, err := api.RepositoryView(u)
			health, git, st := healthText(repo.Status.Health), repo.Spec.GitBlock(), repo.Status.Sync
			if _, suspended := paused[u.GetUID()]; suspended {
				health = "suspended"
			}
			ref := text.OrDash(text.ShortRef(st.LastRef))
			if repo.Pinned() != "" {
				ref += " pinned"
			}
			return []string{u.GetName(), repo.Spec.Type, health, text.OrDash(repo.Status.PullState()), ref,
				command.Since(now, api.TimeOfMillis(st.Finished)), targetText(u, repo),
				repo.Spec.Title, text.Redact(git.URL), text.OrDash(cmp.Or(repo.GitRef, git.Branch)), text.OrDash(git.Path),
				text.OrDash(strings.Join(repo.Status.Health.Message, "; "))}, err
		})
	})
}

// targetText names where the files of a repository go.
func targetText(u *unstructured.Unstructured, repo api.Repository) string {
	if api.Annotation(u, api.AnnoSinkDir) != "" {
		return "directory"
	}
	return text.OrDash(repo.Spec.Sync.Target)
}

type showCmd struct {
	Name string `arg:"" help:"Name of the repository."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	needs := command.Needs{API: true}
	return e.WithObject(ctx, needs, api.Repositories, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		repo, err := api.RepositoryView(u)
		if err != nil {
			return err
		}
		paused, err := job.Suspensions(ctx, s)
		if err != nil {
			return err
		}
		snap, err := s.Snapshot(ctx)
		if err != nil {
			return err
		}
		unread, err := readUnread(ctx, s, snap, u)
		if err != nil {
			return err
		}
		return e.PrintOne(u.Object, "repository/"+u.GetName(), func(w io.Writer) {
			showRepo(e, w, u, repo, paused, unread, snap.Jobs, time.Now())
		})
	})
}

// maxUnread is the number of unread files that are shown one by one.
const maxUnread = 20

// readUnread returns the files of a repository that its last pull could not use, if this host made
// that pull.
func readUnread(ctx context.Context, s *command.Session, snap *snapshot.Snapshot, u *unstructured.Unstructured) (*state.Unread, error) {
	if s.File != nil {
		return s.File.Unread(ctx, u.GetNamespace(), u.GetName(), string(u.GetUID()))
	}
	for _, r := range snap.Repos {
		if r.UID == string(u.GetUID()) && r.Unread != nil {
			return r.Unread, nil
		}
	}
	return new(state.Unread), nil
}

func webhookText(h *api.WebhookStatus, now time.Time) string {
	if h == nil || h.ID == 0 && h.UUID == "" {
		return ""
	}
	txt := "registered, id " + cmp.Or(h.UUID, strconv.FormatInt(h.ID, 10))
	if at := api.TimeOfMillis(h.LastEvent); !at.IsZero() {
		txt += ", last event " + command.Since(now, at) + " ago"
	}
	return txt
}

func showRepo(e *command.Env, w io.Writer, u *unstructured.Unstructured, repo api.Repository,
	paused map[types.UID]repos.Suspension, unread *state.Unread, jobs []snapshot.Job, now time.Time) {
	var f command.Fields
	st := repo.Status
	f.Add("repository", u.GetNamespace()+"/"+u.GetName())
	f.Add("title", repo.Spec.Title)
	f.Add("type", repo.Spec.Type)
	if b := repo.Spec.Block(); b != nil && repo.Spec.Type == "local" {
		f.Add("directory", text.OrDash(b.Path))
	} else if b != nil {
		f.Add("url", text.Redact(b.URL))
		f.AddSet("mirrors", text.Redact(repo.GitMirrors))
		if f.AddSet("revision", repo.GitRef); repo.GitRef == "" {
			f.Add("branch", text.OrDash(b.Branch))
		}
		f.Add("path", text.OrDash(b.Path))
	}
	if commit := repo.Pinned(); commit != "" {
		f.Add("pinned", "to "+commit+", until: "+e.CommandFor(u.GetNamespace(), "repo set "+u.GetName()+" --unpin"))
	}
	f.AddSet("signatures", repo.GitVerify)
	interval := "off"
	if repo.Spec.Sync.Enabled {
		interval = fmt.Sprintf("every %ds", repo.Spec.Sync.IntervalSeconds)
	}
	f.Add("sync", interval+", target "+targetText(u, repo))
	sink := u.GetAnnotations()[api.AnnoSinkDir]
	if sink != "" && u.GetAnnotations()[api.AnnoSinkStrict] == "true" {
		sink += ", dashboards and folders only"
	}
	f.AddSet("sink", sink)
	addHealth(&f, st.Health)
	if one, suspended := paused[u.GetUID()]; suspended {
		until := ", until: " + e.CommandFor(u.GetNamespace(), "repo resume "+u.GetName())
		if !one.Until.IsZero() {
			until = " until " + one.Until.UTC().Format(time.RFC3339)
		}
		f.Add("suspended", "on this agent"+until)
	}
	f.AddState("last pull", st.PullState(), cmp.Or(st.PullState(), "none yet"))
	for _, j := range jobs {
		if j.WaitReason != "" && j.Namespace == u.GetNamespace() && j.Repository == u.GetName() {
			f.Add("job waits", j.WaitReason)
			break
		}
	}
	f.AddTime("finished", api.TimeOfMillis(st.Sync.Finished))
	f.Add("last ref", text.OrDash(st.Sync.LastRef))
	if c := repo.Spec.Connection; c != nil {
		f.Add("connection", c.Name)
	}
	f.AddSet("webhook", webhookText(st.Webhook, now))
	addToken(&f, now, st.Token)
	if q := st.Quota; q.MaxRepositories > 0 || q.MaxResourcesPerRepository > 0 {
		f.Add("limits", fmt.Sprintf("%d repositories, %d objects (0 = none)", q.MaxRepositories, q.MaxResourcesPerRepository))
	}
	addConditions(&f, st.Conditions, st.FieldErrors)
	if unread.Ref != st.Sync.LastRef || unread.Empty() || st.Sync.State == api.StateError {
		for _, m := range st.Sync.Message {
			f.Add("message", m)
		}
	} else {
		left := unread.LeftOut
		unread.LeftOut = ""
		for _, line := range unread.Lines(maxUnread) {
			f.AddState("unread file", api.StateWarning, line)
		}
		if left != "" {
			f.AddState("left out", api.StateWarning, left)
		}
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		f.Add("being deleted", "since "+at.UTC().Format(time.RFC3339))
		for _, e := range st.Blocked() {
			f.Add("in the way", e.String())
		}
	}
	for _, stat := range st.Stats {
		f.Add(stat.Resource, fmt.Sprint(stat.Count))
	}
	f.Write(w)
}

type pullCmd struct {
	Repository string `arg:"" help:"Name of the repository."`
	Full       bool   `help:"Compare everything; what was changed by hand is overwritten. Asks on a terminal."`
	MassDelete bool   `name:"allow-mass-delete" help:"Allow it to delete all of 3 or more objects, over 10 and 30 %, or over 50."`
	DryRun     bool   `help:"Print what it would do; nothing is written."`

	job.WaitFlags
}

func (c pullCmd) Run(ctx context.Context, e *command.Env) error {
	if c.DryRun {
		return job.Preview(ctx, e, worker.PreviewQuery{Repository: c.Repository, Incremental: !c.Full, AllowMassDelete: c.MassDelete})
	}
	return job.CreateJob(ctx, e, c.Repository, map[string]any{"action": "pull", "pull": map[string]any{"incremental": !c.Full}},
		job.MassDeleteNote(c.MassDelete), c.WaitFlags)
}
