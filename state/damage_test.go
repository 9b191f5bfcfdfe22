package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"limpet/state/repair"
)

// contents is everything a store holds, by bucket and key, as text.
type contents map[string]string

// everything reads a whole store through its public methods.
func everything(ctx context.Context, s *Store) (contents, error) {
	out := contents{}
	claims, err := s.Claims(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		out["claim "+c.UID] = asJSON(c)
	}
	records, err := s.History(ctx, Query{})
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		out["record "+r.UID] = asJSON(r)
	}
	facts, err := s.Facts(ctx, "")
	if err != nil {
		return nil, err
	}
	for k, v := range facts {
		out["fact "+k] = string(v)
	}
	for _, resource := range []string{"g/repositories", "g/jobs", "g/dashboards"} {
		page, err := s.Objects(ctx, ObjectQuery{Resource: resource})
		if err != nil {
			return nil, err
		}
		for _, o := range page.Items {
			out["object "+o.Key.String()] = fmt.Sprintf("%d %s", o.Revision, o.Data)
		}
	}
	names, err := s.SecretNames(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		plain, err := s.Secret(ctx, n)
		if err != nil {
			return nil, err
		}
		out["secret "+n] = string(plain)
	}
	return out, nil
}

func asJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// sample does n random operations on a store and returns what is in it and every value that any key
// ever had.
func (m *model) sample(t testing.TB, s *Store, rng *rand.Rand, n int) (now contents, ever map[string][]string) {
	t.Helper()
	ctx := context.Background()
	ever = map[string][]string{}
	for i := range n {
		must(t, m.step(s, rng))
		if i%5 == 0 {
			must(t, s.PutSecret(ctx, fmt.Sprint("secret", rng.IntN(n)), fmt.Append(nil, i)))
		}
		all, err := everything(ctx, s)
		must(t, err)
		for k, v := range all {
			if !slices.Contains(ever[k], v) {
				ever[k] = append(ever[k], v)
			}
		}
		now = all
	}
	return now, ever
}

// damages are ways in which media spoil files. Each changes the bytes, possibly their number.
var damages = map[string]func(rng *rand.Rand, data, older []byte) []byte{
	"bit flip": func(rng *rand.Rand, data, _ []byte) []byte {
		data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
		return data
	},
	"many bit flips": func(rng *rand.Rand, data, _ []byte) []byte {
		for range 40 {
			data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
		}
		return data
	},
	"head flip": func(rng *rand.Rand, data, _ []byte) []byte {
		data[rng.IntN(2)*4096+rng.IntN(repair.PageHeader+repair.MetaLen)] ^= 1 << rng.IntN(8)
		return data
	},
	"page header flip": func(rng *rand.Rand, data, _ []byte) []byte {
		page := rng.IntN(len(data) / 4096)
		data[page*4096+rng.IntN(48)] ^= 1 << rng.IntN(8)
		return data
	},
	"zeroed page": func(rng *rand.Rand, data, _ []byte) []byte {
		clear(data[rng.IntN(len(data)/4096)*4096:][:4096])
		return data
	},
	"zeroed sector": func(rng *rand.Rand, data, _ []byte) []byte {
		clear(data[rng.IntN(len(data)/512)*512:][:512])
		return data
	},
	"zeroed head": func(rng *rand.Rand, data, _ []byte) []byte {
		clear(data[:4096*(1+rng.IntN(2))])
		return data
	},
	"truncation": func(rng *rand.Rand, data, _ []byte) []byte { return data[:rng.IntN(len(data))] },
	"empty":      func(*rand.Rand, []byte, []byte) []byte { return nil },
	"garbage": func(rng *rand.Rand, data, _ []byte) []byte {
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		return data
	},
	"garbage tail": func(rng *rand.Rand, data, _ []byte) []byte {
		for i := rng.IntN(len(data)); i < len(data); i++ {
			data[i] = byte(rng.Uint32())
		}
		return data
	},
	"stale page": func(rng *rand.Rand, data, older []byte) []byte {
		page := rng.IntN(min(len(data), len(older)) / 4096)
		copy(data[page*4096:][:4096], older[page*4096:])
		return data
	},
	"stale head": func(rng *rand.Rand, data, older []byte) []byte {
		page := rng.IntN(2) * 4096
		copy(data[page:page+4096], older[page:])
		return data
	},
	"lost root": func(_ *rand.Rand, data, _ []byte) []byte {
		clear(data[repair.ReadHeads(bytes.NewReader(data))[0].Root*4096:][:4096])
		return data
	},
	"entry flip": func(rng *rand.Rand, data, _ []byte) []byte {
		page := 2 + rng.IntN(len(data)/4096-2)
		data[page*4096+repair.PageHeader+rng.IntN(2*repair.PageElement)] ^= 1 << rng.IntN(8)
		return data
	},
	"swapped pages": func(rng *rand.Rand, data, _ []byte) []byte {
		a, b := rng.IntN(len(data)/4096)*4096, rng.IntN(len(data)/4096)*4096
		page := slices.Clone(data[a : a+4096])
		copy(data[a:a+4096], data[b:b+4096])
		copy(data[b:b+4096], page)
		return data
	},
}

