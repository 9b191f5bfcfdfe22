package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
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
	// maxJobs bounds the job rows of a snapshot. People do not scroll through more, and each row is sent to dashboards;
	// the counts include all jobs.
	maxJobs = 1000
	// maxConnections bounds the failing Connections of a snapshot: a few explain what fails.
	maxConnections = 20
)

// Sources are what a Builder reads. Connections and RepoFacts are nil where this agent has no controllers.
type Sources struct {
	Health      *Health
	Connections *kube.Informer
	Git         *source.Watcher // GitRepositories of Flux
	Activity    *Activity
	Jobs        func() jobs.Snapshot
	// RepoFacts sets what the controller of Repositories knows beside their status: the next action and the suspension.
	RepoFacts func(row *Repo)
	Role      func() Controllers
	// SourceRole is that for GitRepositories; nil = not known.
	SourceRole func() Controllers
	// Notifications are the targets of notifications.
	Notifications func() []notify.Status
	// SourceNext returns when a GitRepository is reconciled next; nil = this agent reconciles none.
	SourceNext func(namespace, name string) time.Time
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

// NewBuilder returns a Builder that shows the snapshot saved in store until the watches have synced. agent has what
// does not change.
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
	b.jobRows, b.repositories, b.sourceRows = newMemo[*Job](), newMemo[*repository](), newMemo[*Source]()
}

// Build returns the current snapshot, from the caches of the watches and from the state of the drivers.
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
		row := repoRow(o.Unstructured(), *repo.Repository)
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
	row.Draining, row.Busy, row.Claims = own.DrainingSince, own.Busy, len(own.Running)
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

// repository is a Repository and its unread files, which are stored before its status tells of the pull.
type repository struct {
	*api.Repository
	unread *state.Unread
}

