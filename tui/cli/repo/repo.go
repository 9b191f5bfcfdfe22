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

	"limpet/tui/cli/command"
	"limpet/tui/cli/job"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/worker"
)

// Command has the commands of 'limpet repo'.
type Command struct {
	Create createCmd `cmd:"" writes:"" help:"Create a repository."`
	List   listCmd   `cmd:"" help:"All repositories."`
	Show   showCmd   `cmd:"" help:"One repository."`
	Pull   pullCmd   `cmd:"" writes:"" help:"Pull a repository now."`

	Suspend  suspendCmd  `cmd:"" writes:"" help:"Suspend a repository on this agent: no health checks, no pulls."`
	Resume   resumeCmd   `cmd:"" writes:"" help:"End a suspension."`
	Test     testCmd     `cmd:"" help:"Test a repository now: rules, credentials, remote, branch."`
	Open     openCmd     `cmd:"" help:"Print the web address of a repository, and open it in a browser where there is one."`
	Validate validateCmd `cmd:"" help:"Check a file of objects without a server."`
}

type createCmd struct {
	Name      string        `arg:"" help:"Name of the repository."`
	URL       string        `required:"" help:"URL of the Git repository: https, ssh or http; file:///DIR where the agent was started with --local-git-prefix."`
	Branch    string        `help:"Branch. Default: the remote's own." xor:"ref"`
	Ref       string        `help:"Pull another thing than a branch: tag:NAME, semver:RANGE, ref:FULLNAME or commit:SHA." xor:"ref"`
	Mirror    []string      `help:"Another URL of the same repository, asked while the first is unreachable. Up to four." sep:"none" placeholder:"URL"`
	Path      string        `help:"Directory below the root of the repository."`
	Verify    string        `help:"Pull only what is signed: HEAD, Tag or TagAndHEAD. The keys are looked up where credentials are." enum:",head,HEAD,Tag,TagAndHEAD" default:"" placeholder:"MODE"`
	Signers   string        `name:"verify-principals" help:"Who may sign, with commas, such as ops@example.com; committer is who the commit or tag names." placeholder:"NAMES"`
	Title     string        `help:"Title. Default: the name."`
	Target    string        `help:"Where objects land: folder, folderless or instance." enum:"folder,folderless,instance" default:"folder"`
	Interval  time.Duration `help:"Period of pulls." default:"60s"`
	TokenFrom string        `name:"git-token-file" help:"File with the token for the Git host; - is stdin. It is stored sealed and never shown again." placeholder:"FILE"`
	TokenUser string        `help:"User name that goes with the token. Default: git."`
	SinkDir   string        `name:"sink-dir" help:"Write the tree to this directory (under a --sink-prefix of the agent) instead of the API."`
	Disabled  bool          `help:"Create it without pulling."`
}

func (c createCmd) Run(ctx context.Context, e *command.Env) error {
	git := map[string]any{"url": c.URL}
	setIf := func(m map[string]any, key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	setIf(git, "branch", c.Branch)
	setIf(git, "path", c.Path)
	setIf(git, "tokenUser", c.TokenUser)
	title := c.Title
	if title == "" {
		title = c.Name
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"title": title, "type": "git", "git": git,
		"sync": map[string]any{"enabled": !c.Disabled, "target": c.Target, "intervalSeconds": int64(c.Interval / time.Second)},
	}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName(c.Name)
	annotations := map[string]string{}
	for name, value := range map[string]string{api.AnnoSinkDir: c.SinkDir, api.AnnoGitRef: c.Ref,
		api.AnnoGitMirrors: strings.Join(c.Mirror, " "), api.AnnoGitVerify: c.Verify, api.AnnoGitVerifyPrincipals: c.Signers} {
		if value != "" {
			annotations[name] = value
		}
	}
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	if c.TokenFrom != "" {
		data, err := e.ReadFile(c.TokenFrom)
		if err != nil {
			return command.Usagef("limpet repo create "+command.ShellWord(c.Name)+" --url "+command.ShellWord(c.URL)+" --git-token-file FILE    # - is stdin", "read the token: %w", err)
		}
		text.RegisterSecret(data)
		u.Object["secure"] = map[string]any{"token": map[string]any{"create": strings.TrimSpace(string(data))}}
	}
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	made, err := s.Client.Resource(api.Repositories).Namespace(e.Flags.OneNamespace()).Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return command.WithHint(err, command.CommandFor(e.Flags.OneNamespace(), "repo show "+c.Name))
	}
	if err != nil {
		return err
	}
	if s.Embedded != nil && strings.HasPrefix(c.URL, "file:") && len(e.Flags.LocalGitPrefix) == 0 { // the flags of a daemon are unknown
		e.Notef("a file:// URL is read only by an agent that is started with --local-git-prefix and a directory above it")
	}
	made.SetManagedFields(nil)
	return e.PrintOne(made.Object, "repository/"+made.GetName(),
		func(w io.Writer) { fmt.Fprintf(w, "repository/%s created\n", made.GetName()) })
}

