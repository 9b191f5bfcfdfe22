package state

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"limpet/state/frame"
)

// Keys of the outbox among the facts. Queues are apart, so that a target that is down delays no other.
const (
	queuePrefix   = "outbox/queue/"   // target, "/", number in hex -> what is sent to it
	failingPrefix = "outbox/failing/" // object -> what was told about its failure
)

// Notice is what Notify writes about an object.
type Notice struct {
	Failing []byte            // replaces what is kept about the object; nil = nothing is kept
	Queue   map[string][]byte // what is appended to the queue of each target
}

// Notify writes what decide makes of what is kept about an object, nil when there is nothing, in one transaction. A
// notice that is nil writes nothing. decide must be pure and quick and may run again. A queue that gets longer than most
// loses its oldest entries; dropped counts them by target.
func (s *Store) Notify(ctx context.Context, object string, most int, decide func(kept []byte) (*Notice, error)) (dropped map[string]int, err error) {
	key := []byte(failingPrefix + object)
	err = s.write(ctx, func(t *txn) error {
		dropped = map[string]int{}
		kept, _, err := t.get(frame.Facts, key)
		if err != nil {
			return err
		}
		notice, err := decide(kept.Body)
		switch {
		case err != nil || notice == nil:
			return err
		case notice.Failing != nil:
			err = t.put(frame.Facts, key, notice.Failing)
		case kept.Body != nil:
			_, err = t.remove(frame.Facts, key)
		}
		for target, body := range notice.Queue {
			if err == nil {
				dropped[target], err = t.enqueue(target, body, most)
			}
		}
		return err
	})
	return dropped, err
}

// enqueue appends to the queue of a target and removes its oldest entries beyond most.
func (t *txn) enqueue(target string, body []byte, most int) (dropped int, err error) {
	prefix := []byte(queuePrefix + target + "/")
	var keys [][]byte
	err = t.scan(context.Background(), frame.Facts, prefix, nil, func(k []byte, _ frame.Frame) (bool, error) {
		keys = append(keys, bytes.Clone(k))
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	var last uint64
	if n := len(keys); n > 0 {
		if last, err = strconv.ParseUint(string(keys[n-1][len(prefix):]), 16, 64); err != nil {
			return 0, frame.Corrupt("key %q of an outbox", keys[n-1])
		}
	}
	for ; len(keys)-dropped >= most; dropped++ {
		if _, err := t.remove(frame.Facts, keys[dropped]); err != nil {
			return 0, err
		}
	}
	return dropped, t.put(frame.Facts, fmt.Appendf(prefix, "%016x", last+1), body)
}

// Queued is an entry of a queue.
type Queued struct {
	Key  string // for DeleteFact
	Body []byte
}

// Queue returns the entries for a target, oldest first.
func (s *Store) Queue(ctx context.Context, target string) ([]Queued, error) {
	return read(ctx, s, func(v view) (out []Queued, _ error) {
		return out, v.scan(ctx, frame.Facts, []byte(queuePrefix+target+"/"), nil, func(k []byte, f frame.Frame) (bool, error) {
			out = append(out, Queued{string(k), bytes.Clone(f.Body)})
			return true, nil
		})
	})
}

// Failing returns the objects about which something is kept.
func (s *Store) Failing(ctx context.Context) ([]string, error) {
	kept, err := s.Facts(ctx, failingPrefix)
	var out []string
	for key := range kept {
		out = append(out, strings.TrimPrefix(key, failingPrefix))
	}
	return out, err
}

// KeepQueues deletes the queues of targets that are not among those given, and everything kept about objects when none
// is; it returns how many entries were deleted by target.
func (s *Store) KeepQueues(ctx context.Context, targets map[string]bool) (deleted map[string]int, err error) {
	all, err := s.Facts(ctx, "outbox/")
	if err != nil {
		return nil, err
	}
	deleted = map[string]int{}
	var forget []string
	for key := range all {
		target, isQueue := strings.CutPrefix(key, queuePrefix)
		target, _, _ = strings.Cut(target, "/")
		switch {
		case isQueue && !targets[target]:
			deleted[target]++
			forget = append(forget, key)
		case !isQueue && len(targets) == 0:
			forget = append(forget, key)
		}
	}
	return deleted, s.ChangeFacts(ctx, nil, forget)
}
