package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"limpet/state/frame"
)

// PutSnapshot keeps the last known objects of a kind for the dashboard while the API cannot be reached.
func (s *Store) PutSnapshot(ctx context.Context, kind string, data []byte) error {
	return s.write(ctx, func(t *txn) error { return t.put(frame.Snapshots, []byte(kind), data) })
}

// Snapshot returns what was kept last and when; ErrNotFound when nothing was.
func (s *Store) Snapshot(ctx context.Context, kind string) (data []byte, at time.Time, err error) {
	f, err := s.copyOf(ctx, frame.Snapshots, kind)
	return f.Body, time.UnixMilli(int64(f.Stamp)), err
}

// PutFact keeps a small local fact.
func (s *Store) PutFact(ctx context.Context, key string, data []byte) error {
	return s.ChangeFacts(ctx, map[string][]byte{key: data}, nil)
}

// Fact returns a fact, or ErrNotFound.
func (s *Store) Fact(ctx context.Context, key string) ([]byte, error) {
	f, err := s.copyOf(ctx, frame.Facts, key)
	return f.Body, err
}

// Facts returns the facts whose keys begin with prefix.
func (s *Store) Facts(ctx context.Context, prefix string) (map[string][]byte, error) {
	return read(ctx, s, func(v view) (map[string][]byte, error) {
		out := map[string][]byte{}
		return out, v.scan(ctx, frame.Facts, []byte(prefix), nil, func(k []byte, f frame.Frame) (bool, error) {
			out[string(k)] = bytes.Clone(f.Body)
			return true, nil
		})
	})
}

// DeleteFact forgets a fact; one that is not there is no error.
func (s *Store) DeleteFact(ctx context.Context, key string) error {
	return s.ChangeFacts(ctx, nil, []string{key})
}

// copyOf returns a frame with a body of its own, or ErrNotFound.
func (s *Store) copyOf(ctx context.Context, b frame.Bucket, key string) (frame.Frame, error) {
	return read(ctx, s, func(v view) (frame.Frame, error) {
		f, ok, err := v.get(b, []byte(key))
		switch {
		case err != nil:
			return frame.Frame{}, err
		case !ok:
			return frame.Frame{}, fmt.Errorf("%s %q: %w", b, key, ErrNotFound)
		}
		f.Body = append([]byte{}, f.Body...)
		return f, nil
	})
}

// ChangeFacts keeps the facts of put and forgets those of forget, all in one transaction. A fact to forget that is not
// there is no error.
func (s *Store) ChangeFacts(ctx context.Context, put map[string][]byte, forget []string) error {
	return s.write(ctx, func(t *txn) error {
		for _, key := range forget {
			if _, err := t.remove(frame.Facts, []byte(key)); err != nil {
				return err
			}
		}
		for key, data := range put {
			if err := t.put(frame.Facts, []byte(key), data); err != nil {
				return err
			}
		}
		return nil
	})
}

// Keys of the outbox among the facts. Queues are apart, so that a target that is down delays no other.
const (
	OutboxPrefix  = "outbox/"
	QueuePrefix   = OutboxPrefix + "queue/"   // target, "/", number in hex -> what is sent to it
	FailingPrefix = OutboxPrefix + "failing/" // object -> the failures that were sent
)

// Notice is what Notify writes about an object.
type Notice struct {
	Failing []byte            // replaces what is kept about the object; nil = nothing is kept
	Queue   map[string][]byte // what is appended to the queue of each target
}

// Notify writes what decide makes of what is kept about an object, nil when there is nothing, in one transaction. A
// notice that is nil writes nothing. decide must be pure and quick and may run again. A queue that gets longer than most
// loses its oldest entries; dropped counts them by target.
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
		if _, err := t.remove(frame.Facts, keys[dropped]); err != nil {
			return 0, err
		}
	}
	return dropped, t.put(frame.Facts, fmt.Appendf(prefix, "%016x", last+1), body)
}

// Artifact is a packed revision of a source, as the index has it.
type Artifact struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"` // of the object
	Revision  string    `json:"revision"`      // as in main@sha1:HASH
	Path      string    `json:"path"`          // on the server of artifacts
	Digest    string    `json:"digest"`        // of the bytes, which is also their name on disk
	TarDigest string    `json:"tarDigest,omitempty"`
	Checksum  string    `json:"checksum,omitempty"` // of the content config that it was made with
	Subject   string    `json:"subject,omitempty"`  // of the commit
	Size      int64     `json:"size"`
	Files     int       `json:"files,omitempty"`
	Updated   time.Time `json:"updated"`
	Exec      string    `json:"exec,omitempty"` // how the program that followed a switch of the sink to it has ended last
}

const artifactPrefix = "artifact/"

func artifactKey(namespace, name string) string { return artifactPrefix + namespace + "/" + name }

// Artifacts returns those of a source, the newest first; none is no error.
func (s *Store) Artifacts(ctx context.Context, namespace, name string) (list []Artifact, err error) {
	err = s.getJSON(ctx, artifactKey(namespace, name), &list)
	return list, err
}

// AllArtifacts returns those of all sources by "namespace/name".
func (s *Store) AllArtifacts(ctx context.Context) (map[string][]Artifact, error) {
	facts, err := s.Facts(ctx, artifactPrefix)
	if err != nil {
		return nil, err
	}
	out := map[string][]Artifact{}
	for key, data := range facts {
		var list []Artifact
		if json.Unmarshal(data, &list) == nil {
			out[strings.TrimPrefix(key, artifactPrefix)] = list
		}
	}
	return out, nil
}

// ChangeArtifacts replaces those of a source by what change returns for them, in one transaction, and returns that; none
// removes the record. change must have no other effect, as it may be called again.
func (s *Store) ChangeArtifacts(
	ctx context.Context, namespace, name string, change func([]Artifact) []Artifact,
) (now []Artifact, err error) {
	key := []byte(artifactKey(namespace, name))
	err = s.write(ctx, func(t *txn) error {
		var before []Artifact
		f, ok, err := t.get(frame.Facts, key)
		if err != nil {
			return err
		}
		if ok {
			_ = json.Unmarshal(f.Body, &before) // what is no list is replaced
		}
		if now = change(before); len(now) == 0 {
			_, err = t.remove(frame.Facts, key)
			return err
		}
		body, err := json.Marshal(now)
		if err != nil {
			return fmt.Errorf("encode %s: %w", key, err)
		}
		return t.put(frame.Facts, key, body)
	})
	return now, err
}
