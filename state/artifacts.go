package state

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"limpet/state/frame"
)

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

// ChangeArtifacts replaces those of a source by what change returns for them, in one transaction,
// and returns that; none removes the record. change must have no other effect, as it may be called
// again.
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
