package members

// How an agent has its own Lease: takes it, renews it, and gives it back.

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// resign forgets what was seen, which is old when Run begins again.
func (m *Members) resign(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil {
		return // on an API without Leases
	}
	m.roll, m.lease = newRoll(), nil
	m.synced, m.alone, m.held, m.turn = false, false, false, 0
	m.joined, m.confirmed, m.wall = time.Time{}, time.Time{}, time.Time{}
}

// join takes the first Lease, and says whether there is anything to run for: an
// API without Leases has none.
func (m *Members) join(ctx context.Context) bool {
	for told := ""; ; {
		err := m.renew(ctx)
		if err == nil {
			return true
		}
		if unserved(err) {
			m.mu.Lock()
			m.alone = true
			m.mu.Unlock()
			m.o.Logger.Info("the API has no leases for this agent: several agents may look after one repository", "err", err)
			m.o.Changed()
			return false
		}
		if text := err.Error(); text != told && ctx.Err() == nil {
			m.o.Logger.Warn("this agent looks after no repository before it has its lease", "lease", m.name, "err", err)
			told = text
		}
		timer := time.NewTimer(m.o.Renew / 4)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// unserved says that Leases are not to be had here, which does not change by
// itself.
func unserved(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err)) ||
		errors.As(err, &status) && status.Status().Code == http.StatusNotAcceptable
}

// errTaken says that another process holds the Lease of this agent.
var errTaken = errors.New("another process holds it; do two agents share one state file or a copy of it?")

// renew writes the Lease of this agent once.
func (m *Members) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.o.Renew/2)
	defer cancel()
	sent := time.Now()
	u, err := m.put(ctx, sent)
	m.lease = u
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); !m.fresh(now) {
		m.joined = now // others may have taken over meanwhile
		m.wake()
	}
	m.confirmed, m.wall, m.held, m.alone = sent, sent.Round(0), true, false
	if rec, ok := read(u); ok {
		m.turn = rec.turn
		m.roll.note(rec, sent)
	}
	return nil
}

// put writes the Lease and returns it, nil when that has failed. One that nobody
// else has written since the last time is not read again.
func (m *Members) put(ctx context.Context, sent time.Time) (*unstructured.Unstructured, error) {
	if u := m.lease; u != nil {
		m.write(u, m.now())
		u, err := m.store.update(ctx, u)
		if err == nil {
			return u, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	u, err := m.store.get(ctx, m.name)
	switch {
	case apierrors.IsNotFound(err):
		u = &unstructured.Unstructured{Object: map[string]any{}}
		m.write(u, m.now())
		u, err = m.store.create(ctx, u)
	case err == nil:
		if err = m.heldByAnother(u, sent); err == nil {
			m.write(u, m.now())
			u, err = m.store.update(ctx, u)
		}
	}
	if err != nil {
		return nil, err
	}
	return u, nil
}

// heldByAnother is errTaken while a process other than this one renews the Lease.
// A process that begins takes over from the one before it at once: it has the
// state file that makes it this agent.
func (m *Members) heldByAnother(u *unstructured.Unstructured, now time.Time) error {
	rec, ok := read(u)
	if !ok || rec.holder == m.process {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll.note(rec, now)
	if m.held && m.roll.seen[m.name].live(now) {
		m.confirmed = time.Time{}
		return errTaken
	}
	return nil
}

// leave gives the Lease back.
func (m *Members) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.o.Renew/4)
	defer cancel()
	u, err := m.store.get(ctx, m.name)
	if err == nil {
		if rec, ok := read(u); ok && rec.holder == m.process {
			err = m.store.remove(ctx, u)
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		m.o.Logger.Warn("cannot give the lease of this agent back: others take over when it expires", "lease", m.name, "err", err)
	}
}
