package state

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestReadingAllIsNotHoldingAll: after a look at every record the file is not in the memory of the process.
func TestReadingAllIsNotHoldingAll(t *testing.T) {
	s := opened(t, Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	const objects, size = 8 * 1024, 4 << 10 // 32 MiB
	ctx := context.Background()
	var g sync.WaitGroup
	for w := range 64 {
		g.Go(func() {
			for i := w; i < objects; i += 64 {
				key := ObjectKey{Resource: "g/things", Name: fmt.Sprintf("%06d", i)}
				_, err := s.Mutate(ctx, key, func(*Object, uint64) (Mutation, error) {
					return Mutation{Data: bytes.Repeat([]byte{byte(i)}, size)}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	most := 0
	before := mappedPages(t)
	for after, n := "", 0; ; {
		page, err := s.Objects(ctx, ObjectQuery{Resource: "g/things", After: after, Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, mappedPages(t)-before)
		for _, o := range page.Items {
			if want := bytes.Repeat([]byte{byte(n)}, size); !bytes.Equal(o.Data, want) {
				t.Fatalf("object %d is wrong", n)
			}
			n++
		}
		if after = page.Next; after == "" {
			if n != objects {
				t.Errorf("%d objects, want %d", n, objects)
			}
			break
		}
	}
	t.Logf("%.1f MiB mapped at most", float64(most)/1024)
	if limit := 12 << 10; most > limit {
		t.Errorf("%d KiB of the file in memory, want %d at most", most, limit)
	}
}

// mappedPages is RssFile in KiB.
func mappedPages(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
