package state

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"limpet/state/frame"
)

// SourceKey names the object of which artifacts were made. Kind is the singular, as gitrepository.
type SourceKey struct{ Kind, Namespace, Name string }

func (k SourceKey) String() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// firstKind is the kind whose records have none in their keys: once there was no other.
const firstKind = "gitrepository"

func (k SourceKey) record() string {
	if k.Kind == firstKind {
		return artifactPrefix + k.Namespace + "/" + k.Name
	}
	return artifactPrefix + k.String()
}

func sourceOf(record string) SourceKey {
	parts := strings.SplitN(strings.TrimPrefix(record, artifactPrefix), "/", 3)
	if len(parts) < 3 {
		parts = append([]string{firstKind}, append(parts, "")...)
	}
	return SourceKey{parts[0], parts[1], parts[2]}
}

// Artifact is a packed revision of a source, as the index has it.
type Artifact struct {
	Kind      string    `json:"kind,omitempty"` // of the source
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
	// Metadata is what its upstream says of the revision, as the annotations of an OCI manifest.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Source returns the key of the source of an artifact.
func (a Artifact) Source() SourceKey { return SourceKey{a.Kind, a.Namespace, a.Name} }

const artifactPrefix = "artifact/"

// Artifacts returns those of a source, the newest first; none is no error.
func (s *Store) Artifacts(ctx context.Context, of SourceKey) (list []Artifact, err error) {
	err = s.getJSON(ctx, of.record(), &list)
	return of.named(list), err
}

// named sets the kind of artifacts that were stored when there was one.
func (k SourceKey) named(list []Artifact) []Artifact {
	for i := range list {
		list[i].Kind = k.Kind
	}
	return list
}

// AllArtifacts returns those of all sources.
func (s *Store) AllArtifacts(ctx context.Context) (map[SourceKey][]Artifact, error) {
	facts, err := s.Facts(ctx, artifactPrefix)
	if err != nil {
		return nil, err
	}
	out := map[SourceKey][]Artifact{}
	for record, data := range facts {
		var list []Artifact
		if of := sourceOf(record); json.Unmarshal(data, &list) == nil {
			out[of] = of.named(list)
		}
	}
	return out, nil
}

// ChangeArtifacts replaces those of a source by what change returns for them, in one transaction,
// and returns that; none removes the record. change must have no other effect, as it may be called
// again.
func (s *Store) ChangeArtifacts(
	ctx context.Context, of SourceKey, change func([]Artifact) []Artifact,
) (now []Artifact, err error) {
	key := []byte(of.record())
	err = s.write(ctx, func(t *txn) error {
		var before []Artifact
		f, ok, err := t.get(frame.Facts, key)
		if err != nil {
			return err
		}
		if ok {
			_ = json.Unmarshal(f.Body, &before) // what is no list is replaced
		}
		if now = change(of.named(before)); len(now) == 0 {
			return t.remove(frame.Facts, key)
		}
		body, err := json.Marshal(now)
		if err != nil {
			return fmt.Errorf("encode %s: %w", key, err)
		}
		return t.put(frame.Facts, key, body)
	})
	return now, err
}
