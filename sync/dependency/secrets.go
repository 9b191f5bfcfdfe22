package dependency

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/kube"
)

const (
	// few is how many Secrets of a namespace are watched one by one, which needs no
	// right but for these. More are watched together: metadata of all of the namespace.
	few = 3
	// mostStreams bounds the watches that are open at once.
	mostStreams = 100
	// denied is the rest after a server has said that it has no Secrets, or none to
	// watch for us.
	denied = 30 * time.Minute
	// The rest after other trouble, doubled each time, and the life of a stream after
	// which it is forgotten.
	firstPause, lastPause, steady = time.Second, time.Minute, time.Minute
)

// scope is what one stream watches: a Secret or, without a name, those of a
// namespace. Never those of all namespaces.
type scope struct{ namespace, name string }

// scopes are the streams that show all that is used, and how many are too many.
// things are in order.
func scopes(things []Thing, namespaces []string) (out []scope, over int) {
	count := map[string]int{}
	for _, t := range things {
		count[t.Namespace]++
	}
	for _, ns := range namespaces {
		count[ns] = few + 1
	}
	for _, ns := range namespaces {
		out = append(out, scope{namespace: ns})
	}
	for _, t := range things {
		s := scope{namespace: t.Namespace}
		if count[t.Namespace] <= few {
			s.name = t.Name
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	over = max(0, len(out)-mostStreams)
	return out[:len(out)-over], over
}

// follow keeps the streams open that show what is used.
func (w *Watcher) follow(ctx context.Context) {
	running := map[scope]context.CancelFunc{}
	var all sync.WaitGroup
	defer all.Wait()
	told := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.used:
		}
		// At the start each object adds its own: one plan for all of them.
		if !rest(ctx, settle) {
			return
		}
		wanted, over := scopes(w.registry.Used(Secret))
		if over > 0 && !told {
			w.o.Logger.Warn("too many namespaces to watch the Secrets of all of them; a change elsewhere has effect at the next check", "watched", mostStreams, "not_watched", over)
			told = true
		}
		for s, stop := range running {
			if !slices.Contains(wanted, s) {
				stop()
				delete(running, s)
			}
		}
		for _, s := range wanted {
			if running[s] == nil {
				life, stop := context.WithCancel(ctx)
				running[s] = stop
				all.Go(func() { w.stream(life, s); stop() })
			}
		}
	}
}

// stream follows the Secrets of a scope until ctx ends.
func (w *Watcher) stream(ctx context.Context, s scope) {
	pause := firstPause
	for w.o.Client.WaitAvailable(ctx) == nil {
		began := time.Now()
		err := w.followOnce(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			pause = firstPause
		}
		wait := pause
		switch {
		case isDenied(err):
			wait = denied
			if _, said := w.said.LoadOrStore(s.namespace, true); !said && apierrors.IsForbidden(err) {
				w.o.Logger.Info("Secrets may not be watched here: one that changes has effect at the next check, within a minute where something is wrong", "namespace", s.namespace, "err", err)
			}
		case err != nil:
			w.o.Logger.Debug("cannot watch Secrets", "namespace", s.namespace, "err", err, "next_try_in", wait)
			fallthrough
		default:
			pause = min(2*pause, lastPause)
		}
		if !rest(ctx, wait+rand.N(wait/10+1)) {
			return
		}
	}
}

// isDenied says that a server has answered what it will answer next time.
func isDenied(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return slices.Contains([]int32{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable}, status.Status().Code)
}

// followOnce opens a stream and reads it to its end.
func (w *Watcher) followOnce(ctx context.Context, s scope) error {
	there := map[string]bool{}
	return w.o.Client.WatchVersions(ctx, w.resource, s.namespace, s.name, func(m kube.ObjectVersion) {
		if there != nil && m.Version != "" {
			there[m.Name] = true
		}
		w.saw(Thing{Secret, m.Namespace, m.Name}, m.Version, m.Labels)
	}, func() {
		for _, t := range w.registry.Absent(Secret, s.namespace, there) {
			if s.name == "" || s.name == t.Name {
				w.saw(t, "", nil)
			}
		}
		there = nil
	})
}
