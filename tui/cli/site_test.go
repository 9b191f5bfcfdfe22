package cli

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/state"
)

// These tests call commands in this process, on the embedded API of a state
// file of their own. What needs a process, a terminal or a real server is in
// the tests of the built binary.

// site is an empty place with a state file.
type site struct {
	dir  string
	env  map[string]string
	tree func() tree
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	return &site{dir: dir, tree: func() tree { return new(cli) }, env: map[string]string{"HOME": dir, "LIMPET_STATE": filepath.Join(dir, "limpet.db"), "LIMPET_TELEMETRY_LISTEN": ""}}
}

func (s *site) world(in string, out, errs io.Writer) World {
	return World{In: strings.NewReader(in), Out: out, Err: errs, Lookup: s.lookup}
}

func (s *site) lookup(name string) (string, bool) {
	v, ok := s.env[name]
	return v, ok
}

// call runs one command.
func (s *site) call(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = s.main(args, s.world("", &o, &e))
	return code, o.String(), e.String()
}

// main runs one command in a world of the test.
func (s *site) main(args []string, world World) int { return mainOf(args, world, s.tree) }

// parse parses the arguments of a command and runs nothing.
func (s *site) parse(args ...string) (*run, *kong.Context, error) {
	return (&run{World: s.world("", io.Discard, io.Discard), newTree: s.tree}).parsed(s.world("", io.Discard, io.Discard), args...)
}

// must fails the test unless the command ends with code.
func (s *site) must(t *testing.T, code int, args ...string) (out, errs string) {
	t.Helper()
	got, out, errs := s.call(args...)
	if got != code {
		t.Fatalf("limpet %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out, errs
}

// store lets fn work on the state file.
func (s *site) store(t *testing.T, fn func(*state.Store)) {
	t.Helper()
	store, _, err := state.Open(context.Background(), state.Options{Path: s.env["LIMPET_STATE"], Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fn(store)
	if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("state file: %v %v", err, rep.Problems)
	}
}

func (s *site) record(t *testing.T, records ...state.Record) {
	t.Helper()
	s.store(t, func(store *state.Store) {
		for _, rec := range records {
			if err := store.PutRecord(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
	})
}
