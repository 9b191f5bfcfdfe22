package state

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"limpet/state/frame"

	"go.etcd.io/bbolt"
)

// Fixtures are state files as they were written by the program of their time, with everything in
// them that a file can hold. They lie in testdata/bolt, compressed, each with the key of its
// secrets beside it. A change of what is written gets a new fixture; those that are there never
// change.
//
//	schema-1        without the bytes of each bucket in the meta record
//	schema-1-bytes  with them
//	schema-2        with a large object, which is compressed

var update = flag.Bool("update", false, "write the fixture of the present layout anew")

// latestFixture is the one that the present program writes.
const latestFixture = "schema-2"

var fixtures = []string{"schema-1", "schema-1-bytes", latestFixture}

func fixturePath(name string) string { return filepath.Join("..", "testdata", "bolt", name) }

// unpacked returns a copy of a fixture that a test may open.
func unpacked(t testing.TB, name string) string {
	t.Helper()
	packed, err := os.Open(fixturePath(name + ".db.gz"))
	must(t, err)
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	must(t, err)
	data, err := io.ReadAll(r)
	must(t, err)
	path := filepath.Join(quickDir(t), "limpet.db")
	key, err := os.ReadFile(fixturePath(name + ".key"))
	must(t, err)
	for file, text := range map[string][]byte{path: data, path + ".key": key} {
		must(t, os.WriteFile(file, text, 0o600))
	}
	return path
}

// fixtureClaims are one in each phase; the one that completes has its record already.
var fixtureClaims = []Claim{
	{UID: "uid-intent", Namespace: "default", Name: "boards-sync-x1", Repository: "boards", Action: "pull", ResourceVersion: "41",
		Token:   "TOKEN-A",
		Attempt: 1, Phase: PhaseIntent, Created: noon},
	{UID: "uid-held", Namespace: "default", Name: "lab-sync-x2", Repository: "lab", Action: "pull", ResourceVersion: "42", Token: "TOKEN-B",
		Attempt: 2, Phase: PhaseHeld, Created: noon, Claimed: noon.Add(time.Second),
		Mark:   json.RawMessage(`{"mark":{"ref":"a1b2c3d","done":200},"account":{"done":200}}`),
		Status: json.RawMessage(`{"state":"working","message":"replicating changes"}`)},
	{UID: "uid-completing", Namespace: "edge", Name: "lab-push-x3", Repository: "lab", Action: "push", ResourceVersion: "43", Token: "TOKEN-C",
		Attempt: 1, Phase: PhaseHeld, Created: noon, Claimed: noon.Add(2 * time.Second)},
}

// largeBoard is an object that is stored compressed.
var largeBoard = `{"spec":{"title":"large","text":"` + strings.Repeat("all work and no play ", 500) + `"}}`

// fixtureRecords are jobs that ended in each way, one of them at the second attempt.
func fixtureRecords() []Record {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	return []Record{
		{UID: "uid-success", Namespace: "default", Name: "boards-sync-a", Repository: "boards", Action: "pull", State: "success",
			Message: "completed successfully",
			Agent:   "edge-07", Started: at(1), Finished: at(2), HistoricJob: "posted", RefFrom: strings.Repeat("a", 40),
			RefTo:  strings.Repeat("b", 40),
			Labels: map[string]string{"provisioning.grafana.app/repository": "boards", "team": "ops"},
			Spec:   json.RawMessage(`{"action":"pull","pull":{"incremental":true},"repository":"boards"}`),
			Status: json.RawMessage(`{"state":"success","summary":[{"group":"dashboard.grafana.app","kind":"Dashboard","create":2,"write":2}]}`),
			Attempts: []Attempt{{N: 1, Agent: "edge-06", State: "lost", Message: "lease lost", Started: at(0), Finished: at(1)},
				{N: 2, Agent: "edge-07", State: "success", Started: at(1), Finished: at(2)}}},
		{UID: "uid-error", Namespace: "default", Name: "lab-sync-b", Repository: "lab", Action: "pull", State: "error",
			Message: "401 bad credentials",
			Agent:   "edge-07", Started: at(3), Finished: at(4), HistoricJob: "unavailable",
			Status:   json.RawMessage(`{"state":"error","errors":["401 bad credentials"]}`),
			Attempts: []Attempt{{N: 1, Agent: "edge-07", State: "error", Message: "401 bad credentials", Started: at(3), Finished: at(4)}}},
		{UID: "uid-warning", Namespace: "edge", Name: "lab-push-c", Repository: "lab", Action: "push", State: "warning", Agent: "edge-07",
			Started: at(5), Finished: at(6)},
		{UID: "uid-cancelled", Namespace: "edge", Name: "lab-move-d", Repository: "lab", Action: "move", State: "cancelled", Agent: "edge-07",
			Started: at(7), Finished: at(8), HistoricJob: "skipped"},
	}
}

