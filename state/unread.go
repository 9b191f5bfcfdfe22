package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// MaxUnread bounds the files of an Unread.
const MaxUnread = 500

// Count is the number of files.
func (u Unread) Count() int { return len(u.Files) + u.More }

// Empty reports whether there is nothing to warn of.
func (u Unread) Empty() bool { return u.Count() == 0 && u.LeftOut == "" }

const unreadPrefix = "unread/"

func unreadKey(namespace, repository string) string { return unreadPrefix + namespace + "/" + repository }

// PutUnread replaces the list of a Repository.
func (s *Store) PutUnread(ctx context.Context, namespace, repository string, u Unread) error {
	key := unreadKey(namespace, repository)
	if u.Empty() {
		if _, err := s.Fact(ctx, key); errors.Is(err, ErrNotFound) {
			return nil // without a write, as for most pulls
		}
		return s.DeleteFact(ctx, key)
	}
	data, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("encode unread files: %w", err)
	}
	return s.PutFact(ctx, key, data)
}

// Unread returns the list of a Repository, which is empty when there is none.
func (s *Store) Unread(ctx context.Context, namespace, repository, uid string) (u Unread, err error) {
	data, err := s.Fact(ctx, unreadKey(namespace, repository))
	if errors.Is(err, ErrNotFound) || err == nil && (json.Unmarshal(data, &u) != nil || u.UID != uid) {
		return Unread{}, nil
	}
	return u, err
}

// PruneUnread removes the lists of all Repositories but those with these UIDs.
func (s *Store) PruneUnread(ctx context.Context, uids map[string]bool) error {
	lists, err := s.Facts(ctx, unreadPrefix)
	if err != nil {
		return err
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
