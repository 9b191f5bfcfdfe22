package git

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"limpet/sync/git/pack"
)

// Renames are found as git finds them: first files of the same content, then a
// file whose name within its directory is unique on both sides and that is
// alike enough, then any pair, the most alike first. How alike two files are is
// the share of the larger one that is copied from the other, counted in pieces
// that end at line breaks.

const (
	similarEnough = 30000   // of 60000: git's default of 50 %
	fullScore     = 60000   // git's MAX_SCORE
	byNameScore   = 45000   // for a unique file name; git asks half-way between enough and full
	maxRenameSize = 4 << 20 // bytes of a file that is compared
	maxRenamePair = 40_000  // comparisons; git allows 1000 x 1000
)

// side is a deleted or added file on its way to be paired.
type side struct {
	change *Change
	id     pack.ID
	used   bool
	pieces []chunk
	size   int64
	failed bool
}

// renames pairs deleted with added files and moves all into the changes.
func (d *differ) renames() error {
	olds, news := sides(d.deleted, true), sides(d.added, false)
	sameContent(olds, news)
	if err := d.byName(olds, news); err != nil {
		return err
	}
	if err := d.byContent(olds, news); err != nil {
		return err
	}
	for _, s := range slices.Concat(olds, news) {
		if !s.used || s.change.Type == ChangeRenamed {
			d.out.Changes = append(d.out.Changes, *s.change)
		}
	}
	return nil
}

func sides(changes []Change, old bool) []*side {
	out := make([]*side, len(changes))
	for i := range changes {
		hex := changes[i].Hash
		if old {
			hex = changes[i].FromHash
		}
		out[i] = &side{change: &changes[i]}
		out[i].id, _ = pack.ParseID(hex)
	}
	return out
}

// pair makes one rename of two sides.
func pair(old, new *side) {
	old.used, new.used = true, true
	new.change.Type, new.change.From, new.change.FromHash = ChangeRenamed, old.change.Path, old.change.FromHash
}

// sameContent pairs equal files; of several the one of the same name, else the first.
func sameContent(olds, news []*side) {
	byID := make(map[pack.ID][]*side)
	for _, s := range olds {
		byID[s.id] = append(byID[s.id], s)
	}
	for _, n := range news {
		var best *side
		for _, o := range byID[n.id] {
			if o.used {
				continue
			}
			if basename(o.change.Path) == basename(n.change.Path) {
				best = o
				break
			}
			if best == nil {
				best = o
			}
		}
		if best != nil {
			pair(best, n)
		}
	}
}

// byName pairs files whose name is unique among the deleted and the added ones.
func (d *differ) byName(olds, news []*side) error {
	unique := func(all []*side) map[string]*side {
		m := make(map[string]*side)
		for _, s := range all {
			if s.used {
				continue
			}
			name := basename(s.change.Path)
			if _, twice := m[name]; twice {
				m[name] = nil
			} else {
				m[name] = s
			}
		}
		return m
	}
	from := unique(olds)
	for name, n := range unique(news) {
		o := from[name]
		if o == nil || n == nil {
			continue
		}
		score, err := d.similarity(o, n)
		if err != nil {
			return err
		}
		if score >= byNameScore {
			pair(o, n)
		}
		o.pieces, n.pieces = nil, nil
	}
	return nil
}