// TestDamage opens files that were damaged in every way. A store must come up, hold no value that
// was never written, keep all of them when nothing was set aside, and say so when something is
// missing.
func TestDamage(t *testing.T) {
	path := filepath.Join(quickDir(t), "limpet.db")
	s, _, err := Open(context.Background(), Options{Path: path})
	must(t, err)
	first := seeded(t)
	rng := rand.New(rand.NewPCG(first, 2))
	m := newModel(120)
	_, before := m.sample(t, s, rng, 150)
	older, err := os.ReadFile(path)
	must(t, err)
	want, ever := m.sample(t, s, rng, 250)
	for k, values := range before { // a page of before may come back
		ever[k] = append(ever[k], values...)
	}
	unclean, err := os.ReadFile(path)
	must(t, err)
	Closed(t, s)
	clean, err := os.ReadFile(path)
	must(t, err)
	key, err := os.ReadFile(path + ".key")
	must(t, err)
	// Each kind gets so many cases, once after a clean and once after an unclean stop.
	cases := times(4, 160)
	t.Logf("fault: %d damaged files of %d kinds opened twice", (len(damages)-1)*cases*2+2, len(damages))
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(cases) {
				if name == "empty" && seed > 0 {
					break
				}
				for _, stop := range []string{"clean", "unclean"} {
					data := slices.Clone(clean)
					if stop == "unclean" {
						data = slices.Clone(unclean)
					}
					end := inUse(t, data)
					spoilt := damages[name](rand.New(rand.NewPCG(first+seed, 7)), data[:end:end], older)
					if len(spoilt) == end {
						spoilt = append(spoilt, data[end:]...)
					}
					c := damagedCase{want: want, ever: ever, key: key, data: spoilt, unclean: stop == "unclean"}
					if err := c.run(quickDir(t)); err != nil {
						t.Errorf("%s, case %d of seed %d: %v", stop, seed, first, err)
					}
				}
			}
		})
	}
}

// inUse returns the length of a file up to the end of its last used page: damage behind it would go
// unnoticed.
func inUse(t *testing.T, data []byte) int {
	t.Helper()
	metas := repair.ReadHeads(bytes.NewReader(data))
	if len(metas) != 2 {
		t.Fatal("sample file has no two sound heads")
	}
	return int(metas[0].High) * metas[0].Page
}

type damagedCase struct {
	want    contents
	ever    map[string][]string
	key     []byte
	data    []byte
	unclean bool
}

