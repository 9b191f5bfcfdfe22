package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
	"limpet/sync/snapshot"
	"limpet/sync/source/controller"
	"limpet/sync/text"
	"limpet/sync/worker/status/commitstatus"
)

const (
	// notifyGap is the least time between two looks at the Repositories that have changed.
	notifyGap = time.Second
	// notifyAgain is the interval at which a lasting failure is added to the outbox, which sends it
	// once a day.
	notifyAgain = time.Hour
	// jobTopic begins the topics of jobs; those of conditions are their types.
	jobTopic = "job/"
)

// notifier adds the events of Repositories to the outbox: the results of their jobs and their
// failing conditions.
type notifier struct {
	outbox    *notify.Outbox
	repos     *kube.Informer
	sources   *sources
	active    func() bool                       // no other agent sends the same
	suspended func(repository kube.Object) bool // on this agent
	log       *slog.Logger
}

// job adds the result of a job to the outbox. It returns when the event is in the state file.
func (n *notifier) job(e jobs.Event) {
	if _, is := e.Detail.(jobs.RecordQueued); is {
		n.outbox.RecordQueued()
	}
	if e.Type != jobs.EventCompleted || e.State == "" || e.State == "cancelled" || e.Repository == "" {
		return
	}
	action := strings.ToUpper(e.Action[:1]) + e.Action[1:]
	event := repositoryEvent(e.Namespace, e.Repository, jobTopic+e.Action, notify.Info, action+"Succeeded", e.Text)
	event.Time, event.Quiet, event.Metadata = e.At, true, map[string]string{"limpet/job": e.Job, "limpet/job-uid": e.UID}
	switch e.State {
	case api.StateSuccess:
	case api.StateWarning:
		event.Severity, event.Reason = notify.Error, action+"Warning"
	default:
		event.Severity, event.Reason = notify.Error, action+"Failed"
	}
	if last := e.Last; last != nil {
		summary := last.Summary()
		for _, s := range summary {
			event.Quiet = event.Quiet && s.Create+s.Update+s.Delete == 0
		}
		counts, first := commitstatus.Counts(summary), slices.Concat(last.Errors, last.Warnings)
		event.Metadata["revision"] = last.RefTo
		if event.Message = e.Text + ": " + counts; event.Severity == notify.Error {
			event.Message = e.Text + ": " + strings.Join(first[:min(len(first), 3)], "; ") // no counts: they would make it another failure
		}
		event.Message = strings.TrimSuffix(event.Message, ": ")
	}
	n.add(event)
}

func repositoryEvent(namespace, name, topic, severity, reason, message string) notify.Event {
	return notify.Event{Kind: "Repository", APIVersion: api.Repositories.GroupVersion().String(), Namespace: namespace, Name: name,
		Topic: topic, Severity: severity, Reason: reason, Message: message}
}

// add reports whether an event is in the outbox.
func (n *notifier) add(e notify.Event) bool {
	err := n.outbox.Add(context.Background(), e)
	if err != nil {
		n.log.Error("notification not kept", "object", e.Namespace+"/"+e.Name, "reason", e.Reason, "err", err)
	}
	return err == nil
}