type listCmd struct {
	Limit uint `help:"Maximum number; 0 = all." default:"0"`
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	paused, err := readSuspensions(ctx, s)
	if err != nil {
		return err
	}
	items, err := s.List(ctx, api.Repositories, e.Flags.ListNamespace(), "", nil, c.Limit)
	if err != nil {
		return err
	}
	now := time.Now()
	t := command.Table{Columns: []string{"NAME", "TYPE", "HEALTH", "SYNC", "LAST REF", "SYNCED", "TARGET"},
		Wide: []string{"TITLE", "URL", "BRANCH", "PATH"}}
	objects := []any{}
	for i := range items {
		u := &items[i]
		repo, err := api.RepositoryView(u)
		if err != nil {
			return err
		}
		var block api.GitBlock
		if b := repo.Spec.Block(); b != nil {
			block = *b
		}
		t.Add(u.GetNamespace(), "repository/"+u.GetName(),
			u.GetName(), repo.Spec.Type, cmp.Or(paused.word(u), healthText(repo.Status.Health)), text.OrDash(repo.Status.Sync.State),
			text.OrDash(text.ShortRef(repo.Status.Sync.LastRef)), command.Since(now, api.TimeOfMillis(repo.Status.Sync.Finished)),
			text.OrDash(repo.Spec.Sync.Target),
			repo.Spec.Title, text.Redact(block.URL), text.OrDash(cmp.Or(repo.GitRef, block.Branch)), text.OrDash(block.Path))
		objects = append(objects, u.Object)
	}
	return e.PrintList(objects, t)
}

func healthText(h api.HealthState) string {
	switch {
	case h.Checked == 0:
		return "unchecked"
	case h.Healthy:
		return "healthy"
	}
	return "failing"
}

