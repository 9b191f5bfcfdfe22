package state

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"limpet/state/repair"
)

// TestSeparatorIsTheFirstKey: a key in a branch that is lower than the first key
// of its page leads every reader right, but the next write would put the page in
// twice. It is found before anything is written.
func TestSeparatorIsTheFirstKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	for i := range 400 {
		if err := s.PutFact(context.Background(), fmt.Sprintf("fact-%04d", 2*i+1), make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
	}
	Closed(t, s)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lowered := 0
	for page := 2 * 4096; page+4096 <= len(data); page += 4096 {
		flags, count := binary.LittleEndian.Uint16(data[page+8:]), int(binary.LittleEndian.Uint16(data[page+10:]))
		if flags != repair.BranchPage || count < 2 {
			continue
		}
		for i := 1; i < count; i++ { // the first one has nothing before it
			element := page + repair.PageHeader + i*repair.PageElement
			key := element + int(binary.LittleEndian.Uint32(data[element:]))
			last := key + int(binary.LittleEndian.Uint32(data[element+4:])) - 1
			data[last]-- // odd numbers only: no fact has this key
			lowered++
		}
	}
	if lowered == 0 {
		t.Fatal("the file has no branch")
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, r := reopened(t, Options{Path: path})
	if facts, err := s.Facts(context.Background(), ""); err != nil || len(facts) != 400 || r.Quarantined == "" {
		t.Errorf("%d facts, %v, report %+v", len(facts), err, r)
	}
}
