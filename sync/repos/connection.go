package repos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
)

// ConnectionOptions of Connections. Minter, Repositories and Logger must be set.
type ConnectionOptions struct {
	Minter *forge.Minter
	// Repositories have their health checked when a Connection that they use changes.
	Repositories *Controller
	Uses         reconcile.UseFunc // nil = no call
	Worked       func(reconcile.Done)
	Resync       time.Duration
	Logger       *slog.Logger
}

// Connections reconciles Connections: it checks whether their hosts accept their
// identities and writes that into their status. Tokens are minted where they are used, and
// kept in memory only. Make it with NewConnections before the informer runs.
type Connections struct {
	*reconcile.Loop
	o       ConnectionOptions
	server  server
	now     func() time.Time
	objects lister
}

// NewConnections makes the controller and registers its handlers with the informer, which
// must not run yet. It starts nothing.
func NewConnections(c *kube.Client, objects *kube.Informer, o ConnectionOptions) *Connections {
	o.Resync = cmp.Or(o.Resync, time.Minute)
	k := &Connections{o: o, server: serverOf(c, api.Connections), now: c.Now, objects: objects}
	k.Loop = reconcile.NewLoop(reconcile.Options{
		Kind: Connection, Reconcile: k.reconcile, Client: c, MaxRetry: o.Resync, Uses: o.Uses, Worked: o.Worked,
		Logger: o.Logger,
	})
	wakeUsers := func(c kube.Object) { k.Wake(c.Namespace(), c.Name()); o.Repositories.connectionChanged(c, false) }
	objects.AddHandler(kube.Handler{Add: wakeUsers, Delete: wakeUsers, Update: func(old, c kube.Object) {
		k.Wake(c.Namespace(), c.Name())
		if old.Number(pathGeneration) != c.Number(pathGeneration) || old.Bool(pathHealthy) != c.Bool(pathHealthy) {
			o.Repositories.connectionChanged(c, true)
		}
	}})
	return k
}

var (
	pathConnection = kube.PathTo("spec", "connection", "name")
	pathGeneration = kube.PathTo("metadata", "generation")
	pathHealthy    = kube.PathTo("status", "health", "healthy")
)

// connectionChanged has the health of the Repositories checked that use a Connection; all,
// or those that are not healthy, as the cause may be over.
func (c *Controller) connectionChanged(connection kube.Object, all bool) {
	for _, o := range c.repos.Objects() {
		if o.Namespace() == connection.Namespace() && o.Text(pathConnection) == connection.Name() && (all || !o.Bool(pathHealthy)) {
			c.Recheck(o.Namespace(), o.Name())
		}
	}
}

// Run works until ctx ends, and returns when nothing of it runs any more. It may be run again.
func (c *Connections) Run(ctx context.Context) error {
	if c.objects.WaitSynced(ctx) != nil {
		return nil
	}
	return c.Work(ctx, keysOf(c.objects))
}

// reconcile reconciles one Connection. One that is being deleted is left alone.
func (c *Connections) reconcile(ctx context.Context, k reconcile.Key) (_ reconcile.Result, err error) {
	obj, ok := c.objects.Get(k.Namespace, k.Name)
	if !ok || obj.GetDeletionTimestamp() != nil {
		c.Uses(k, nil)
		return reconcile.Result{}, nil
	}
	c.Uses(k, obj)
	view, err := api.ConnectionView(obj)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("%w: %w", reconcile.ErrInvalid, err)
	}
	health, observed := view.Status.Health, obj.GetGeneration() == view.Status.ObservedGeneration
	recheck := c.TakeRecheck(k)
	defer func() {
		if err != nil && recheck {
			c.WantRecheck(k)
		}
	}()
	now := c.now()
	if !recheck && !healthDue(health, !observed, now) {
		return nextCheck(health, now), nil
	}
	if url, err := auth.ParseServer(view.Spec.Server()); err == nil { // else no host is asked
		leave, err := c.Enter(url)
		if err != nil {
			return reconcile.Result{}, err
		}
		defer leave()
	}
	result, err := checkConnection(ctx, c.o.Minter, obj)
	if err != nil {
		return reconcile.Result{}, err
	}
	now = c.now()
	h, due := nextHealth(health, result, now)
	ch := &change{obj: obj, now: now}
	if due {
		ch.set(h, "health")
	}
	if !observed {
		ch.observe(obj.GetGeneration())
	}
	ready := result.ready()
	ch.fieldErrors(view.Status.FieldErrors, result.errors)
	ch.conditions(ready)
	if ops := ch.patch(); ops != nil {
		if _, err := c.server.PatchStatus(ctx, k, ops); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !result.ok() && (health.Healthy || health.Checked == 0) {
		c.o.Logger.Warn("connection is unhealthy", "connection", k.Name, "namespace", k.Namespace, "reason", ready.Reason, "err", ready.Message)
	}
	return nextCheck(h, now), nil
}

// nextCheck returns when the next check is due, by the local clock.
func nextCheck(h api.HealthState, now time.Time) reconcile.Result {
	at := time.UnixMilli(h.Checked).Add(window(h) + time.Millisecond)
	return reconcile.Result{Next: time.Now().Add(at.Sub(now))}
}

// checkConnection checks a Connection: first the rules, then its host.
func checkConnection(ctx context.Context, minter *forge.Minter, obj *unstructured.Unstructured) (healthResult, error) {
	if errs := admission.Check(obj, obj); len(errs) > 0 {
		return invalidResult(errs), nil
	}
	connection, err := forge.ConnectionOf(obj)
	if err != nil {
		return healthResult{}, err
	}
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err = minter.Test(limited, connection)
	_, answered := errors.AsType[*netx.Error](err)
	_, away := errors.AsType[*kube.UnavailableError](err)
	_, failed := errors.AsType[*apierrors.StatusError](err)
	switch {
	case ctx.Err() != nil:
		return healthResult{}, context.Cause(ctx)
	case away || failed:
		return healthResult{}, err // temporary: the API where secrets are
	case err != nil && !answered && !errors.Is(err, forge.ErrNoSecret): // its secret cannot be used
		err = &netx.Error{Kind: netx.Invalid, Op: "use " + connection.String(), Err: err}
	}
	return forgeResult(err, "secure"), nil
}