type showCmd struct {
	Name string `arg:"" help:"Name of the repository."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := e.FindObject(ctx, s, api.Repositories, c.Name)
	if err != nil {
		return err
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return err
	}
	paused, err := readSuspensions(ctx, s)
	if err != nil {
		return err
	}
	by, err := controllers(ctx, s)
	if err != nil {
		return err
	}
	return e.PrintOne(u.Object, "repository/"+u.GetName(),
		func(w io.Writer) { showRepo(w, u, repo, paused.text(e, u), signatures(e, u, repo), by, time.Now()) })
}

// controllers returns the state of the repository controllers by the daemon, the zero value without one.
func controllers(ctx context.Context, s *command.Session) (snapshot.Controllers, error) {
	if s.Daemon == nil {
		return snapshot.Controllers{}, nil
	}
	live, err := s.Daemon.Snapshot(ctx)
	if err != nil {
		return snapshot.Controllers{}, err
	}
	return live.Agent.Controllers, nil
}

// webhookText describes the webhook registered at the host.
func webhookText(h api.WebhookStatus, now time.Time) string {
	txt := "registered, id " + cmp.Or(h.UUID, strconv.FormatInt(h.ID, 10))
	if at := api.TimeOfMillis(h.LastEvent); !at.IsZero() {
		txt += ", last event " + command.Since(now, at) + " ago"
	}
	return txt
}

func showRepo(w io.Writer, u *unstructured.Unstructured, repo api.Repository, paused, signed string, by snapshot.Controllers,
	now time.Time) {
	var f command.Fields
	f.Add("repository", u.GetNamespace()+"/"+u.GetName())
	f.Add("title", repo.Spec.Title)
	f.Add("type", repo.Spec.Type)
	if b := repo.Spec.Block(); b != nil {
		f.Add("url", text.Redact(b.URL))
		if repo.GitMirrors != "" {
			f.Add("mirrors", text.Redact(repo.GitMirrors))
		}
		if repo.GitRef != "" {
			f.Add("revision", repo.GitRef)
		} else {
			f.Add("branch", text.OrDash(b.Branch))
		}
		f.Add("path", text.OrDash(b.Path))
	}
	if signed != "" {
		f.Add("signatures", signed)
	}
	interval := "off"
	if repo.Spec.Sync.Enabled {
		interval = fmt.Sprintf("every %ds", repo.Spec.Sync.IntervalSeconds)
	}
	f.Add("sync", interval+", target "+text.OrDash(repo.Spec.Sync.Target))
	if dir := u.GetAnnotations()[api.AnnoSinkDir]; dir != "" {
		f.Add("sink", dir)
	}
	f.AddState("health", healthText(repo.Status.Health),
		strings.TrimSuffix(healthText(repo.Status.Health)+": "+strings.Join(repo.Status.Health.Message, "; "), ": "))
	if paused != "" {
		f.Add("suspended", paused)
	}
	if by.Mode != "" {
		f.Add("controller", by.Text())
	}
	st := repo.Status.Sync
	f.AddState("last pull", st.State, text.OrDash(st.State))
	if st.Finished > 0 {
		f.Add("finished", api.TimeOfMillis(st.Finished).UTC().Format(time.RFC3339))
	}
	f.Add("last ref", text.OrDash(st.LastRef))
	if c := repo.Spec.Connection; c != nil {
		f.Add("connection", c.Name)
	}
	if h := repo.Status.Webhook; h != nil && (h.ID != 0 || h.UUID != "") {
		f.Add("webhook", webhookText(*h, now))
	}
	if at := api.TimeOfMillis(repo.Status.Token.Expiration); !at.IsZero() {
		f.AddState("token", expiryText(now, repo.Status.Token), expiryText(now, repo.Status.Token)+", "+at.UTC().Format(time.RFC3339))
	}
	if q := repo.Status.Quota; q.MaxRepositories > 0 || q.MaxResourcesPerRepository > 0 {
		f.Add("limits", fmt.Sprintf("%d repositories, %d objects (0 = none)", q.MaxRepositories, q.MaxResourcesPerRepository))
	}
	addConditions(&f, repo.Status.Conditions, repo.Status.FieldErrors)
	for _, m := range st.Message {
		f.Add("message", m)
	}
	if u.GetDeletionTimestamp() != nil {
		f.Add("being deleted", "since "+u.GetDeletionTimestamp().UTC().Format(time.RFC3339))
		if repo.Status.DeleteError != "" {
			f.Add("in the way", repo.Status.DeleteError)
		}
	}
	for _, stat := range repo.Status.Stats {
		f.Add(stat.Resource, fmt.Sprint(stat.Count))
	}
	f.Write(w)
}

type pullCmd struct {
	Repository string `arg:"" help:"Name of the repository."`
	Full       bool   `help:"Pull everything, not only what changed."`
	MassDelete bool   `name:"allow-mass-delete" help:"Let this pull delete more than 30 % of the objects, or more than 50."`

	job.WaitFlags
}

func (c pullCmd) Run(ctx context.Context, e *command.Env) error {
	return job.CreateJob(ctx, e, c.Repository, map[string]any{"action": "pull", "pull": map[string]any{"incremental": !c.Full}},
		job.MassDeleteNote(c.MassDelete), c.WaitFlags)
}

// signatures describes which signatures a repository requires: by its own annotation, and by the config file
// of this call. The condition has the keys that verified them.
func signatures(e *command.Env, u *unstructured.Unstructured, repo api.Repository) string {
	var parts []string
	if repo.GitVerify != "" {
		parts = append(parts, repo.GitVerify+", by annotation "+api.AnnoGitVerify)
	}
	rules, err := e.GitVerify()
	if err != nil {
		parts = append(parts, "the rules of the config file cannot be read: "+err.Error())
	}
	for _, rule := range auth.PoliciesFor(rules, u.GetNamespace(), u.GetName(), worker.URLs(repo)...) {
		parts = append(parts, rule.Mode+", by rule "+rule.Name()+" of "+e.Config.Path)
	}
	return text.Clean(strings.Join(parts, "; "))
}
