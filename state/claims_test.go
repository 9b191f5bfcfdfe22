package state

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestClaimsLifeCycle(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	c := Claim{
		UID: "u1", Namespace: "default", Name: "repo-sync", Repository: "repo", Action: "pull", ResourceVersion: "17",
		Token: "t", Attempt: 2, Phase: PhaseIntent, Created: at, Status: json.RawMessage(`{"state":"working"}`),
	}
	if err := s.PutClaim(ctx, c); err != nil {
		t.Fatal(err)
	}
	c.Phase, c.Claimed = PhaseHeld, at.Add(time.Second)
	if err := s.PutClaim(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := s.PutMark(ctx, "u1", json.RawMessage(`{"done":200}`)); err != nil {
		t.Fatal(err)
	}
	c.Mark = json.RawMessage(`{"done":200}`)
	got, err := s.Claim(ctx, "u1")
	if err != nil || asJSON(got) != asJSON(c) {
		t.Errorf("claim %s, %v; want %s", asJSON(got), err, asJSON(c))
	}
	r := Record{Name: "repo-sync", State: "success", Finished: at.Add(time.Minute), Attempts: []Attempt{{N: 2, State: "success"}}}
	if err := s.Complete(ctx, "u1", r); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Claim(ctx, "u1"); err != nil || got.Phase != PhaseCompleting {
		t.Errorf("after Complete: claim %+v, %v", got, err)
	}
	if err := s.EndClaim(ctx, "u1", "posted"); err != nil {
		t.Fatal(err)
	}
	if err := s.EndClaim(ctx, "u1", ""); err != nil {
		t.Errorf("second EndClaim: %v", err)
	}
	records, err := s.History(ctx, Query{UID: "u1"})
	if err != nil || len(records) != 1 || records[0].HistoricJob != "posted" {
		t.Errorf("history %+v, %v", records, err)
	}
	if claims, err := s.Claims(ctx); err != nil || len(claims) != 0 {
		t.Errorf("claims %+v, %v", claims, err)
	}
}

func TestClaimsThatAreGone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	cases := []struct {
		name string
		do   func() error
		want error
	}{
		{"read", func() error { _, err := s.Claim(ctx, "u"); return err }, ErrNotFound},
		{"mark", func() error { return s.PutMark(ctx, "u", json.RawMessage(`1`)) }, ErrNotFound},
		{"complete", func() error { return s.Complete(ctx, "u", Record{State: "success"}) }, ErrNotFound},
		{"drop", func() error { return s.DropClaim(ctx, "u") }, nil},
		{"end", func() error { return s.EndClaim(ctx, "u", "skipped") }, nil},
	}
	for _, c := range cases {
		if err := c.do(); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	if n, err := s.HistoryCount(ctx); n != 0 || err != nil {
		t.Errorf("a refused Complete left %d records, %v", n, err)
	}
}

func TestClaimsAreOrderedAndNeedUID(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	if err := s.PutClaim(ctx, Claim{Name: "x"}); err == nil {
		t.Error("a claim without uid was taken")
	}
	for _, uid := range []string{"b", "c", "a"} {
		if err := s.PutClaim(ctx, Claim{UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	claims, err := s.Claims(ctx)
	var uids []string
	for _, c := range claims {
		uids = append(uids, c.UID)
	}
	if err != nil || !slices.Equal(uids, []string{"a", "b", "c"}) {
		t.Errorf("claims %v, %v", uids, err)
	}
}
