package state

import (
	"maps"
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

// TestVersions: what is added to many is kept beside them, until that is much itself.
func TestVersions(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	ctx, want := t.Context(), map[uint64]uint64{}
	for range 3 {
		for i := range uint64(3) {
			if err := s.AddVersions(ctx, "ns", "repo", "u1", map[uint64]uint64{i: uint64(len(want)), 7: i}); err != nil {
				t.Fatal(err)
			}
			want[i], want[7] = uint64(len(want)), i
		}
		many := map[uint64]uint64{}
		for i := range uint64(mostAdded) {
			many[1000+i] = i + uint64(len(want))
		}
		if err := s.AddVersions(ctx, "ns", "repo", "u1", many); err != nil {
			t.Fatal(err)
		}
		maps.Copy(want, many)
		if got, err := s.Versions(ctx, "ns", "repo", "u1"); err != nil || !maps.Equal(got, want) {
			t.Fatalf("%d versions of %d, %v", len(got), len(want), err)
		}
		if facts, err := s.Facts(ctx, versionsPrefix); err != nil || len(facts) != 1 {
			t.Errorf("%d records, %v", len(facts), err)
		}
	}
	if got, err := s.Versions(ctx, "ns", "repo", "u2"); err != nil || len(got) != 0 {
		t.Errorf("of another Repository: %d, %v", len(got), err)
	}
	want = map[uint64]uint64{1: 1}
	if err := s.PutVersions(ctx, "ns", "repo", "u1", want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Versions(ctx, "ns", "repo", "u1"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