// byContent pairs what is left, if it is not too much. Only the pieces of the
// side with fewer files are held: the other one may be a whole repository.
func (d *differ) byContent(olds, news []*side) error {
	olds = slices.DeleteFunc(slices.Clone(olds), func(s *side) bool { return s.used })
	news = slices.DeleteFunc(slices.Clone(news), func(s *side) bool { return s.used })
	if len(olds)*len(news) > maxRenamePair {
		return nil
	}
	type match struct {
		old, new     *side
		rank         int64 // twice the score, and one more for the same name
		oldAt, newAt int   // of equal ranks the first ones win
	}
	var matches []match
	few, many := olds, news
	if len(olds) > len(news) {
		few, many = news, olds
	}
	for i, m := range many {
		for j, f := range few {
			t := match{old: f, new: m, oldAt: j, newAt: i}
			if len(olds) > len(news) {
				t = match{old: m, new: f, oldAt: i, newAt: j}
			}
			score, err := d.similarity(t.old, t.new)
			if err != nil {
				return err
			}
			if score < similarEnough {
				continue
			}
			if t.rank = 2 * score; basename(f.change.Path) == basename(m.change.Path) {
				t.rank++
			}
			matches = append(matches, t)
		}
		m.pieces = nil
	}
	sort.Slice(matches, func(i, j int) bool {
		a, b := matches[i], matches[j]
		return cmp.Or(cmp.Compare(b.rank, a.rank), a.newAt-b.newAt, a.oldAt-b.oldAt) < 0
	})
	for _, m := range matches {
		if !m.old.used && !m.new.used {
			pair(m.old, m.new)
		}
	}
	return nil
}

// similarity scores two files from 0 to fullScore.
func (d *differ) similarity(old, new *side) (int64, error) {
	for _, s := range []*side{old, new} {
		if err := d.measure(s); err != nil || s.failed {
			return 0, err
		}
	}
	largest, least := max(old.size, new.size), min(old.size, new.size)
	if largest*(fullScore-similarEnough) < (largest-least)*fullScore {
		return 0, nil
	}
	for _, s := range []*side{old, new} {
		if err := d.load(s); err != nil {
			return 0, err
		}
	}
	return commonBytes(old.pieces, new.pieces) * fullScore / largest, nil
}

// measure learns the size of a file, once, and whether it can be compared.
func (d *differ) measure(s *side) error {
	if s.size > 0 || s.failed {
		return nil
	}
	size, err := d.store.Size(s.id)
	if err != nil {
		return asDamage(err)
	}
	s.size, s.failed = size, size > maxRenameSize || size == 0
	return nil
}

// load cuts a file into pieces, unless they are held.
func (d *differ) load(s *side) error {
	if s.pieces != nil {
		return nil
	}
	if err := d.ctx.Err(); err != nil {
		return err
	}
	data, err := d.store.ReadKind(s.id, pack.BlobKind, maxRenameSize)
	if err != nil {
		return asDamage(err)
	}
	s.pieces = chunks(data)
	return nil
}

// chunk counts the bytes of all pieces of one hash in a file.
type chunk struct {
	hash  uint32
	bytes int64
}

// chunks splits a file after line breaks, at the latest after 64 bytes, and sums
// up equal pieces, with git's hash. The result is sorted by hash.
func chunks(data []byte) []chunk {
	const base = 107927
	text := !bytes.Contains(data[:min(len(data), 8000)], []byte{0})
	sums := make(map[uint32]int64)
	var a1, a2 uint32
	n := int64(0)
	flush := func() {
		sums[(a1+a2*0x61)%base] += n
		a1, a2, n = 0, 0, 0
	}
	for i, c := range data {
		if text && c == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			continue
		}
		old := a1
		a1 = (a1<<7 ^ a2>>25) + uint32(c)
		a2 = a2<<7 ^ old>>25
		if n++; n < 64 && c != '\n' {
			continue
		}
		flush()
	}
	if n > 0 {
		flush()
	}
	out := make([]chunk, 0, len(sums))
	for h, b := range sums {
		out = append(out, chunk{h, b})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].hash < out[j].hash })
	return out
}

// commonBytes counts the bytes of old that are in new as well.
func commonBytes(old, new []chunk) (n int64) {
	for len(old) > 0 && len(new) > 0 {
		switch {
		case old[0].hash < new[0].hash:
			old = old[1:]
		case old[0].hash > new[0].hash:
			new = new[1:]
		default:
			n += min(old[0].bytes, new[0].bytes)
			old, new = old[1:], new[1:]
		}
	}
	return n
}
