package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state/frame"
	"limpet/state/repair"
)

// TestSeal: only what the last owner sealed is opened without verification.
func TestSeal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	someFacts(s)
	if isSealed(path) {
		t.Error("sealed while in use")
	}
	Closed(t, s)
	if !isSealed(path) {
		t.Error("not sealed after a clean close")
	}
	sealed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	metas := repair.ReadHeads(bytesAt(sealed))
	end := metas[0].High * uint64(metas[0].Page)
	for name, at := range map[string]uint64{
		"first head": 20, "second head": 4096 + 40, "list of free pages": metas[0].Freelist*4096 + 10, "seal": end + 3,
	} {
		spoilt := append([]byte{}, sealed...)
		spoilt[at] ^= 4
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		if isSealed(path) {
			t.Errorf("sealed with a flipped bit in the %s", name)
		}
		s, r := reopened(t, Options{Path: path})
		facts, err := s.Facts(context.Background(), "")
		if err != nil || len(facts) != 300 || r.Lost != 0 {
			t.Errorf("flipped bit in the %s: %d facts, %v, %+v", name, len(facts), err, r)
		}
		Closed(t, s)
	}
	if isSealed(path + ".absent") {
		t.Error("an absent file is sealed")
	}
}

type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(b)) {
		return 0, errors.New("behind the end")
	}
	return copy(p, b[off:]), nil
}

// TestScrub: damage to a large file, which a clean start does not look for, is found later and mended at the next start.
func TestScrub(t *testing.T) {
	path := filepath.Join(quickDir(t), "limpet.db")
	FillHistory(t, path, inlineCheck+4<<20)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	metas := repair.ReadHeads(bytesAt(data))
	walk := repair.NewWalk(&repair.Pages{R: bytesAt(data), Size: int64(len(data)), Page: 4096, High: metas[0].High}, func(frame.Bucket, []byte, []byte) error { return nil })
	if err := walk.Run(metas[0].Root); err != nil {
		t.Fatal(err)
	}
	for id := metas[0].High / 2; ; id++ {
		if p, err := repair.ParsePage(data[id*4096 : id*4096+4096]); walk.Seen.Has(id) && err == nil && p.Id == id && p.Flags == repair.LeafPage {
			clear(data[id*4096 : id*4096+4096])
			break
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, r, err := Open(context.Background(), Options{Path: path})
		if err != nil || r.Quarantined != "" {
			t.Fatal(r, err)
		}
		if err := s.PutFact(context.Background(), "k", []byte("v")); err != nil || s.damaged.Load() {
			t.Errorf("use before the verification: %v", err)
		}
		<-time.After(scrubAfter + time.Second)
		synctest.Wait()
		if !s.damaged.Load() {
			t.Error("damage was not found")
		}
		<-s.Damaged()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s, r := reopened(t, Options{Path: path})
	if v, err := s.Fact(context.Background(), "k"); err != nil || string(v) != "v" || r.Quarantined == "" || r.Lost == 0 {
		t.Errorf("fact %q, %v, report %+v", v, err, r)
	}
}

// TestRestartStorm: many starts neither let the file grow nor leave anything beside it.
func TestRestartStorm(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	hourly(t, s, 50)
	Closed(t, s)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		s, r, err := Open(ctx, Options{Path: path})
		if err != nil || r.Unclean || r.Quarantined != "" {
			t.Fatal(r, err)
		}
		if err := errors.Join(s.PutClaim(ctx, Claim{UID: "u"}), s.DropClaim(ctx, "u"), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.Stat(path)
	if err != nil || after.Size()-before.Size() >= 1<<20 {
		t.Errorf("file grew from %d to %d bytes, %v", before.Size(), after.Size(), err)
	}
	if names := beside(t, path); len(names) > 0 {
		t.Errorf("left %v", names)
	}
	opened(t, Options{Path: path})
}
