// Package repo has the commands of repositories and connections.
package repo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/browser"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/forge"
	"limpet/sync/repos"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/sync/worker/sink"
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

type createCmd struct {
	Name      string        `arg:"" help:"Name of the repository."`
	Type      string        `help:"git, or local: a directory of files below --local-prefix of the agent." enum:"git,local" default:"git"`
	URL       string        `help:"URL: https, ssh, http, limpet+https; file:///DIR or bundle:///DIR below --local-git-prefix of the agent."`
	Branch    string        `help:"Branch. Default: the default branch of the remote." xor:"ref"`
	Path      string        `help:"Directory below the root of the repository. With --type local: the directory itself."`
	Title     string        `help:"Title. Default: the name."`
	Target    string        `help:"Where objects land: folder, folderless or instance." enum:"folder,folderless,instance" default:"folder"`
	Interval  time.Duration `help:"Period of pulls." default:"60s"`
	TokenUser string        `help:"User name that goes with the token. Default: git."`
	Workflows string        `help:"What is written: write (its branch), branch (others). Default: nothing." placeholder:"write,branch"`
	Disabled  bool          `help:"Create it without pulling."`

	annotationFlags
	credentialFlags
}

func (c createCmd) Run(ctx context.Context, e *command.Env) error {
	const next = "limpet repo create NAME --url URL    # or --type local --path DIR"
	git := map[string]any{}
	switch local := c.Type == "local"; {
	case local && (c.URL != "" || !filepath.IsAbs(c.Path)):
		return command.Usagef(next, "--type local takes an absolute --path and no --url")
	case local:
	case c.URL == "":
		return command.Usagef(next, "missing --url")
	default:
		git["url"] = c.URL
	}
	for member, value := range map[string]string{"branch": c.Branch, "path": c.Path, "tokenUser": c.TokenUser} {
		if value != "" {
			git[member] = value
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"title": cmp.Or(c.Title, c.Name), "type": c.Type, c.Type: git,
		"sync": map[string]any{"enabled": !c.Disabled, "target": c.Target, "intervalSeconds": int64(c.Interval / time.Second)},
	}}}
	if c.Workflows != "" {
		u.Object["spec"].(map[string]any)["workflows"] = workflows(c.Workflows)
	}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName(c.Name)
	if c.sinkDir() != "" && c.Strict == nil {
		c.Strict = new(true)
	}
	notes, err := c.annotations()
	if err != nil {
		return command.Usagef("limpet repo create --help", "%w", err)
	}
	for name, value := range notes {
		if value, set := value.(string); set {
			api.SetAnnotation(u, name, value)
		}
	}
	secure, err := c.secure(e, "limpet help credentials")
	if err != nil {
		return err
	}
	if len(secure) > 0 {
		u.Object["secure"] = secure
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		made, err := s.Client.Resource(api.Repositories).Namespace(e.Flags.OneNamespace()).Create(ctx, u, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return command.WithHint(err, command.CommandFor(e.Flags.OneNamespace(), "repo set "+c.Name+" --help")+"    # changes it")
		}
		if err != nil {
			return err
		}
		c.noteRefusal(ctx, e, s, made)
		noteInterval(e, u.Object, made)
		made.SetManagedFields(nil)
		return e.PrintDone(made.Object, "repository/"+made.GetName(), "repository/%s created", made.GetName())
	})
}

// workflows returns spec.workflows; empty = none.
func workflows(list string) (out []any) {
	for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		out = append(out, w)
	}
	return out
}

