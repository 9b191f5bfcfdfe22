package state

import (
	"reflect"
	"testing"
)

func TestUnread(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	ctx := t.Context()
	want := &Unread{UID: "u1", Ref: "c1", Files: []UnreadFile{{Path: "a.json", Hash: "h", Reason: "no end"}}, More: 2, LeftOut: "1 link"}
	read := func(uid string, want *Unread) {
		t.Helper()
		if got, err := s.Unread(ctx, "ns", "repo", uid); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
	read("u1", new(Unread))
	if err := s.PutUnread(ctx, "ns", "repo", want); err != nil || want.Count() != 3 {
		t.Fatal(err)
	}
	read("u1", want)
	read("u2", new(Unread))
	if err := s.PruneUnread(ctx, map[string]bool{"u1": true}); err != nil {
		t.Fatal(err)
	}
	read("u1", want)
	if err := s.PruneUnread(ctx, map[string]bool{"u2": true}); err != nil {
		t.Fatal(err)
	}
	read("u1", new(Unread))
	for _, u := range []*Unread{want, {}, {}} {
		if err := s.PutUnread(ctx, "ns", "repo", u); err != nil {
			t.Fatal(err)
		}
	}
	if lists, err := s.Facts(ctx, unreadPrefix); err != nil || len(lists) != 0 {
		t.Errorf("%q %v", lists, err)
	}
}
