package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"limpet/state"
)

// brittle is the state file of a process that can die, or whose disk can fill.
type brittle struct {
	*state.Store
	mu   sync.Mutex // guards the fields below
	dead bool
	fail func(op string) error
}

var errDead = errors.New("the process is gone")

func (b *brittle) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = true
}

func (b *brittle) failing(fn func(op string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fn
}

func (b *brittle) check(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return errDead
	}
	if b.fail != nil {
		return b.fail(op)
	}
	return nil
}

func (b *brittle) PutClaim(ctx context.Context, k state.Claim) error {
	return b.unless("claim", func() error { return b.Store.PutClaim(ctx, k) })
}

func (b *brittle) PutMark(ctx context.Context, uid string, mark json.RawMessage) error {
	return b.unless("mark", func() error { return b.Store.PutMark(ctx, uid, mark) })
}

func (b *brittle) DropClaim(ctx context.Context, uid string) error {
	return b.unless("drop", func() error { return b.Store.DropClaim(ctx, uid) })
}

func (b *brittle) Complete(ctx context.Context, uid string, rec state.Record) error {
	return b.unless("complete", func() error { return b.Store.Complete(ctx, uid, rec) })
}

func (b *brittle) EndClaim(ctx context.Context, uid, historic string) error {
	return b.unless("end", func() error { return b.Store.EndClaim(ctx, uid, historic) })
}

func (b *brittle) unless(op string, fn func() error) error {
	if err := b.check(op); err != nil {
		return err
	}
	return fn()
}