// fillFixture writes what a fixture holds.
func fillFixture(ctx context.Context, s *Store) error {
	var errs []error
	do := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, c := range fixtureClaims {
		do(s.PutClaim(ctx, c))
	}
	for _, r := range fixtureRecords() {
		do(s.PutRecord(ctx, r))
	}
	do(s.Complete(ctx, "uid-completing", Record{Namespace: "edge", Name: "lab-push-x3", Repository: "lab", Action: "push", State: "success",
		Started: noon.Add(9 * time.Minute), Finished: noon.Add(10 * time.Minute), Attempts: []Attempt{{N: 1, State: "success"}}}))
	for _, key := range []ObjectKey{{"g/repositories", "default", "boards"}, {"g/jobs", "default", "boards-sync-x1"}} {
		_, err := s.Mutate(ctx, key, func(*Object, uint64) (Mutation, error) {
			return Mutation{Data: []byte(`{"spec":{"title":"` + key.Name + `"}}`),
				Secrets: []SecretWrite{{Name: key.Name + "/token", Plain: []byte("secret of " + key.Name)}}}, nil
		})
		do(err)
	}
	_, err := s.Mutate(ctx, ObjectKey{"g/dashboards", "default", "large"}, put(largeBoard))
	do(err)
	do(s.PutFact(ctx, "agent", []byte("edge-07")))
	do(s.PutSnapshot(ctx, "jobs", []byte(`[{"name":"boards-sync-x1"}]`)))
	if len(errs) > 0 {
		return fmt.Errorf("fill the fixture: %w", errs[0])
	}
	return nil
}

// makeFixture writes the fixture of the present layout: always the same, because clock and chance
// stand still.
func makeFixture(t *testing.T) (path string) {
	cryptotest.SetGlobalRandom(t, 1)
	path = filepath.Join(t.TempDir(), "limpet.db")
	synctest.Test(t, func(t *testing.T) {
		s, _, err := Open(context.Background(), Options{Path: path})
		must(t, err)
		if err := fillFixture(context.Background(), s); err != nil {
			t.Error(err)
		}
		Closed(t, s)
	})
	return path
}

// frames returns every key and frame of a file as it stands there. Which page it stands on is left
// to chance by bbolt.
func frames(t *testing.T, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	must(t, err)
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(b []byte, bk *bbolt.Bucket) error {
			return bk.ForEach(func(k, v []byte) error {
				out[string(b)+" "+string(k)] = string(v)
				return nil
			})
		})
	})
	must(t, err)
	return out
}

// TestFixtureIsWhatIsWritten: the program writes today what the latest fixture holds, byte for
// byte. A difference means that the layout has changed: give the new one a name, and keep the
// fixture of the old.
func TestFixtureIsWhatIsWritten(t *testing.T) {
	path := makeFixture(t)
	if *update {
		pack(t, path)
	}
	want, have := frames(t, unpacked(t, latestFixture)), frames(t, path)
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if have[k] != want[k] {
			t.Errorf("%q is written as\n%q, in the fixture it is\n%q", k, have[k], want[k])
		}
	}
	if len(have) != len(want) {
		t.Errorf("%d records are written, %d are in the fixture", len(have), len(want))
	}
}

// pack makes a file the latest fixture.
func pack(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	key, err := os.ReadFile(path + ".key")
	must(t, err)
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	must(t, err)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	for name, text := range map[string][]byte{".db.gz": packed.Bytes(), ".key": key} {
		must(t, os.WriteFile(fixturePath(latestFixture+name), text, 0o644))
	}
}

// fixtureContents is what a fixture holds, as everything reads it.
func fixtureContents(name string) contents {
	out := contents{
		"fact agent":                           "edge-07",
		"object g/repositories default/boards": `946684800000001 {"spec":{"title":"boards"}}`,
		"object g/jobs default/boards-sync-x1": `946684800000002 {"spec":{"title":"boards-sync-x1"}}`,
		"secret boards/token":                  "secret of boards",
		"secret boards-sync-x1/token":          "secret of boards-sync-x1",
	}
	if name == latestFixture {
		out["object g/dashboards default/large"] = "946684800000003 " + largeBoard
	}
	for _, c := range fixtureClaims {
		if c.UID == "uid-completing" {
			c.Phase = PhaseCompleting
		}
		out["claim "+c.UID] = asJSON(c)
	}
	done := Record{UID: "uid-completing", Namespace: "edge", Name: "lab-push-x3", Repository: "lab", Action: "push", State: "success",
		Started: noon.Add(9 * time.Minute), Finished: noon.Add(10 * time.Minute), Attempts: []Attempt{{N: 1, State: "success"}}}
	for _, r := range append(fixtureRecords(), done) {
		out["record "+r.UID] = asJSON(r)
	}
	return out
}

