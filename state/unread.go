package state

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
)

// Unread lists the files of a Repository that its last pull could not use, which stay a warning
// until they are read or gone.
type Unread struct {
	UID     string       `json:"uid"` // another Repository of that name has none of it
	Ref     string       `json:"ref"` // the commit that was pulled
	Files   []UnreadFile `json:"files,omitempty"`
	More    int          `json:"more,omitempty"`    // files beyond MaxUnread
	LeftOut string       `json:"leftOut,omitempty"` // which entries of the tree no pull uses
}

// UnreadFile is one file of an Unread.
type UnreadFile struct {
	Path   string `json:"path"`
	Hash   string `json:"hash,omitempty"` // blob
	Reason string `json:"reason"`
}

// String is the file and the reason: "a.json: the file is empty", or with a place "a.json:1:45: not
// JSON".
func (f UnreadFile) String() string {
	if placed.MatchString(f.Reason) {
		return f.Path + ":" + f.Reason
	}
	return f.Path + ": " + f.Reason
}

var placed = regexp.MustCompile(`^\d+:\d+: `)

// MaxUnread bounds the files of an Unread.
const MaxUnread = 500

// Count is the number of files; of nil it is 0.
func (u *Unread) Count() int {
	if u == nil {
		return 0
	}
	return len(u.Files) + u.More
}

// Empty reports whether there is nothing to warn of.
func (u *Unread) Empty() bool { return u.Count() == 0 && (u == nil || u.LeftOut == "") }

// First returns the list with at most n files; the others are counted.
func (u *Unread) First(n int) *Unread {
	if len(u.Files) <= n {
		return u
	}
	first := *u
	first.Files, first.More = u.Files[:n], u.Count()-n
	return &first
}

// Lines lists at most n files, one a line.
func (u *Unread) Lines(n int) (out []string) {
	if u.Empty() {
		return nil
	}
	u = u.First(n)
	for _, f := range u.Files {
		out = append(out, f.String())
	}
	if u.More > 0 {
		out = append(out, fmt.Sprintf("first %d of %d", len(u.Files), u.Count()))
	}
	if u.LeftOut != "" {
		out = append(out, u.LeftOut)
	}
	return out
}

const unreadPrefix = "unread/"

// PutUnread replaces the list of a Repository.
func (s *Store) PutUnread(ctx context.Context, namespace, repository string, u *Unread) error {
	key := unreadPrefix + namespace + "/" + repository
	if u.Empty() {
		if _, err := s.Fact(ctx, key); errors.Is(err, ErrNotFound) {
			return nil // without a write, as for most pulls
		}
		return s.DeleteFact(ctx, key)
	}
	return s.putJSON(ctx, key, u)
}

// Unread returns the list of a Repository, which is empty when there is none.
func (s *Store) Unread(ctx context.Context, namespace, repository, uid string) (*Unread, error) {
	u := new(Unread)
	err := s.getJSON(ctx, unreadPrefix+namespace+"/"+repository, u)
	if err == nil && u.UID != uid {
		u = new(Unread)
	}
	return u, err
}

// PruneUnread removes the lists of all Repositories but those with these UIDs, and their records of
// drift.
func (s *Store) PruneUnread(ctx context.Context, uids map[string]bool) error {
	lists := map[string][]byte{}
	for _, prefix := range []string{unreadPrefix, driftPrefix, versionsPrefix} {
		some, err := s.Facts(ctx, prefix)
		if err != nil {
			return err
		}
		maps.Copy(lists, some)
	}
	maps.DeleteFunc(lists, func(_ string, data []byte) bool {
		var u Unread
		return json.Unmarshal(data, &u) == nil && uids[u.UID]
	})
	if len(lists) == 0 {
		return nil
	}
	return s.ChangeFacts(ctx, nil, slices.Collect(maps.Keys(lists)))
}

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

// The versions of AddVersions have a record of their own, with mostAdded at most: a write of all
// takes the longer the more there are.
const (
	addedVersions = "/added" // follows the key of all
	mostAdded     = 1000
)

// PutVersions keeps which versions of its objects a Repository has written, or found equal to their
// files: hashes of the versions by hashes of the names.
func (s *Store) PutVersions(ctx context.Context, namespace, repository, uid string, of map[uint64]uint64) error {
	key := versionsPrefix + namespace + "/" + repository
	data, err := encodeVersions(uid, of)
	if err != nil {
		return err
	}
	return s.ChangeFacts(ctx, map[string][]byte{key: data}, []string{key + addedVersions})
}

// AddVersions adds some to those that PutVersions has kept.
func (s *Store) AddVersions(ctx context.Context, namespace, repository, uid string, of map[uint64]uint64) error {
	key, added := versionsPrefix+namespace+"/"+repository, map[uint64]uint64{}
	err := s.readVersions(ctx, key+addedVersions, uid, added)
	if err != nil {
		return err
	}
	if maps.Copy(added, of); len(added) > mostAdded {
		all, err := s.Versions(ctx, namespace, repository, uid)
		if err != nil {
			return err
		}
		maps.Copy(all, of)
		return s.PutVersions(ctx, namespace, repository, uid, all)
	}
	data, err := encodeVersions(uid, added)
	if err != nil {
		return err
	}
	return s.PutFact(ctx, key+addedVersions, data)
}

// Versions returns what PutVersions and AddVersions have kept; it is never nil.
func (s *Store) Versions(ctx context.Context, namespace, repository, uid string) (map[uint64]uint64, error) {
	key, of := versionsPrefix+namespace+"/"+repository, map[uint64]uint64{}
	err := s.readVersions(ctx, key, uid, of)
	if err == nil {
		err = s.readVersions(ctx, key+addedVersions, uid, of)
	}
	return of, err
}

func encodeVersions(uid string, of map[uint64]uint64) ([]byte, error) {
	v := versions{UID: uid, Sums: make([]byte, 0, 16*len(of))}
	for name, version := range of {
		v.Sums = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(v.Sums, name), version)
	}
	return json.Marshal(v)
}

// readVersions adds the versions of a record.
func (s *Store) readVersions(ctx context.Context, key, uid string, to map[uint64]uint64) error {
	var v versions
	err := s.getJSON(ctx, key, &v)
	for b := v.Sums; v.UID == uid && len(b) >= 16; b = b[16:] {
		to[binary.BigEndian.Uint64(b)] = binary.BigEndian.Uint64(b[8:])
	}
	return err
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