// run adds the conditions of Repositories as they change, until ctx ends.
func (n *notifier) run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	n.repos.AddHandler(kube.Handler{Any: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	if n.repos.WaitSynced(ctx) != nil {
		return nil
	}
	seen := map[string]string{}
	again := time.NewTicker(notifyAgain)
	defer again.Stop()
	for {
		if n.active() {
			n.runOnce(ctx, seen)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			clear(seen)
		case <-changed:
		}
		if kube.Sleep(ctx, notifyGap) != nil {
			return nil
		}
	}
}

// runOnce adds the failures of the Repositories that have changed since they were last seen, then
// the end of each failure in the outbox that is over: that one may have ended while no agent ran.
func (n *notifier) runOnce(ctx context.Context, seen map[string]string) {
	for _, o := range n.repos.Objects() {
		if seen[o.Key()] == o.ResourceVersion() || n.suspended(o) {
			continue
		}
		seen[o.Key()] = o.ResourceVersion()
		for _, e := range failures(o) {
			if !n.add(e) {
				delete(seen, o.Key())
			}
		}
	}
	failing, err := n.outbox.Failing(ctx)
	if err != nil && ctx.Err() == nil {
		n.log.Error("outbox not read", "err", err)
	}
	for _, e := range failing {
		o, there := n.repos.Lookup(e.Namespace, e.Name)
		switch {
		case n.sources.watchers.Of(e.Kind) != nil:
			if u, known := n.sources.watchers.Of(e.Kind).Get(e.Namespace, e.Name); u == nil && known {
				kind, _ := api.SourceKind(e.Kind)
				n.add(controller.Deleted(kind, reconcile.Key{Namespace: e.Namespace, Name: e.Name}, e.Topic))
			}
		case e.Kind != "Repository":
		case !there:
			n.add(repositoryEvent(e.Namespace, e.Name, e.Topic, notify.Info, "Deleted", "the repository is gone"))
		case !strings.HasPrefix(e.Topic, jobTopic) && !n.suspended(o) &&
			!slices.ContainsFunc(failures(o), func(f notify.Event) bool { return f.Topic == e.Topic }):
			n.add(repositoryEvent(e.Namespace, e.Name, e.Topic, notify.Info, "Recovered", e.Topic+" is met again"))
		}
	}
}

// failures returns the failing conditions of a Repository, without that of its last pull, which its
// job reports.
func failures(o kube.Object) (out []notify.Event) {
	repo, err := api.RepositoryView(o.Unstructured())
	if err != nil {
		return nil
	}
	add := func(topic, reason, message string) {
		e := repositoryEvent(o.Namespace(), o.Name(), topic, notify.Error, reason, text.WithoutLocalPorts(message))
		e.UID, e.ResourceVersion, e.Metadata = o.UID(), o.ResourceVersion(), map[string]string{"revision": repo.Status.Sync.LastRef}
		out = append(out, e)
	}
	for _, blocked := range repo.Status.Blocked() {
		add("Deletion", cmp.Or(blocked.Code, "DeletionBlocked"), blocked.String())
	}
	health, reason := repo.Status.Health, ""
	for _, c := range repo.Status.Conditions {
		switch {
		case c.Type == "Ready":
			reason = c.Reason
		case c.Type == api.ConditionSyncStatus:
		case c.Type == api.ConditionDrifted && c.Status == "True", c.Type != api.ConditionDrifted && c.Status == "False":
			add(c.Type, c.Reason, c.Message)
		}
	}
	if health.Checked > 0 && !health.Healthy {
		add("Ready", cmp.Or(reason, "Unhealthy"), strings.Join(health.Message, "; "))
	}
	return out
}

// healthy returns why something fails, as 'limpet status' judges it; nil = nothing.
func (a *Agent) healthy(ctx context.Context) error {
	s, err := a.hub.Next(ctx, 0)
	if err != nil {
		return err
	}
	if stuck := a.Stuck(); len(stuck) > 0 {
		return errors.New(stuck[0])
	}
	if !s.API.Synced || !s.AsOf.IsZero() {
		return errors.New("the watches have not synced")
	}
	for _, i := range s.Issues() {
		if i.Failing {
			return errors.New(i.Text)
		}
	}
	return nil
}

func (a *Agent) buildNotifier(ctx context.Context) (n *notifier, err error) {
	cfg, log := a.cfg, a.cfg.Logger.With("component", "notify")
	client := &netx.Client{AllowInsecure: true, UserAgent: "limpet/" + cfg.Version, Timeout: notify.Timeout}
	targets := cfg.Notify
	if cfg.API.Kubeconfig != "" || a.clients.embedded != nil {
		targets = append(targets[:len(targets):len(targets)], notify.Kubernetes(a.clients.client))
	}
	if a.outbox, err = notify.Open(ctx, notify.Options{Store: cfg.Store, Targets: targets, Client: client, Logger: log}); err != nil {
		return nil, err
	}
	n = &notifier{outbox: a.outbox, repos: a.repos, sources: &a.controllers.sources, log: log,
		active: func() bool { return a.controllers.role().State != snapshot.ControllersStandby }, suspended: a.suspended}
	if len(targets) > 0 {
		a.parts = append(a.parts, a.outbox.Run, n.run)
	}
	if cfg.Heartbeat != nil {
		a.parts = append(a.parts, func(ctx context.Context) error {
			if a.health.WaitSynced(ctx) != nil {
				return nil
			}
			return notify.Heartbeat(ctx, cfg.Heartbeat, client, a.healthy, log)
		})
	}
	return n, nil
}
