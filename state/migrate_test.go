package state

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"limpet/state/frame"
)

// nextFormat is a schema after the present one, whose step moves a fact.
var nextFormat = format{version: current.version + 1, steps: map[int]func(*txn) error{
	1: current.steps[1],
	current.version: func(t *txn) error {
		f, ok, err := t.get(frame.Facts, []byte("old"))
		if err != nil || !ok {
			return err
		}
		if err := t.put(frame.Facts, []byte("new"), f.Body); err != nil {
			return err
		}
		return t.remove(frame.Facts, []byte("old"))
	},
}}

// written makes a closed file of a schema with one fact and returns its path.
func written(t *testing.T, f format, key string) string {
	t.Helper()
	path := filepath.Join(quickDir(t), "limpet.db")
	s, _, err := openAs(context.Background(), Options{Path: path}, f)
	must(t, err)
	must(t, s.PutFact(context.Background(), key, []byte("kept")))
	Closed(t, s)
	return path
}

// TestNewerSchema: a newer file is refused and stays as it is, after a clean and after an unclean
// stop, and also when its frames are of a version that this program does not know.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	for _, unclean := range []bool{false, true} {
		path := written(t, nextFormat, "k")
		if unclean {
			must(t, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
		}
		before, err := os.ReadFile(path)
		must(t, err)
		names := beside(t, path)
		_, _, err = Open(context.Background(), Options{Path: path})
		var newer *SchemaError
		if !errors.As(err, &newer) || newer.Have != nextFormat.version || newer.Want != current.version || newer.Path != path {
			t.Errorf("unclean %v: error %v", unclean, err)
		}
		if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, before) {
			t.Errorf("unclean %v: the file was changed, %v", unclean, err)
		}
		if left := beside(t, path); !slices.Equal(left, names) {
			t.Errorf("unclean %v: left %v of %v", unclean, left, names)
		}
	}
}

// TestFailedMigration: the file stays what it was.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := written(t, current, "old")
	refused := errors.New("refused")
	broken := format{version: current.version + 1, steps: map[int]func(*txn) error{
		current.version: func(t *txn) error { return errors.Join(t.put(frame.Facts, []byte("half"), nil), refused) },
	}}
	for _, f := range []format{broken, {version: current.version + 2}} {
		if _, _, err := openAs(ctx, Options{Path: path}, f); err == nil || f.steps != nil && !errors.Is(err, refused) {
			t.Errorf("error %v", err)
		}
	}
	s := opened(t, Options{Path: path})
	facts, err := s.Facts(ctx, "")
	if err != nil || len(facts) != 1 || string(facts["old"]) != "kept" {
		t.Errorf("facts %q, %v", facts, err)
	}
}

// TestDamagedOlderFile is rebuilt in its own schema and then migrated.
func TestDamagedOlderFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := written(t, current, "old")
	data, err := os.ReadFile(path)
	must(t, err)
	clear(data[:4096])
	must(t, os.WriteFile(path, data, 0o600))
	s, r, err := openAs(ctx, Options{Path: path}, nextFormat)
	must(t, err)
	if v, err := s.Fact(ctx, "new"); err != nil || string(v) != "kept" || r.Quarantined == "" || infoOf(t, s).Schema != nextFormat.version {
		t.Errorf("fact %q, %v, report %+v", v, err, r)
	}
	if info, err := os.Stat(r.Migrated); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("copy %q: %v", r.Migrated, err)
	}
	Closed(t, s)
}

// rawBody returns what stands under a key.
func rawBody(t *testing.T, s *Store, b frame.Bucket, key []byte) map[string]any {
	t.Helper()
	f, err := s.copyOf(context.Background(), b, string(key))
	must(t, err)
	var out map[string]any
	if err := json.Unmarshal(f.Body, &out); err != nil {
		t.Fatalf("%v: %s", err, f.Body)
	}
	return out
}

// TestUnknownMembersSurvive: what a newer program of the same schema wrote into claims and records
// is still there after this one has changed them, whatever it was called for.
func TestUnknownMembersSurvive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	newer := []struct {
		b         frame.Bucket
		key, body string
	}{
		{frame.Claims, "u", `{"uid":"u","namespace":"default","name":"j","token":"T","attempt":1,"phase":"intent","priority":7,"route":{"site":"east"}}`},
		{frame.History, string(recordKey(noon, "u")),
			`{"uid":"u","namespace":"default","name":"j","finished":"2026-11-20T12:00:00Z","cost":1.50,"attempts":[{"n":1,"state":"lost"},{"n":2,"state":"lost"}]}`},
	}
	err := s.write(ctx, func(t *txn) error {
		for _, w := range newer {
			if err := t.put(w.b, []byte(w.key), []byte(w.body)); err != nil {
				return err
			}
		}
		return t.putJSON(frame.UIDs, []byte("u"), []byte(newer[1].key))
	})
	must(t, err)
	steps := []struct {
		name string
		do   func() error
	}{
		{"claim again", func() error {
			return s.PutClaim(ctx, Claim{UID: "u", Namespace: "default", Name: "j", Token: "T", Attempt: 2, Phase: PhaseHeld})
		}},
		{"mark", func() error { return s.PutMark(ctx, "u", json.RawMessage(`{"done":1}`)) }},
		{"complete", func() error {
			return s.Complete(ctx, "u", Record{Namespace: "default", Name: "j", State: "success", Finished: noon.Add(1e9),
				Attempts: []Attempt{{N: 2, State: "success"}}})
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
	must(t, s.EndClaim(ctx, "u", "posted", false))
	r := rawBody(t, s, frame.History, recordKey(noon.Add(1e9), "u"))
	attempts, _ := r["attempts"].([]any)
	if r["cost"] != 1.5 || r["state"] != "success" || r["historicJob"] != "posted" || len(attempts) != 2 {
		t.Fatalf("the record is %v", r)
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
		must(t, s.PutClaim(ctx, Claim{UID: "v", Token: token}))
	}
	if err := s.write(ctx, func(t *txn) error {
		return t.put(frame.Claims, []byte("v"), []byte(`{"uid":"v","token":"A","priority":1}`))
	}); err != nil {
		t.Fatal(err)
	}
	must(t, s.PutClaim(ctx, Claim{UID: "v", Token: "B"}))
	if c := rawBody(t, s, frame.Claims, []byte("v")); c["priority"] != nil {
		t.Errorf("the claim of another token is %v", c)
	}
}
