package control

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"limpet/sync/snapshot"
)

const (
	// maxQueued and mostBytes bound what waits for one watcher. One that is behind
	// by more gets the newest picture instead, which is less and more to the point.
	maxQueued      = 64
	maxQueuedBytes = 1 << 20
	// writeTimeout is how long a watcher may leave what was sent unread, beyond
	// what the socket holds, before its connection is closed.
	writeTimeout = 10 * time.Second
)

// Message is one line of the stream of pictures: first hello, then snapshot, then
// delta after delta, or another snapshot where the watcher was too slow. A
// watcher that meets another type asks for a picture instead.
type Message struct {
	Type     string             `json:"type"` // hello, snapshot, delta: the one member that it has besides
	Hello    *Hello             `json:"hello,omitempty"`
	Snapshot *snapshot.Snapshot `json:"snapshot,omitempty"`
	Delta    *snapshot.Delta    `json:"delta,omitempty"`
}

const (
	typeHello    = "hello"
	typeSnapshot = "snapshot"
	typeDelta    = "delta"
)

// encodeMessage returns nil for what is no JSON, such as a picture with a number that
// is none.
func encodeMessage(l Message) []byte {
	var b bytes.Buffer
	if json.NewEncoder(&b).Encode(l) != nil {
		return nil
	}
	return b.Bytes()
}

// broadcaster turns the pictures of an agent into lines for any number of watchers. A
// change is told and encoded once for all of them. It asks for pictures while
// somebody watches. Its run is the one owner of the queues: it puts lines into
// them and never waits for who takes them out.
type broadcaster struct {
	agent        Agent
	writeTimeout time.Duration // with a watcher that does not read
	joined       chan struct{} // capacity 1: "somebody watches"

	mu       sync.Mutex // guards what is below
	watchers map[*watcher]struct{}
	cancel   context.CancelFunc // ends the wait for a picture when nobody watches; nil = nobody does
	current  *frame             // nil until there is a picture of the present watch
}

// frame is one picture and, made when the first watcher needs it, its line.
type frame struct {
	snap    *snapshot.Snapshot
	encoded func() []byte
}

// watcher is the queue of one connection.
type watcher struct {
	ready chan struct{} // capacity 1: "there is something to take"

	// Guarded by feed.mu.
	lines  [][]byte // deltas, shared by all watchers
	bytes  int      // of lines
	behind bool     // takes the newest picture next, and no line before it
}

func newBroadcaster(a Agent) *broadcaster {
	return &broadcaster{agent: a, writeTimeout: writeTimeout, joined: make(chan struct{}, 1), watchers: map[*watcher]struct{}{}}
}

// run follows the pictures while there are watchers, until ctx ends.
func (f *broadcaster) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.joined:
		}
		f.publishAll(ctx)
	}
}

// publishAll follows the pictures until nobody watches any more.
func (f *broadcaster) publishAll(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.cancel = cancel
	nobody := len(f.watchers) == 0
	f.mu.Unlock()
	for seq := uint64(0); !nobody; {
		snap, err := f.agent.Next(ctx, seq)
		if err != nil {
			return // it is over: an agent has no other error
		}
		seq = snap.Seq
		f.publish(ctx, snap)
	}
}

// publish puts a picture, or what has changed, into the queues. What comes after
// the last watcher has gone is dropped: the next one wants a fresh one.
func (f *broadcaster) publish(ctx context.Context, snap *snapshot.Snapshot) {
	now := &frame{snap: snap, encoded: sync.OnceValue(func() []byte { return encodeMessage(Message{Type: typeSnapshot, Snapshot: snap}) })}
	f.mu.Lock()
	before := f.current
	f.mu.Unlock()
	var line []byte // nil = only a whole picture tells it
	if before != nil {
		if d := snapshot.Diff(before.snap, snap); d != nil {
			line = encodeMessage(Message{Type: typeDelta, Delta: d})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	f.current = now
	for w := range f.watchers {
		w.offer(line)
	}
}

// offer puts a line into the queue, if there is room.
func (w *watcher) offer(line []byte) {
	switch {
	case w.behind:
	case line == nil, len(w.lines) == maxQueued, w.bytes+len(line) > maxQueuedBytes:
		w.lines, w.bytes, w.behind = nil, 0, true
	default:
		w.lines, w.bytes = append(w.lines, line), w.bytes+len(line)
	}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// join adds a watcher, which gets a whole picture first.
func (f *broadcaster) join() *watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &watcher{ready: make(chan struct{}, 1), behind: true}
	f.watchers[w] = struct{}{}
	if f.current != nil {
		w.ready <- struct{}{}
	}
	select {
	case f.joined <- struct{}{}:
	default:
	}
	return w
}

func (f *broadcaster) leave(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
	if len(f.watchers) == 0 && f.cancel != nil {
		f.cancel()
		f.current = nil
	}
}

// take returns what is to be sent next, nothing when there is nothing yet.
func (f *broadcaster) take(w *watcher) [][]byte {
	f.mu.Lock()
	lines, whole := w.lines, (*frame)(nil)
	if w.behind && f.current != nil {
		whole, w.behind = f.current, false
	}
	w.lines, w.bytes = nil, 0
	f.mu.Unlock()
	if whole != nil {
		lines = [][]byte{whole.encoded()} // one that is behind has no lines
	}
	return lines
}

// watch answers with a stream of lines until the client goes, the server ends, or
// what was sent stays unread.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	mine := s.broadcaster.join()
	defer s.broadcaster.leave(mine)
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	send := func(lines ...[]byte) bool {
		for _, line := range lines {
			if out.SetWriteDeadline(time.Now().Add(s.broadcaster.writeTimeout)) != nil {
				return false
			}
			if _, err := w.Write(line); err != nil {
				return false
			}
		}
		return out.Flush() == nil
	}
	for ok := send(encodeMessage(Message{Type: typeHello, Hello: &s.Hello})); ok; {
		select {
		case <-r.Context().Done():
			return
		case <-mine.ready:
			ok = send(s.broadcaster.take(mine)...)
		}
	}
}
