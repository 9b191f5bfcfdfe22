package repos

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/text"
)

// Sinks keeps the directories of Repositories on this host at the commit of their last pull, with
// or without a Lease: each host has its own. A directory is checked at the start, after each pull
// and at the interval of its Repository.
type Sinks struct {
	*reconcile.Loop
	reporter reporter
	o        PulledOptions
	repos    *kube.Informer
}

// NewSinks registers its handlers with the informer, which must not run yet. It starts nothing.
func NewSinks(c *kube.Client, repos *kube.Informer, o PulledOptions) *Sinks {
	s := &Sinks{o: o, reporter: reporter{o.Observe, o.Logger}, repos: repos}
	s.Loop = reconcile.NewLoop(reconcile.Options{
		Kind: "sink", Reconcile: s.reconcile, Client: c, MaxRetry: o.Resync, Logger: o.Logger,
	})
	wake := func(repo kube.Object) { s.Wake(repo.Namespace(), repo.Name()) }
	repos.AddHandler(kube.Handler{Add: wake, Update: func(old, repo kube.Object) {
		if old.Number(pathFinished) != repo.Number(pathFinished) || old.Number(pathGeneration) != repo.Number(pathGeneration) ||
			old.Text(pathSink) != repo.Text(pathSink) || old.Text(pathExec) != repo.Text(pathExec) {
			wake(repo) // not for its conditions, which a failure changes
		}
	}})
	return s
}

var (
	pathFinished = kube.PathTo("status", "sync", "finished")
	pathSink     = kube.PathTo("metadata", "annotations", api.AnnoSinkDir)
	pathExec     = kube.PathTo("metadata", "annotations", api.AnnoSinkExec)
)

// Run works until ctx ends.
func (s *Sinks) Run(ctx context.Context) error {
	if s.repos.WaitSynced(ctx) != nil {
		return nil
	}
	return s.Work(ctx, keysOf(s.repos))
}

func (s *Sinks) reconcile(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	obj, ok := s.repos.Get(k.Namespace, k.Name)
	if !ok || obj.GetAnnotations()[api.AnnoSinkDir] == "" {
		return reconcile.Result{}, nil
	}
	view, err := api.RepositoryView(obj)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("%w: %w", reconcile.ErrInvalid, err)
	}
	next := reconcile.Result{Next: time.Now().Add(intervalOf(view))}
	_, suspended := s.o.Suspensions.Of(k, string(obj.GetUID()))
	if suspended || s.o.Selector != nil && !s.o.Selector.Matches(labels.Set(obj.GetLabels())) {
		return next, nil
	}
	files, err := s.o.Pull.KeepSink(ctx, obj)
	if err == nil && files > 0 {
		found := fmt.Sprintf("sink directory restored: %s at %s", text.Plural(files, "file"), text.ShortRef(view.Status.Sync.LastRef))
		s.reporter.report(k, "info", found)
		s.reporter.log.Info(found, "repo", k.Name, "namespace", k.Namespace)
	}
	return next, err
}
