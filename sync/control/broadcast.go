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
	// maxQueued and maxQueuedBytes bound the queue of one watcher. A watcher that is
	// further behind gets the newest snapshot, which is smaller.
	maxQueued      = 64
	maxQueuedBytes = 1 << 20
	// writeTimeout is how long a watcher may leave sent data unread, beyond the
	// buffer of the socket, before its connection is closed.
	writeTimeout = 10 * time.Second
)

// Message is one line of the stream: first hello, then a snapshot, then deltas, or
// another snapshot when the watcher was too slow. A watcher that receives an unknown
// type polls for snapshots instead.
type Message struct {
	Type     string             `json:"type"` // hello, snapshot or delta: the field that is set
	Hello    *Hello             `json:"hello,omitempty"`
	Snapshot *snapshot.Snapshot `json:"snapshot,omitempty"`
	Delta    *snapshot.Delta    `json:"delta,omitempty"`
}

const (
	typeHello    = "hello"
	typeSnapshot = "snapshot"
	typeDelta    = "delta"
)

// encodeMessage returns nil when the message cannot be encoded, such as a snapshot
// with a NaN.
func encodeMessage(l Message) []byte {
	var b bytes.Buffer
	if json.NewEncoder(&b).Encode(l) != nil {
		return nil
	}
	return b.Bytes()
}

// broadcaster sends the snapshots of an agent to any number of watchers. Each delta
// is computed and encoded once. Without watchers it requests no snapshots. run is the
// only producer of the queues and never waits for their consumers.
type broadcaster struct {
	agent        Agent
	writeTimeout time.Duration // of one watcher
	joined       chan struct{} // capacity 1: a watcher joined

	mu       sync.Mutex // guards all below
	watchers map[*watcher]struct{}
	cancel   context.CancelFunc // stops publishAll when the last watcher leaves; nil before the first
	current  *frame             // nil until the first snapshot of publishAll
}

// frame is one snapshot and its message, encoded when the first watcher needs it.
type frame struct {
	snap    *snapshot.Snapshot
	encoded func() []byte
}

// watcher is the queue of one connection.
type watcher struct {
	ready chan struct{} // capacity 1: the queue is not empty

	// Guarded by feed.mu.
	lines  [][]byte // deltas, shared by all watchers
	bytes  int      // of lines
	behind bool     // the next message is the newest snapshot
}

func newBroadcaster(a Agent) *broadcaster {
	return &broadcaster{agent: a, writeTimeout: writeTimeout, joined: make(chan struct{}, 1), watchers: map[*watcher]struct{}{}}
}

// run publishes snapshots while there are watchers, until ctx ends.
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

// publishAll publishes snapshots until the last watcher leaves.
func (f *broadcaster) publishAll(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.cancel = cancel
	unwatched := len(f.watchers) == 0
	f.mu.Unlock()
	for seq := uint64(0); !unwatched; {
		snap, err := f.agent.Next(ctx, seq)
		if err != nil {
			return // ctx ended: an agent has no other error
		}
		seq = snap.Seq
		f.publish(ctx, snap)
	}
}

// publish queues a snapshot or its delta. A snapshot after the last watcher has left
// is dropped: the next watcher needs a fresh one.
func (f *broadcaster) publish(ctx context.Context, snap *snapshot.Snapshot) {
	now := &frame{snap: snap, encoded: sync.OnceValue(func() []byte { return encodeMessage(Message{Type: typeSnapshot, Snapshot: snap}) })}
	f.mu.Lock()
	before := f.current
	f.mu.Unlock()
	var line []byte // nil = send a full snapshot
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

// offer queues a message. A full queue is replaced by the newest snapshot.
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

// join adds a watcher. It gets a full snapshot first.
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

// take returns the next messages for a watcher, nil when there are none.
func (f *broadcaster) take(w *watcher) [][]byte {
	f.mu.Lock()
	lines, whole := w.lines, (*frame)(nil)
	if w.behind && f.current != nil {
		whole, w.behind = f.current, false
	}
	w.lines, w.bytes = nil, 0
	f.mu.Unlock()
	if whole != nil {
		lines = [][]byte{whole.encoded()} // a watcher that is behind has no queued messages
	}
	return lines
}

// watch streams messages until the client disconnects, the server stops, or sent data
// stays unread.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	own := s.broadcaster.join()
	defer s.broadcaster.leave(own)
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
		case <-own.ready:
			ok = send(s.broadcaster.take(own)...)
		}
	}
}
