package state

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Drift is the last comparison of a Repository with what its server has.
type Drift struct {
	UID   string      `json:"uid"` // of the Repository
	Ref   string      `json:"ref"` // the commit that was compared
	At    time.Time   `json:"at"`  // zero = never compared
	Count int         `json:"count"`
	Items []DriftItem `json:"items,omitempty"` // the first MaxDrift

	Correction string `json:"correction,omitempty"` // of these items by a full pull: "queued", "failed" or "undone" by another writer
}

// DriftItem is one object that differs.
type DriftItem struct {
	State   string `json:"state"`
	Path    string `json:"path"`
	Version string `json:"version,omitempty"` // resourceVersion
}

// MaxDrift bounds the items of a Drift.
const MaxDrift = 500

const (
	driftPrefix    = "drift/"
	versionsPrefix = "versions/"
)

// PutDrift replaces the last comparison of a Repository; one without a time removes it.
func (s *Store) PutDrift(ctx context.Context, namespace, repository string, d *Drift) error {
	key := driftPrefix + namespace + "/" + repository
	if d.At.IsZero() {
		return s.DeleteFact(ctx, key)
	}
	return s.putJSON(ctx, key, d)
}

// Drift returns the last comparison of a Repository, which is zero when there was none.
func (s *Store) Drift(ctx context.Context, namespace, repository, uid string) (*Drift, error) {
	d := new(Drift)
	err := s.getJSON(ctx, driftPrefix+namespace+"/"+repository, d)
	if err == nil && d.UID != uid {
		d = new(Drift)
	}
	return d, err
}

// versions is the record of PutVersions: 16 bytes an object.
type versions struct {
	UID  string `json:"uid"`
	Sums []byte `json:"sums"`
}

// PutVersions keeps which versions of its objects a Repository has written, or found equal to their files: hashes of the
// versions by hashes of the names.
func (s *Store) PutVersions(ctx context.Context, namespace, repository, uid string, of map[uint64]uint64) error {
	v := versions{UID: uid, Sums: make([]byte, 0, 16*len(of))}
	for name, version := range of {
		v.Sums = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(v.Sums, name), version)
	}
	return s.putJSON(ctx, versionsPrefix+namespace+"/"+repository, v)
}

// Versions returns what PutVersions has kept; it is never nil.
func (s *Store) Versions(ctx context.Context, namespace, repository, uid string) (map[uint64]uint64, error) {
	var v versions
	of, err := map[uint64]uint64{}, s.getJSON(ctx, versionsPrefix+namespace+"/"+repository, &v)
	for b := v.Sums; v.UID == uid && len(b) >= 16; b = b[16:] {
		of[binary.BigEndian.Uint64(b)] = binary.BigEndian.Uint64(b[8:])
	}
	return of, err
}

func (s *Store) putJSON(ctx context.Context, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return s.PutFact(ctx, key, data)
}

// getJSON reads a fact. One that is not there, or is no JSON, leaves out as it is.
func (s *Store) getJSON(ctx context.Context, key string, out any) error {
	data, err := s.Fact(ctx, key)
	if errors.Is(err, ErrNotFound) || err == nil && json.Unmarshal(data, out) != nil {
		return nil
	}
	return err
}