// readRepository returns nil for an invalid one. A list that cannot be read is left out: the store reports its damage.
func (b *Builder) readRepository(u *unstructured.Unstructured) *repository {
	repo := readRepository(u)
	if repo == nil {
		return nil
	}
	out := &repository{Repository: repo}
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
	objects, known := b.from.Git.Objects()
	if !known {
		s.Sources = b.savedSources
		return
	}
	b.savedSources = nil
	s.SourcesError = b.from.Git.Refused()
	for _, o := range objects {
		row := *b.sourceRows.Get(o, func(u *unstructured.Unstructured) *Source { return new(source.FromObject(u)) })
		if b.from.SourceNext != nil {
			row.Next = b.from.SourceNext(row.Namespace, row.Name)
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

// memo keeps what was computed from each object until the object changes, so that one changed job in a thousand costs
// one row. A cached object is immutable, and so identifies its version. A memo belongs to one goroutine.
type memo[T any] struct {
	before, now map[kube.Object]T // used in the last round, and in this one
}

func newMemo[T any]() *memo[T] {
	return &memo[T]{map[kube.Object]T{}, map[kube.Object]T{}}
}

// Get returns what compute makes of the object.
func (m *memo[T]) Get(o kube.Object, compute func(*unstructured.Unstructured) T) T {
	v, ok := m.now[o]
	if !ok {
		if v, ok = m.before[o]; !ok {
			v = compute(o.Unstructured())
		}
		m.now[o] = v
	}
	return v
}

// EndRound forgets what was not used since the last call.
func (m *memo[T]) EndRound() {
	clear(m.before)
	m.before, m.now = m.now, m.before
}

// savedKind is the name of the saved snapshot in the state file.
const savedKind = "view"

// saveEvery is the interval of saves: the greatest age of the snapshot after a restart without the API. Each save costs
// one write, so it is rare: flash wears out.
const saveEvery = 5 * time.Minute

// Saver writes snapshots into the state file, to be shown after a restart until the watches have synced. It belongs to
// one goroutine.
type Saver struct {
	Store *state.Store
	last  []byte // without its time
}

// Run saves the snapshot of hub for the next start, each saveEvery and at the end.
func (v *Saver) Run(ctx context.Context, hub *Hub, log *slog.Logger) error {
	save := func(ctx context.Context, s *Snapshot) {
		if err := v.Save(ctx, s); err != nil {
			log.Warn("save snapshot", "err", err)
		}
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			<-hub.Done()
			save(context.WithoutCancel(ctx), hub.Latest())
			return nil
		case <-tick.C:
			if s, err := hub.Next(ctx, 0); err == nil {
				save(ctx, s)
			}
		}
	}
}

// Save writes what a restart shows of s, unless it equals the last write.
func (v *Saver) Save(ctx context.Context, s *Snapshot) error {
	if !s.API.Synced {
		return nil // it would replace a good snapshot by an empty one
	}
	saved := Snapshot{Jobs: slices.Clone(s.Jobs), Repos: slices.Clone(s.Repos), Counts: s.Counts, Sources: s.Sources}
	for i := range saved.Jobs {
		saved.Jobs[i].Log, saved.Jobs[i].Transfer = nil, Transfer{}
	}
	for i := range saved.Repos {
		saved.Repos[i].Next = time.Time{}
	}
	same, err := json.Marshal(saved)
	if err != nil || bytes.Equal(same, v.last) {
		return err
	}
	saved.AsOf = s.At
	if !s.API.Up {
		saved.AsOf = s.API.Since // data is from before that
	}
	data, err := json.Marshal(saved)
	if err == nil {
		err = v.Store.PutSnapshot(ctx, savedKind, data)
	}
	if err == nil {
		v.last = same
	}
	return err
}

// readSaved returns the saved snapshot, nil when there is none or it is not of this version.
func readSaved(ctx context.Context, store *state.Store) (*Snapshot, error) {
	data, _, err := store.Snapshot(ctx, savedKind)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	saved := new(Snapshot)
	if err != nil || json.Unmarshal(data, saved) != nil || saved.AsOf.IsZero() {
		return nil, err
	}
	return saved, nil
}

// addSaved puts the saved rows into s, with the results that wait for the API now.
func (s *Snapshot) addSaved(v *Snapshot, undelivered []jobs.Undelivered) {
	s.AsOf, s.Repos, s.Counts, s.Sources = v.AsOf, v.Repos, v.Counts, v.Sources
	s.Jobs = slices.Clone(v.Jobs)
	for _, u := range undelivered {
		i := slices.IndexFunc(s.Jobs, func(j Job) bool { return j.UID == u.UID })
		if i < 0 {
			i = len(s.Jobs)
			s.Jobs = append(s.Jobs, undeliveredRow(u))
		} else {
			s.Counts.Add(&s.Jobs[i], -1, v.AsOf)
			setUndelivered(&s.Jobs[i], u)
		}
		s.Counts.Add(&s.Jobs[i], 1, v.AsOf)
	}
}

// Saved returns the snapshot that the last agent has left in a state file, with the figures of the file. Without one it
// is empty, as of now, and has a Problem.
func Saved(ctx context.Context, store *state.Store, version string) (*Snapshot, error) {
	saved, err := readSaved(ctx, store)
	if err != nil {
		return nil, err
	}
	info, err := store.Info(ctx)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Seq: 1, At: time.Now()}
	s.Agent = Agent{Host: hostName(), Version: version, StorePath: info.Path, StoreSize: info.Bytes, History: info.History}
	if saved == nil {
		s.AsOf, s.Problem = s.At, "no saved status in this state file; start the agent: limpet --daemon"
	} else {
		s.addSaved(saved, nil)
	}
	s.API.Since = s.AsOf
	return s, nil
}

// healthEvery is how soon a change of availability is visible. A check reads two fields.
const healthEvery = time.Second

// Health reports whether the API can be used.
type Health struct {
	Server   string // URL, or "embedded"
	Embedded bool
	Started  time.Time
	Client   *kube.Client
	Jobs     *kube.Informer
	Repos    *kube.Informer
	// HostProblem returns what is wrong on this host, "" for nothing: the disk of the state file takes no writes, or files
	// of --manifests are not applied. The author of a file sees the screen and not the log.
	HostProblem func() string
	Warnings    func() []string // of the agent itself
}

// Synced reports whether the watches have shown all objects.
func (h *Health) Synced() bool { return h.Jobs.HasSynced() && h.Repos.HasSynced() }

// WaitSynced blocks until Synced, or returns an error when ctx ends.
func (h *Health) WaitSynced(ctx context.Context) error {
	if err := h.Jobs.WaitSynced(ctx); err != nil {
		return err
	}
	return h.Repos.WaitSynced(ctx)
}

// problem returns why the API cannot be used and the next command, "" when it can. Watches that are not synced yet are
// no problem by themselves.
func (h *Health) problem() string {
	_, err := h.Client.Down()
	for _, informer := range []*kube.Informer{h.Jobs, h.Repos} {
		if err == nil {
			err = informer.LastError()
		}
	}
	if err == nil {
		return ""
	}
	problem := text.Redact(err.Error())
	if hint := kube.Hint(err); hint != "" {
		problem += " (" + hint + ")"
	}
	return problem
}

// Run invalidates the snapshot of hub and logs when the API becomes unavailable or available, until ctx ends. An
// unavailable API sends no events.
func (h *Health) Run(ctx context.Context, hub *Hub, log *slog.Logger) error {
	var synced sync.WaitGroup
	defer synced.Wait()
	// Without objects the first complete snapshot would come with the idle tick, as if the start took that long.
	synced.Go(func() {
		if h.WaitSynced(ctx) == nil {
			hub.Invalidate()
		}
	})
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	problem, local, warnings := "", "", []string(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		wasUp, wasLocal, hadWarnings := problem == "", local, warnings
		problem, local, warnings = h.problem(), h.HostProblem(), h.Warnings()
		isUp := problem == ""
		if isUp != wasUp || local != wasLocal || !slices.Equal(warnings, hadWarnings) {
			hub.Invalidate()
		}
		switch {
		case isUp && !wasUp:
			log.Info("API available again", "server", h.Server)
		case wasUp && !isUp:
			log.Warn("API unavailable, retrying", "server", h.Server, "err", problem)
		}
	}
}

func (h *Health) row() API {
	row := API{
		Server:   h.Server,
		Embedded: h.Embedded,
		Synced:   h.Synced(),
		Up:       true,
		Since:    h.Started,
		Insecure: h.Client.Insecure(),
		Latency:  h.Client.Latency(),
	}
	if since, err := h.Client.Down(); err != nil {
		row.Up, row.Since, row.Error = false, since, text.Redact(err.Error())
		row.Next, row.Tries = h.Client.NextTry()
		row.Next = row.Next.Round(0) // wall clock: other processes read it
	}
	return row
}
