package state

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"limpet/state/repair"
	"limpet/sync/testenv/powercut"
)

// image is the file after one transaction, with what was in it.
type image struct {
	data []byte
	want contents
}

// images returns the file after each of n transactions.
func images(t *testing.T, n int) (out []image) {
	t.Helper()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	rng := rand.New(rand.NewPCG(11, 12))
	m := newModel(150)
	for range n {
		if err := m.step(s, rng); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, image{data, m.contents()})
	}
	return out
}

// torn is what a power cut between two images can leave.
func torn(rng *rand.Rand, before, after image) image {
	data, whole := powercut.Tear(rng, before.data, after.data)
	if whole {
		return after
	}
	return image{data, before.want}
}

// cuts are the power cuts that go through a whole Open; verifiedCuts are only verified, which takes a millisecond.
const (
	cuts         = 30
	verifiedCuts = 600
)

// TestPowerCut: after a power cut at any moment the file opens unaided, with all that was acknowledged and nothing set
// aside.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := images(t, 200)
	path := filepath.Join(quickDir(t), "limpet.db")
	rng := rand.New(rand.NewPCG(13, 14))
	for n := range verifiedCuts {
		i := rng.IntN(len(all) - 1)
		img := torn(rng, all[i], all[i+1])
		if err := os.WriteFile(path, img.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := repair.Inspect(ctx, path, current.version); err != nil {
			t.Fatalf("cut %d between writes %d and %d: %v", n, i, i+1, err)
		}
		if n >= cuts {
			continue
		}
		if err := os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		s, r := reopened(t, Options{Path: path})
		got, err := everything(ctx, s)
		if err != nil || r.Quarantined != "" || !r.Unclean || !maps.Equal(got, img.want) {
			t.Errorf("cut %d between writes %d and %d: report %+v, %v, %s", n, i, i+1, r, err, differ(got, img.want))
		}
		Closed(t, s)
	}
}

// differ names the first keys that are not the same.
func differ(got, want contents) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			out = append(out, k)
		}
	}
	return fmt.Sprintf("%d and %d records, %q", len(got), len(want), out[:min(len(out), 3)])
}
