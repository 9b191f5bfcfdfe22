package state

import (
	"context"
	"encoding/json"
	"testing"

	"limpet/state/frame"
)

// rawBody returns what stands under a key.
func rawBody(t *testing.T, s *Store, b frame.Bucket, key []byte) map[string]any {
	t.Helper()
	f, err := s.copyOf(context.Background(), b, string(key))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(f.Body, &out); err != nil {
		t.Fatalf("%v: %s", err, f.Body)
	}
	return out
}

// TestUnknownMembersSurvive: what a newer program of the same schema wrote into claims, records and attempts is still
// there after this one has changed them, whatever it was called for.
func TestUnknownMembersSurvive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	newer := []struct {
		b         frame.Bucket
		key, body string
	}{
		{frame.Claims, "u", `{"uid":"u","namespace":"default","name":"j","token":"T","attempt":1,"phase":"intent","priority":7,"route":{"site":"east"}}`},
		{frame.History, string(recordKey(noon, "u")), `{"uid":"u","namespace":"default","name":"j","finished":"2026-11-20T12:00:00Z","cost":1.50,"attempts":[{"n":1,"state":"lost","host":{"cpu":2}},{"n":2,"state":"lost"}]}`},
	}
	err := s.write(ctx, func(t *txn) error {
		for _, w := range newer {
			if err := t.put(w.b, []byte(w.key), []byte(w.body)); err != nil {
				return err
			}
		}
		return t.putJSON(frame.UIDs, []byte("u"), []byte(newer[1].key))
	})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"claim again", func() error {
			return s.PutClaim(ctx, Claim{UID: "u", Namespace: "default", Name: "j", Token: "T", Attempt: 2, Phase: PhaseHeld})
		}},
		{"mark", func() error { return s.PutMark(ctx, "u", json.RawMessage(`{"done":1}`)) }},
		{"complete", func() error {
			return s.Complete(ctx, "u", Record{Namespace: "default", Name: "j", State: "success", Finished: noon.Add(1e9), Attempts: []Attempt{{N: 2, State: "success"}}})
		}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		c := rawBody(t, s, frame.Claims, []byte("u"))
		if route, ok := c["route"].(map[string]any); !ok || route["site"] != "east" || c["priority"] != 7.0 {
			t.Errorf("after %s the claim is %v", step.name, c)
		}
	}
	if err := s.EndClaim(ctx, "u", "posted"); err != nil {
		t.Fatal(err)
	}
	r := rawBody(t, s, frame.History, recordKey(noon.Add(1e9), "u"))
	attempts, _ := r["attempts"].([]any)
	if r["cost"] != 1.5 || r["state"] != "success" || r["historicJob"] != "posted" || len(attempts) != 2 {
		t.Fatalf("the record is %v", r)
	}
	if host, ok := attempts[0].(map[string]any)["host"].(map[string]any); !ok || host["cpu"] != 2.0 {
		t.Errorf("the first attempt is %v", attempts[0])
	}
	if second := attempts[1].(map[string]any); second["state"] != "success" {
		t.Errorf("the second attempt is %v", second)
	}
	got, err := s.History(ctx, Query{UID: "u"})
	if err != nil || len(got) != 1 || got[0].State != "success" || len(got[0].Attempts) != 2 {
		t.Errorf("read as %+v, %v", got, err)
	}

	// Another claim of the same job begins with nothing of the old one.
	for _, token := range []string{"A", "B"} {
		if err := s.PutClaim(ctx, Claim{UID: "v", Token: token}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.write(ctx, func(t *txn) error {
		return t.put(frame.Claims, []byte("v"), []byte(`{"uid":"v","token":"A","priority":1}`))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutClaim(ctx, Claim{UID: "v", Token: "B"}); err != nil {
		t.Fatal(err)
	}
	if c := rawBody(t, s, frame.Claims, []byte("v")); c["priority"] != nil {
		t.Errorf("the claim of another token is %v", c)
	}
}
