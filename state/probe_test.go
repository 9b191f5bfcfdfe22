package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"limpet/state/frame"
	"limpet/state/repair"
)

// stop leaves the file of a store as a killed process does and returns its path.
func stop(t *testing.T, fill func(s *Store)) string {
	t.Helper()
	from := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: from})
	fill(s)
	path := filepath.Join(quickDir(t), "limpet.db")
	for _, suffix := range []string{"", ".owner"} {
		data, err := os.ReadFile(from + suffix)
		if err == nil {
			err = os.WriteFile(path+suffix, data, 0o600)
		}
		must(t, err)
	}
	return path
}

func someFacts(s *Store) {
	for i := range 300 {
		if err := s.PutFact(context.Background(), fmt.Sprintf("%03d", i), []byte(strings.Repeat("fact", 100))); err != nil {
			panic(err)
		}
	}
}

func TestProbeInChild(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sound := stop(t, someFacts)
	if err := repair.Check(ctx, sound, current.version); err != nil {
		t.Errorf("sound file: %v", err)
	}
	if err := repair.Check(ctx, sound, current.version-1); !errors.As(err, new(*SchemaError)) {
		t.Errorf("newer file: %v", err)
	}
	if err := repair.Check(ctx, sound+".absent", current.version); err == nil || errors.Is(err, ErrCorrupt) ||
		errors.Is(err, repair.ErrNoChild) {
		t.Errorf("absent file: %v", err)
	}
	must(t, os.WriteFile(sound, []byte("garbage"), 0o600))
	if err := repair.Check(ctx, sound, current.version); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged file: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := repair.Check(ended, sound, current.version); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("ended context: %v", err)
	}
}

// TestProbeVerdicts: what the probe says decides what becomes of the file.
func TestProbeVerdicts(t *testing.T) {
	t.Parallel()
	other := errors.New("no verdict")
	cases := []struct {
		name        string
		verdict     error
		want        error
		quarantined bool
	}{
		{"sound", nil, nil, false},
		{"damaged", frame.Corrupt("page 3"), nil, true},
		{"no child process", repair.ErrNoChild, nil, false},
		{"newer", &SchemaError{Have: 9, Want: 1}, nil, false},
		{"foreign", ErrForeign, ErrForeign, false},
		{"no verdict", other, other, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := stop(t, someFacts)
			s, r, err := Open(context.Background(), Options{Path: path, probe: func(context.Context, string) error { return c.verdict }})
			if c.want != nil && !errors.Is(err, c.want) || c.name == "newer" && !errors.As(err, new(*SchemaError)) {
				t.Errorf("error %v", err)
			}
			if (r.Quarantined != "") != c.quarantined || !r.Unclean {
				t.Errorf("report %+v", r)
			}
			if err != nil {
				if note, err := os.ReadFile(path + ".owner"); err != nil || len(note) == 0 {
					t.Errorf("the mark of the unclean stop is gone, %v", err)
				}
				return
			}
			defer Closed(t, s)
			facts, err := s.Facts(context.Background(), "")
			if err != nil || len(facts) != 300 {
				t.Errorf("%d facts, %v", len(facts), err)
			}
			if c.quarantined && (r.Lost != 0 || r.Carried != 300) {
				t.Errorf("a sound file lost records: %+v", r)
			}
		})
	}
}

// TestProbeByOpen: a program whose main does not call RunProbe must not start children of children.
func TestProbeByOpen(t *testing.T) {
	t.Parallel()
	path := stop(t, someFacts)
	cmd := child("late", "")
	cmd.Env = append(cmd.Env, repair.ProbePathEnv+"="+path, repair.ProbeWantEnv+"="+strconv.Itoa(current.version))
	out, err := cmd.Output()
	if err != nil || string(out) != repair.ProbeGreeting+`{"verdict":"sound"}`+"\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestRebuildThatFails leaves the damaged file where it was.
func TestRebuildThatFails(t *testing.T) {
	t.Parallel()
	path := stop(t, someFacts)
	must(t, os.Mkdir(path+suffixBuilding, 0o700))
	must(t, os.WriteFile(filepath.Join(path+suffixBuilding, "x"), nil, 0o600))
	before, err := os.ReadFile(path)
	must(t, err)
	damaged := func(context.Context, string) error { return frame.Corrupt("page 3") }
	if _, _, err := Open(context.Background(), Options{Path: path, probe: damaged}); err == nil {
		t.Error("opened")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed, %v", err)
	}
}

// TestLostBranch: when the page above the leaves is gone, the leaves are found.
func TestLostBranch(t *testing.T) {
	t.Parallel()
	path := stop(t, func(s *Store) {
		err := s.write(context.Background(), func(t *txn) error {
			for i := range 3000 {
				r := Record{UID: fmt.Sprintf("uid-%04d", i), Message: strings.Repeat("m", 300), Finished: noon}
				if err := t.putRecord(r, false); err != nil {
					return err
				}
			}
			return nil
		})
		must(t, err)
	})
	data, err := os.ReadFile(path)
	must(t, err)
	hit := 0
	for at := 2 * 4096; at < len(data); at += 4096 {
		if p, err := repair.ParsePage(data[at : at+4096]); err == nil && p.Flags == repair.BranchPage && p.Id == uint64(at/4096) {
			clear(data[at : at+4096])
			hit++
		}
	}
	must(t, os.WriteFile(path, data, 0o600))
	s, r := reopened(t, Options{Path: path})
	n, err := s.HistoryCount(context.Background())
	if hit == 0 || err != nil || n != 3000 || r.Quarantined == "" || r.Lost != 0 {
		t.Errorf("%d branches destroyed, %d records, %v, report %+v", hit, n, err, r)
	}
	if got, err := s.History(context.Background(), Query{UID: "uid-1234"}); err != nil || len(got) != 1 {
		t.Errorf("record by uid: %d, %v", len(got), err)
	}
}
