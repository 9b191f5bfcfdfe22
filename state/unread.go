package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Unread lists the files of a Repository that its last pull could not use, which stay a warning until they are read or
// gone.
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

// String is the file and the reason: "a.json: the file is empty", or with a place "a.json:1:45: not JSON".
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
		out = append(out, fmt.Sprintf("and %d more", u.More))
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

// PruneUnread removes the lists of all Repositories but those with these UIDs, and their records of drift.
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
