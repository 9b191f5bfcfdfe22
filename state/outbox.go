package state

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"limpet/state/frame"
)

// Notice is what Notify writes about an object.
type Notice struct {
	Failing []byte            // replaces what is kept about the object; nil = nothing is kept
	Queue   map[string][]byte // what is appended to the queue of each target
}

// Notify writes what decide makes of what is kept about an object, nil when there is nothing, in
// one transaction. A notice that is nil writes nothing. decide must be pure and quick and may run
// again. A queue that gets longer than most loses its oldest entries; dropped counts them by
// target.
func (s *Store) Notify(
	ctx context.Context, object string, most int, decide func(kept []byte) (*Notice, error),
) (dropped map[string]int, err error) {
	key := []byte(FailingPrefix + object)
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
			err = t.remove(frame.Facts, key)
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
	prefix := []byte(QueuePrefix + target + "/")
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
		if err := t.remove(frame.Facts, keys[dropped]); err != nil {
			return 0, err
		}
	}
	return dropped, t.put(frame.Facts, fmt.Appendf(prefix, "%016x", last+1), body)
}

// ended is what HistoryQueue has of a record: an event about the job.
type ended struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Topic     string    `json:"topic"` // the UID: names of jobs are used again
	Time      time.Time `json:"time"`
}

// enqueueRecord adds a record to HistoryQueue, in the order of the history. Like the end of a claim
// it is not refused for the size of the file.
func (t *txn) enqueueRecord(r Record) error {
	t.ending = true
	defer func() { t.ending = false }()
	key := queuedRecord(recordKey(r.Finished, r.UID))
	return t.putJSON(frame.Facts, key, ended{"Job", r.Namespace, r.Name, r.UID, r.UID, r.Finished})
}

func queuedRecord(key []byte) []byte {
	return fmt.Appendf(nil, "%s%s/%x", QueuePrefix, HistoryQueue, key)
}

// Keys of the outbox among the facts. Queues are apart, so that a target that is down delays no
// other.
const (
	OutboxPrefix  = "outbox/"
	QueuePrefix   = OutboxPrefix + "queue/"   // target, "/", number in hex -> what is sent to it
	FailingPrefix = OutboxPrefix + "failing/" // object -> the failures that were sent
	HistoryQueue  = "loki"                    // the target that gets the records of the history
)