func (c damagedCase) run(dir string) error {
	ctx := context.Background()
	path := filepath.Join(dir, "limpet.db")
	err := errors.Join(os.WriteFile(path, c.data, 0o600), os.WriteFile(path+".key", c.key, 0o600))
	if c.unclean {
		err = errors.Join(err, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
	}
	if err != nil {
		return err
	}
	for _, round := range []string{"first", "second"} {
		s, r, err := Open(ctx, Options{Path: path})
		if err != nil {
			return fmt.Errorf("%s open: %w", round, err)
		}
		if round == "second" && (r.Quarantined != "" || r.Unclean) {
			return fmt.Errorf("second open set the file aside again: %+v", r)
		}
		got, err := everything(ctx, s)
		if err == nil {
			err = c.compare(got, r, round)
		}
		if err == nil && round == "first" {
			err = s.PutFact(ctx, "after", []byte("works"))
			c.want, c.ever = maps.Clone(got), maps.Clone(c.ever)
			c.want["fact after"] = "works"
			c.ever["fact after"] = []string{"works"}
		}
		var check CheckReport
		if err == nil {
			check, err = s.Check(ctx)
		}
		if err == nil && len(check.Problems) > 0 {
			err = errors.New(check.Problems[0])
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return fmt.Errorf("%s open, report %+v: %w", round, r, err)
		}
	}
	return nil
}

// compare holds what came up against what was written.
func (c damagedCase) compare(got contents, r Report, round string) error {
	missing, old := 0, 0
	for k, v := range c.want {
		if _, ok := got[k]; !ok {
			missing++
		} else if got[k] != v {
			old++
		}
	}
	for k, v := range got {
		if !slices.Contains(c.ever[k], v) {
			return fmt.Errorf("%s has a value that was never written: %.80s", k, v)
		}
		if _, ok := c.want[k]; !ok {
			old++
		}
	}
	silent := r.Quarantined == "" && !(r.Created && len(c.data) == 0)
	switch {
	case missing+old > 0 && silent:
		return fmt.Errorf("%d missing, %d old and nothing said", missing, old)
	case missing+old > 0 && r.Lost == 0 && r.Quarantined != "":
		return fmt.Errorf("%d missing, %d old and Lost = 0", missing, old)
	}
	return nil
}

// TestNewestRootInTheWrongPlace swaps the newest head with the root that it names. What is left
// looks whole: one head, and the tree of the transaction before. Only the misplaced root shows that
// records are missing.
func TestNewestRootInTheWrongPlace(t *testing.T) {
	path := filepath.Join(quickDir(t), "limpet.db")
	s, _, err := Open(context.Background(), Options{Path: path})
	must(t, err)
	newModel(60).sample(t, s, rand.New(rand.NewPCG(3, 4)), 60)
	must(t, s.PutFact(context.Background(), "last", []byte("of all")))
	want, err := everything(context.Background(), s)
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	Closed(t, s)
	key, err := os.ReadFile(path + ".key")
	must(t, err)
	heads := repair.ReadHeads(bytes.NewReader(data))
	if len(heads) != 2 {
		t.Fatalf("%d sound heads", len(heads))
	}
	head, root := int(heads[0].Txid%2)*4096, int(heads[0].Root)*4096
	spoilt := slices.Clone(data)
	copy(spoilt[head:][:4096], data[root:])
	copy(spoilt[root:][:4096], data[head:])
	ever := map[string][]string{}
	for k, v := range want {
		ever[k] = []string{v}
	}
	c := damagedCase{want: want, ever: ever, key: key, data: spoilt, unclean: true}
	if err := c.run(quickDir(t)); err != nil {
		t.Error(err)
	}
}

// TestSeparatorIsTheFirstKey: a key in a branch that is lower than the first key of its page leads
// every reader right, but the next write would put the page in twice. It is found before anything
// is written.
func TestSeparatorIsTheFirstKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	for i := range 400 {
		must(t, s.PutFact(context.Background(), fmt.Sprintf("fact-%04d", 2*i+1), make([]byte, 200)))
	}
	Closed(t, s)
	data, err := os.ReadFile(path)
	must(t, err)
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
	must(t, os.WriteFile(path, data, 0o600))
	s, r := reopened(t, Options{Path: path})
	if facts, err := s.Facts(context.Background(), ""); err != nil || len(facts) != 400 || r.Quarantined == "" {
		t.Errorf("%d facts, %v, report %+v", len(facts), err, r)
	}
}
