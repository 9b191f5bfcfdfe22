package repos

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/kube"
)

// Tester asks the host of a Connection whether it takes its identity.
// *forge.Minter is one.
type Tester interface {
	Test(ctx context.Context, c forge.Connection) error
}

var _ Tester = (*forge.Minter)(nil)

// ConnectionOptions of Connections. Tester, Repositories and Logger must be set.
type ConnectionOptions struct {
	Tester Tester
	// Repositories have their health checked when a Connection that they use has
	// changed.
	Repositories *Controller
	Uses         Uses // nil = nobody wants to know
	Resync       time.Duration
	Logger       *slog.Logger
}

// Connections looks after Connections: it checks whether their hosts take their
// identities and tells so in their status. Tokens are minted where they are used,
// and kept in memory only. Make it with NewConnections before the informer runs.
type Connections struct {
	*loop
	o       ConnectionOptions
	server  server
	now     func() time.Time
	objects lister
}

// connectionWorkers is how many Connections are looked into at once: as many as
// Repositories, so that some are left while hosts are silent.
const connectionWorkers = 8

// NewConnections makes the controller and registers its handlers with the
// informer, which must not run yet. It starts nothing.
func NewConnections(c *kube.Client, objects *kube.Informer, o ConnectionOptions) *Connections {
	if o.Resync <= 0 {
		o.Resync = time.Minute
	}
	k := &Connections{o: o, server: wire{c, "connections"}, now: serverTime(c), objects: objects}
	k.loop = newLoop("connection", o.Uses, k.reconcile, o.Resync, func(time.Duration) {}, o.Logger)
	k.await = c.WaitAvailable
	wake := func(c kube.Object) { k.Wake(c.Namespace(), c.Name()) }
	used := func(c kube.Object) { wake(c); o.Repositories.connectionChanged(c) }
	objects.AddHandler(kube.Handler{Add: used, Delete: used, Update: func(old, c kube.Object) {
		if old.Number(pathGeneration) != c.Number(pathGeneration) || old.Bool(pathHealthy) != c.Bool(pathHealthy) {
			used(c)
			return
		}
		wake(c)
	}})
	return k
}

var (
	pathConnection = kube.PathTo("spec", "connection", "name")
	pathGeneration = kube.PathTo("metadata", "generation")
	pathHealthy    = kube.PathTo("status", "health", "healthy")
)

// connectionChanged has the Repositories looked into that use a Connection.
func (c *Controller) connectionChanged(connection kube.Object) {
	for _, s := range c.repos.Objects() {
		if s.Namespace() == connection.Namespace() && s.Text(pathConnection) == connection.Name() {
			c.Recheck(s.Namespace(), s.Name())
		}
	}
}

// Wake has a Connection looked into now. It never blocks.
func (c *Connections) Wake(namespace, name string) { c.add(Key{namespace, name}) }

// Run works until ctx ends, and returns when nothing of it runs any more. It may be
// run again.
func (c *Connections) Run(ctx context.Context) error {
	if c.objects.WaitSynced(ctx) != nil {
		return nil
	}
	return c.run(ctx, connectionWorkers, func() []Key { return keysOf(c.objects) })
}

// reconcile looks into one Connection. One that is being deleted is left alone.
func (c *Connections) reconcile(ctx context.Context, k Key) (next time.Time, period time.Duration, err error) {
	defer c.pass(k)
	obj, ok := c.objects.Get(k.Namespace, k.Name)
	if !ok || obj.GetDeletionTimestamp() != nil {
		c.unused(k)
		return time.Time{}, 0, nil
	}
	c.uses(k, obj)
	view, err := api.ConnectionView(obj)
	if err != nil {
		return time.Time{}, 0, &unreadable{obj.GetResourceVersion(), err}
	}
	now, status := c.now(), view.Status
	wish := c.wished(k)
	defer func() {
		if err != nil {
			c.wish(k, wish)
		}
	}()
	if !wish.due(status.Health) && !healthDue(status.Health, obj.GetGeneration() != status.ObservedGeneration, now) {
		return c.later(status.Health, now), window(status.Health), nil
	}
	if at, err := auth.ParseServer(view.Spec.Server()); err == nil { // else nobody is asked
		if !c.lanes.enter(at.HostPort(), k) {
			return time.Time{}, 0, errWaits
		}
		defer c.leave(at.HostPort())
	}
	found, err := c.examine(ctx, obj)
	if err != nil {
		return time.Time{}, 0, err
	}
	h, due := noted(status.Health, found, c.now())
	w := &change{obj: obj, now: c.now()}
	if due {
		w.set(wireHealth(h), "health")
		if told := proof(obj, found, h); told != nil {
			w.set(told, "token")
		}
	}
	if obj.GetGeneration() != status.ObservedGeneration {
		w.set(obj.GetGeneration(), "observedGeneration")
	}
	w.fieldErrors(found.errors)
	w.conditions(found.ready())
	if ops := w.patch(); ops != nil {
		if _, err := c.server.patch(ctx, k, true, ops); err != nil {
			return time.Time{}, 0, err
		}
	}
	if !found.ok() && (status.Health.Healthy || status.Health.Checked == 0) {
		c.log.Warn("connection is not healthy", "connection", k.Name, "namespace", k.Namespace, "reason", found.ready().Reason, "err", found.ready().Message)
	}
	return c.later(h, now), window(h), nil
}

// proof is status.token of a Connection that proves its identity with what it makes
// each time: when it did so last, and how long that was good. It goes with the note
// of the health. The proof itself is for the whole of the App, and is given to nobody
// but its host.
func proof(obj *unstructured.Unstructured, found finding, h api.HealthState) map[string]any {
	connection, err := forge.ConnectionOf(obj)
	if err != nil || !found.ok() || !connection.Mints() {
		return nil
	}
	return map[string]any{"lastUpdated": h.Checked, "expiration": h.Checked + forge.ProofLife.Milliseconds()}
}

// later is when the next check is due, by the local clock.
func (c *Connections) later(h api.HealthState, now time.Time) time.Time {
	return time.Now().Add(time.UnixMilli(h.Checked).Add(window(h) + time.Millisecond).Sub(now))
}

// testTimeout bounds one test of a Connection.
const testTimeout = 20 * time.Second

// examine checks a Connection: first the rules, then its host.
func (c *Connections) examine(ctx context.Context, obj *unstructured.Unstructured) (finding, error) {
	if errs := admission.Check(obj, obj); len(errs) > 0 {
		return structural(errs), nil
	}
	connection, err := forge.ConnectionOf(obj)
	if err != nil {
		return finding{}, err
	}
	limited, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	err = c.o.Tester.Test(limited, connection)
	_, asked := errors.AsType[*forge.Error](err)
	switch {
	case ctx.Err() != nil:
		return finding{}, context.Cause(ctx)
	case err != nil && !asked && !errors.Is(err, forge.ErrNoSecret):
		return finding{}, err // of the moment: the API where secrets are
	}
	return forgeFinding(err, "secure"), nil
}