// noteRefusal warns of a URL that the agent is sure to refuse. The flags of a daemon are unknown here: it tests the repository.
func (c createCmd) noteRefusal(ctx context.Context, e *command.Env, s *command.Session, made *unstructured.Unstructured) {
	local := c.Type == "local" || strings.HasPrefix(c.URL, "file:") || strings.HasPrefix(c.URL, "bundle:")
	plain := strings.HasPrefix(c.URL, "http:") && c.Token != ""
	_, sinkErr := sink.Permit(c.sinkDir(), e.Flags.SinkPrefix)
	switch {
	case s.Daemon != nil && (local || plain || c.sinkDir() != ""):
		ctx, cancel := context.WithTimeout(ctx, command.RetryPause)
		defer cancel()
		if results, err := s.Daemon.Test(ctx, made); err == nil && len(results.Errors) > 0 {
			e.Notef("the agent cannot pull it: %s", results.Errors[0].Detail)
		}
	case s.Embedded != nil && c.Type == "local" && len(e.Flags.LocalPrefix) == 0:
		e.Notef("a directory is read only by an agent that is started with --local-prefix and a directory above it")
	case s.Embedded != nil && c.Type == "git" && local && len(e.Flags.LocalGitPrefix) == 0:
		e.Notef("a file:// or bundle:// URL is read only by an agent that is started with --local-git-prefix and a directory above it")
	case s.Embedded != nil && c.sinkDir() != "" && sinkErr != nil:
		e.Notef("%v", sinkErr)
	case s.Embedded != nil && plain && !e.Flags.AllowInsecureGit:
		e.Notef("a token goes over plain http only from an agent that is started with --allow-insecure-git")
	}
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
		return e.PrintObjects(ctx, s, api.Repositories, "", nil, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
			repo, err := api.RepositoryView(u)
			health, git, st := healthText(repo.Status.Health), gitOf(repo), repo.Status.Sync
			if _, suspended := suspensions(paused).of(u); suspended {
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

// gitOf returns the Git part of a spec, which is empty for a type without one.
func gitOf(repo api.Repository) api.GitBlock {
	if b := repo.Spec.Block(); b != nil {
		return *b
	}
	return api.GitBlock{}
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
		unread, err := readUnread(ctx, s, u)
		if err != nil {
			return err
		}
		waits, err := job.WaitReasons(ctx, s)
		if err != nil {
			return err
		}
		return e.PrintOne(u.Object, "repository/"+u.GetName(), func(w io.Writer) {
			showRepo(e, w, u, repo, paused, unread, waits[u.GetNamespace()+"/"+u.GetName()], time.Now())
		})
	})
}

// maxUnread is the number of unread files that are shown one by one.
const maxUnread = 20

// readUnread returns the files of a repository that its last pull could not use, if this host made that pull.
func readUnread(ctx context.Context, s *command.Session, u *unstructured.Unstructured) (*state.Unread, error) {
	switch {
	case s.Daemon != nil:
		snap, err := s.Daemon.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range snap.Repos {
			if r.UID == string(u.GetUID()) && r.Unread != nil {
				return r.Unread, nil
			}
		}
	case s.File != nil:
		return s.File.Unread(ctx, u.GetNamespace(), u.GetName(), string(u.GetUID()))
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

func showRepo(e *command.Env, w io.Writer, u *unstructured.Unstructured, repo api.Repository, paused suspensions, unread *state.Unread,
	waits string, now time.Time) {
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
	if one, suspended := paused.of(u); suspended {
		until := ", until: " + e.CommandFor(u.GetNamespace(), "repo resume "+u.GetName())
		if !one.Until.IsZero() {
			until = " until " + one.Until.UTC().Format(time.RFC3339)
		}
		f.Add("suspended", "on this agent"+until)
	}
	f.AddState("last pull", st.PullState(), cmp.Or(st.PullState(), "none yet"))
	f.AddSet("job waits", waits)
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

type suspendCmd struct {
	Name string        `arg:"" help:"Name of the repository."`
	For  time.Duration `help:"How long; 0 = until 'limpet repo resume'." default:"24h"`
}

func (c suspendCmd) Run(ctx context.Context, e *command.Env) error {
	if c.For < 0 {
		return command.Usagef("limpet repo suspend NAME --for 2h", "--for is %s: it must not be negative", c.For)
	}
	return withSuspender(ctx, e, c.Name, func(who control.Suspender, u *unstructured.Unstructured) error {
		one := repos.Suspension{Namespace: u.GetNamespace(), Repository: u.GetName(), UID: string(u.GetUID()), Since: time.Now().Round(0)}
		text := "until it is resumed: " + e.CommandFor(u.GetNamespace(), "repo resume "+u.GetName())
		if c.For > 0 {
			one.Until = one.Since.Add(c.For)
			text = "until " + one.Until.Format(time.RFC3339)
		}
		if err := who.Suspend(ctx, one); err != nil {
			return err
		}
		return e.PrintDone(one, "repository/"+one.Repository, "repository/%s suspended on this agent %s", one.Repository, text)
	})
}

type resumeCmd struct {
	Name string `arg:"" help:"Name of the repository."`
}

func (c resumeCmd) Run(ctx context.Context, e *command.Env) error {
	return withSuspender(ctx, e, c.Name, func(who control.Suspender, u *unstructured.Unstructured) error {
		was, err := who.Resume(ctx, u.GetNamespace(), u.GetName())
		if err != nil {
			return err
		}
		text := map[bool]string{true: "resumed", false: "was not suspended"}[was]
		return e.PrintDone(map[string]any{"repository": u.GetName(), "namespace": u.GetNamespace(), "resumed": was},
			"repository/"+u.GetName(), "repository/%s %s", u.GetName(), text)
	})
}

// withSuspender calls f with the repository and the store of suspensions.
func withSuspender(ctx context.Context, e *command.Env, name string, f func(control.Suspender, *unstructured.Unstructured) error) error {
	needs := command.Needs{API: true, Desk: true}
	return e.WithObject(ctx, needs, api.Repositories, name, func(s *command.Session, u *unstructured.Unstructured) error {
		who, err := job.SuspensionStore(ctx, s)
		if err != nil {
			return err
		}
		return f(who, u)
	})
}

type suspensions []repos.Suspension

func (s suspensions) of(u *unstructured.Unstructured) (repos.Suspension, bool) {
	for _, one := range s {
		if one.Namespace == u.GetNamespace() && one.Repository == u.GetName() && one.UID == string(u.GetUID()) {
			return one, true
		}
	}
	return repos.Suspension{}, false
}

type openCmd struct {
	Name  string `arg:"" help:"Name of the repository."`
	Print bool   `help:"Print the address only."`
}

// Help is the long help of the command.
func (openCmd) Help() string {
	return "Prints the web address of the repository; in a graphical session also opens it in a browser."
}

// repoPage is the output of 'limpet repo open -o json'.
type repoPage struct {
	Namespace  string `json:"namespace"`
	Repository string `json:"repository"`
	URL        string `json:"url"`
	Opened     bool   `json:"opened"`
}

func (c openCmd) Run(ctx context.Context, e *command.Env) error {
	var page repoPage
	needs := command.Needs{API: true}
	err := e.WithObject(ctx, needs, api.Repositories, c.Name, func(_ *command.Session, u *unstructured.Unstructured) error {
		repo, err := api.RepositoryView(u)
		if err != nil {
			return err
		}
		shown := gitOf(repo).Branch
		if repo.GitRef != "" { // the pulled revision
			shown = repo.Status.Sync.LastRef
		}
		address, err := forge.Page(forge.TargetOf(u), shown, gitOf(repo).Path)
		if err != nil {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "repo show "+u.GetName()),
				"repository %s cannot be shown in a browser: %w", u.GetName(), err)
		}
		page = repoPage{Namespace: u.GetNamespace(), Repository: u.GetName(), URL: text.Clean(text.Redact(address))}
		return nil
	})
	if err != nil {
		return err
	}
	if !c.Print && graphical(e.Getenv) {
		if err := open(page.URL); err != nil {
			e.Notef("no browser: %v", err)
		} else {
			page.Opened = true
		}
	}
	return e.PrintDone(page, "repository/"+page.Repository, "%s", page.URL)
}

// graphical reports whether this terminal is on a host with a screen.
func graphical(env func(string) string) bool {
	return env("SSH_TTY") == "" && env("SSH_CONNECTION") == "" && env("DISPLAY")+env("WAYLAND_DISPLAY") != ""
}

// openTimeout bounds the wait for the program that opens addresses; one that stays has become the browser's parent.
const openTimeout = 5 * time.Second

// open opens an address in a browser. The output of the program is dropped: stdout has the address.
func open(address string) error {
	browser.Stdout, browser.Stderr = io.Discard, io.Discard
	opened := make(chan error, 1)
	go func() { opened <- browser.OpenURL(address) }()
	select {
	case err := <-opened:
		return err
	case <-time.After(openTimeout):
		return nil
	}
}
