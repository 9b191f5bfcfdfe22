package snapshot

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/source"
	"limpet/sync/text"
)

const (
	// maxJobs bounds the job rows of a snapshot. People do not scroll through more, and each row is
	// sent to dashboards; the counts include all jobs.
	maxJobs = 1000
	// maxConnections bounds the failing Connections of a snapshot: a few explain what fails.
	maxConnections = 20
)

// Sources are what a Builder reads. Connections and RepoFacts are nil where this agent has no
// controllers.
type Sources struct {
	Health      *Health
	Connections *kube.Informer
	Sources     source.Watchers
	Activity    *Activity
	Jobs        func() jobs.Snapshot
	// RepoFacts sets what the controller of Repositories knows beside their status: the next action
	// and the suspension.
	RepoFacts func(row *Repo)
	Role      func() Controllers
	// SourceRole is that for sources; nil = not known.
	SourceRole func() Controllers
	// Notifications are the targets of notifications.
	Notifications func() []notify.Status
	// SourceNext returns when a source is reconciled next; nil = this agent reconciles none.
	SourceNext func(kind, namespace, name string) time.Time
}

// Builder builds the snapshots of an agent. It belongs to one goroutine.
type Builder struct {
	from    Sources
	store   *state.Store
	agent   Agent // the constant fields
	options JobOptions
	saved   *Snapshot // shown until the watches have synced; nil = none

	jobRows      *memo[*Job] // nil for an invalid job
	repositories *memo[*repository]
	sourceRows   *memo[*Source]
	savedSources []Source // shown until the sources are known
	cpu          cpuUsage
}

// NewBuilder returns a Builder that shows the snapshot saved in store until the watches have
// synced. agent has what does not change.
func NewBuilder(ctx context.Context, store *state.Store, from Sources, agent Agent, options JobOptions) (*Builder, error) {
	saved, err := readSaved(ctx, store)
	b := &Builder{from: from, store: store, agent: agent, options: options, saved: saved}
	if saved != nil {
		b.savedSources = saved.Sources
	}
	b.agent.Host, b.agent.PID = hostName(), os.Getpid()
	b.Reset()
	return b, err
}

// Reset drops all cached rows, until there is a reader again.
func (b *Builder) Reset() {
	b.jobRows = newMemo[*Job]()
	b.repositories = newMemo[*repository]()
	b.sourceRows = newMemo[*Source]()
}

// Build returns the current snapshot, from the caches of the watches and from the state of the
// drivers.
func (b *Builder) Build() *Snapshot {
	now := time.Now()
	recent, own := b.from.Activity.read(now), b.from.Jobs()
	s := &Snapshot{
		At:      now,
		Events:  recent.events,
		API:     b.from.Health.row(),
		Agent:   b.agentRow(own, recent, now),
		Problem: cmp.Or(b.from.Health.problem(), b.from.Health.HostProblem()),
	}
	switch {
	case s.API.Synced:
		b.saved = nil
	case b.saved != nil:
		s.addSaved(b.saved, own.Undelivered)
		return s
	}
	b.addSources(s)
	s.UnhealthyConnections = b.unhealthyConnections()
	s.Jobs, s.Counts = b.jobs(own, recent, !s.API.Up, now)
	for _, o := range b.from.Health.Repos.Objects() {
		repo := b.repositories.Get(o, b.readRepository)
		if repo == nil {
			continue
		}
		row := repoRow(o.Unstructured(), *repo.view)
		row.Unread = repo.unread
		row.Runs = b.from.Activity.Runs.line(o.Key(), now)
		if b.from.RepoFacts != nil {
			b.from.RepoFacts(&row)
		}
		s.Repos = append(s.Repos, row)
	}
	b.repositories.EndRound()
	slices.SortFunc(s.Repos, func(x, y Repo) int { return compareNames(x.Namespace, y.Namespace, x.Name, y.Name) })
	return s
}

func (b *Builder) agentRow(own jobs.Snapshot, recent recentActivity, now time.Time) Agent {
	row := b.agent
	row.Draining = own.DrainingSince
	row.Busy = own.Busy
	row.Claims = len(own.Running)
	row.LostCount, row.History = recent.lost, b.from.Activity.Runs.count()
	if info, err := os.Stat(row.StorePath); err == nil {
		row.StoreSize = info.Size()
	}
	row.RSS, row.CPU = residentBytes(), b.cpu.share(now, processorTime())
	row.Controllers, row.Warnings = b.from.Role(), b.from.Health.Warnings()
	if b.from.SourceRole != nil {
		row.Sources = new(b.from.SourceRole())
	}
	row.Notifications = b.from.Notifications()
	return row
}

// repository is a Repository and its unread files, which are stored before its status tells of the
// pull.
type repository struct {
	view   *api.Repository
	unread *state.Unread
}

// readRepository returns nil for an invalid one. A list that cannot be read is left out: the store
// reports its damage.
func (b *Builder) readRepository(u *unstructured.Unstructured) *repository {
	repo := readRepository(u)
	if repo == nil {
		return nil
	}
	out := &repository{view: repo}
	list, err := b.store.Unread(context.Background(), u.GetNamespace(), u.GetName(), string(u.GetUID()))
	if err == nil && !list.Empty() && list.Ref == repo.Status.Sync.LastRef {
		out.unread = list.First(maxUnread)
	}
	return out
}

func compareNames(namespace, otherNamespace, name, otherName string) int {
	return cmp.Or(strings.Compare(namespace, otherNamespace), strings.Compare(name, otherName))
}

// addSources adds the sources; until they are known, those saved before.
func (b *Builder) addSources(s *Snapshot) {
	objects, known := b.from.Sources.Objects()
	if !known {
		s.Sources = b.savedSources
		return
	}
	b.savedSources = nil
	s.SourcesError = b.from.Sources.Refused()
	for _, o := range objects {
		row := *b.sourceRows.Get(o, func(u *unstructured.Unstructured) *Source { return new(source.FromObject(u)) })
		if b.from.SourceNext != nil {
			row.Next = b.from.SourceNext(row.Kind, row.Namespace, row.Name)
		}
		s.Sources = append(s.Sources, row)
	}
	b.sourceRows.EndRound()
	slices.SortFunc(s.Sources, func(x, y Source) int { return compareNames(x.Namespace, y.Namespace, x.Name, y.Name) })
}

// Members of a Connection that its health is read from.
var (
	pathChecked = kube.PathTo("status", "health", "checked")
	pathHealthy = kube.PathTo("status", "health", "healthy")
)

// unhealthyConnections returns the Connections whose health check fails, by namespace and name.
func (b *Builder) unhealthyConnections() (out []Connection) {
	if b.from.Connections == nil {
		return nil
	}
	for _, o := range b.from.Connections.Objects() {
		if o.Number(pathChecked) <= 0 || o.Bool(pathHealthy) {
			continue
		}
		row := Connection{Namespace: o.Namespace(), Name: o.Name(), Checked: api.TimeOfMillis(o.Number(pathChecked))}
		if c, err := api.ConnectionView(o.Unstructured()); err == nil { // it is unhealthy in any case
			row.Message = text.Redact(strings.Join(c.Status.Health.Message, "; "))
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(x, y Connection) int { return compareNames(x.Namespace, y.Namespace, x.Name, y.Name) })
	return out[:min(len(out), maxConnections)]
}
