package tui

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// settleFor is how long the first typed line waits for a picture of an API that
// was read: a script that asks at once shall not be told of an empty list.
const settleFor = 3 * time.Second

// runLinear is Run for who has it read out: it says what changes and answers typed
// lines until the person quits, the input ends, or ctx does.
func runLinear(ctx context.Context, src Source, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	in := readTyped(o.In)
	defer in.stop()
	interrupts, giveBack := o.interrupts()
	defer giveBack()
	s := NewState(src.Name(), capsOf(o), time.Now())
	s.ReadOnly, s.SetUp = o.ReadOnly, o.SetUp
	r := &lineRun{ctx: ctx, src: src, out: o.text(), l: newLinear(s), done: make(chan func(linear) (linear, reply)), began: time.Now()}
	pictures, hurry := make(chan seen), make(chan struct{}, 1)
	r.beside, r.hurry = &beside, hurry
	beside.Go(func() { look(ctx, src, pictures, hurry) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ended := false // the input
	for !r.quit {
		var lines <-chan string
		if r.ready() && r.busy == 0 && !ended {
			lines = in.next()
		}
		var said []string
		select {
		case <-ctx.Done():
			r.quit = true
		case p := <-pictures:
			if p.err != nil {
				r.l, said = r.l.lose(p.err.Error(), time.Now())
				r.lost = true
			} else {
				r.l, said = r.l.show(p.snap, src.Name(), src.Note(), time.Now())
				r.quit = r.l.s.Ended()
			}
		case <-tick.C:
			r.l, said = r.l.tick(time.Now())
		case <-interrupts:
			r.follow(r.l.interrupt())
		case take := <-r.done:
			r.busy--
			r.follow(take(r.l))
		case line, more := <-lines:
			in.took()
			if more {
				r.follow(r.l.enter(line))
			} else {
				ended = true
				r.quit = !r.l.s.leaving // who chose to finish first has left the input
			}
		}
		r.say(said)
	}
	cancel()
	if r.err == nil && !r.setUp {
		o.spill.keep(func() { farewell(r.out, r.l.s) })
	}
	if r.setUp && r.err == nil {
		return ErrSetUp
	}
	return r.err
}

// lettersMost is how much of a line is said: a message of Git may be a page, and who
// hears it cannot skip it.
const lettersMost = 1000

// heard is a line without what is too much of it.
func heard(line string) string {
	r := []rune(line)
	if len(r) <= lettersMost {
		return line
	}
	return fmt.Sprintf("%s, and %s letters more", string(r[:lettersMost]), text.Thousands(len(r)-lettersMost))
}

// lineRun is the shell around a linear.
type lineRun struct {
	ctx    context.Context // of runLinear
	src    Source
	out    io.Writer
	l      linear
	beside *sync.WaitGroup
	hurry  chan<- struct{}
	done   chan func(linear) (linear, reply)
	busy   int // lookups and requests on the way: the next line waits for them
	began  time.Time
	lost   bool // the source has not answered once
	quit   bool
	setUp  bool
	err    error
}

// ready says that there is something that a line can be answered from.
func (r *lineRun) ready() bool {
	snap := r.l.s.Snap
	return r.lost || snap.API.Synced || !snap.AsOf.IsZero() || time.Since(r.began) >= settleFor
}

func (r *lineRun) say(lines []string) {
	for _, line := range lines {
		if _, err := fmt.Fprintln(r.out, heard(line)); err != nil && r.err == nil {
			r.err, r.quit = fmt.Errorf("dashboard: %w", err), true
		}
	}
}

// follow says an answer and does what it leads to.
func (r *lineRun) follow(l linear, re reply) {
	r.l = l
	r.say(re.lines)
	switch {
	case re.SetUp:
		r.quit, r.setUp = true, true
	case re.Quit:
		r.quit = true
	}
	if re.Refresh {
		select {
		case r.hurry <- struct{}{}:
		default: // it is asked at once already
		}
	}
	if re.look != nil {
		r.start(func() func(linear) (linear, reply) {
			ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
			defer cancel()
			take := re.look(ctx, r.src)
			return func(l linear) (linear, reply) { return l.found(take) }
		})
	}
	if len(re.Actions) > 0 {
		r.start(func() func(linear) (linear, reply) {
			err := sendAll(r.ctx, r.src, re.Actions)
			return func(l linear) (linear, reply) {
				l, said := l.acted(err)
				return l, reply{lines: said}
			}
		})
	}
}

// start runs something beside the lines.
func (r *lineRun) start(work func() func(linear) (linear, reply)) {
	r.busy++
	r.beside.Go(func() {
		take := work()
		select {
		case r.done <- take:
		case <-r.ctx.Done():
		}
	})
}

// seen is a picture, or why there is none.
type seen struct {
	snap *snapshot.Snapshot
	err  error
}

// look asks for pictures until ctx ends, no faster than they are told. While the
// source does not answer the pauses grow; hurry ends one.
func look(ctx context.Context, src Source, to chan<- seen, hurry <-chan struct{}) {
	retry := retryMin
	for {
		snap, err := src.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := remoteGap
		if err != nil {
			wait, retry = retry, min(retry*2, retryMax)
		} else {
			retry = retryMin
		}
		select {
		case to <- seen{snap, err}:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-hurry:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