// TestFixtures: a file of every layout there ever was is read, written and counted by this program.
func TestFixtures(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := unpacked(t, name)
			s, r := reopened(t, Options{Path: path})
			if r.Unclean || r.Quarantined != "" || r.Created {
				t.Errorf("report %+v", r)
			}
			got, err := everything(ctx, s)
			if err != nil || !maps.Equal(got, fixtureContents(name)) {
				t.Errorf("read %v, %v\nwant %v", got, err, fixtureContents(name))
			}
			data, at, err := s.Snapshot(ctx, "jobs")
			if err != nil || string(data) != `[{"name":"boards-sync-x1"}]` || at.Year() != 2000 {
				t.Errorf("snapshot %s of %s, %v", data, at, err)
			}
			info, err := s.Info(ctx)
			if err != nil || info.History != 5 || info.HistoryBytes != 2186 || info.Claims != 3 || info.Secrets != 2 {
				t.Errorf("info %+v, %v", info, err)
			}
			// The finish of what it has begun.
			for _, c := range fixtureClaims {
				if err := s.EndClaim(ctx, c.UID, "posted", false); err != nil {
					t.Error(err)
				}
			}
			if n, err := s.TrimHistoryBytes(ctx, 1000); err != nil || n == 0 {
				t.Errorf("trimmed %d, %v", n, err)
			}
			Closed(t, s)
			s, r = reopened(t, Options{Path: path})
			if left, err := s.Claims(ctx); err != nil || len(left) != 0 || r.Quarantined != "" {
				t.Errorf("claims left %v, %v, report %+v", left, err, r)
			}
		})
	}
}

// TestBytesAreCountedInPlace: where an older file cannot be compacted, as on a disk that is nearly
// full.
func TestBytesAreCountedInPlace(t *testing.T) {
	t.Parallel()
	path := unpacked(t, "schema-1")
	must(t, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
	probe := func(context.Context, string) error {
		return os.MkdirAll(filepath.Join(path+suffixCompacting, "occupied"), 0o700)
	}
	s, r := reopened(t, Options{Path: path, probe: probe})
	if info, err := s.Info(t.Context()); err != nil || info.HistoryBytes != 2186 || r.Compacted || r.Quarantined != "" {
		t.Errorf("info %+v, %v, report %+v", info, err, r)
	}
	if got, err := everything(t.Context(), s); err != nil || !maps.Equal(got, fixtureContents("schema-1")) {
		t.Errorf("read %v, %v", got, err)
	}
	if found, err := s.Check(t.Context()); err != nil || len(found.Problems) > 0 {
		t.Errorf("check: %v, %v", found.Problems, err)
	}
}

// TestFixturesAreMigrated: a program of the next schema raises each of them, keeps a copy of what
// it was, and this program refuses the result and still reads the copy.
func TestFixturesAreMigrated(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := unpacked(t, name)
			s, r, err := openAs(ctx, Options{Path: path}, nextFormat)
			must(t, err)
			got, err := everything(ctx, s)
			if err != nil || !maps.Equal(got, fixtureContents(name)) || r.Migrated == "" {
				t.Errorf("read %v, %v; report %+v", got, err, r)
			}
			Closed(t, s)
			var newer *SchemaError
			if _, _, err := Open(ctx, Options{Path: path}); !errors.As(err, &newer) || newer.Have != current.version+1 {
				t.Errorf("the raised file: %v", err)
			}
			// The key of the secrets goes with the copy.
			key, err := os.ReadFile(path + ".key")
			must(t, err)
			must(t, os.WriteFile(r.Migrated+".key", key, 0o600))
			old, _ := reopened(t, Options{Path: r.Migrated})
			if got, err := everything(ctx, old); err != nil || !maps.Equal(got, fixtureContents(name)) {
				t.Errorf("the copy reads %v, %v", got, err)
			}
		})
	}
}

// TestWrongBytesAreFound by the check and by the verification at the start.
func TestWrongBytesAreFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	s, _, err := Open(ctx, Options{Path: path})
	must(t, err)
	hourly(t, s, 5)
	err = s.write(ctx, func(t *txn) error {
		have := t.m.Counters[frame.History]
		have.Bytes++
		t.m.Counters[frame.History] = have
		t.puts++
		return nil
	})
	must(t, err)
	r, err := s.Check(ctx)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "bytes of") {
		t.Errorf("check: %v, %v", r.Problems, err)
	}
	must(t, s.Close())
	s, report := reopened(t, Options{Path: path})
	if n, err := s.HistoryCount(ctx); n != 5 || err != nil || report.Quarantined == "" {
		t.Errorf("%d records, %v, report %+v", n, err, report)
	}
}
