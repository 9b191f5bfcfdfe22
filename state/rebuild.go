package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/atomicfile"
	"limpet/state/frame"
	"limpet/state/repair"
)

// Suffixes of the files beside the state file.
const (
	suffixBuilding   = ".building"   // a rebuilt file in the making; worthless
	suffixRebuilt    = ".rebuilt"    // a rebuilt file, whole and durable, on its way to its place
	suffixCompacting = ".compacting" // a compacted file in the making; worthless
	suffixCorrupt    = ".corrupt-"   // + time: a damaged file
	suffixSchemaCopy = ".schema-"    // + schema and time: a copy from before a migration
	timeForm         = "20060102T150405.000Z"

	// maxCorruptFiles is how many damaged files are kept, so that a dying disk does not fill itself
	// with them.
	maxCorruptFiles = 5

	// staleAfter is the age from which a temporary file is one that a power cut has left.
	staleAfter = time.Hour
)

// finishInterrupted ends what a crash interrupted: a rebuilt file takes its place, files in the
// making go.
func (op *opening) finishInterrupted() error {
	// What package atomicfile, for a key or a backup, has left beside the state file goes too.
	entries, _ := os.ReadDir(filepath.Dir(op.path))
	for _, e := range entries {
		if !e.Type().IsRegular() || !atomicfile.IsTemporary(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = os.Remove(filepath.Join(filepath.Dir(op.path), e.Name()))
		}
	}
	for _, suffix := range []string{suffixBuilding, suffixCompacting} {
		if err := os.Remove(op.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return frame.Classify(fmt.Errorf("remove unfinished file: %w", err))
		}
	}
	_, err := os.Stat(op.path + suffixRebuilt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(op.path); errors.Is(err, fs.ErrNotExist) {
		return replaceFile(op.path+suffixRebuilt, op.path)
	}
	return frame.Classify(os.Remove(op.path + suffixRebuilt))
}

// rebuild sets the damaged file aside and puts a new one with its readable records in its place.
// The new file is whole and durable before the old one is moved, and a crash between the two
// renames is mended by finishInterrupted.
func (op *opening) rebuild(why error) error {
	op.log.Warn("state file is damaged; building a new one from its readable records", "path", op.path, "err", why)
	sum, carried, err := op.salvageInto(op.path + suffixBuilding)
	if err != nil {
		_ = os.Remove(op.path + suffixBuilding)
		return fmt.Errorf("rebuild state %s (%w): %w", op.path, why, err)
	}
	name := op.path + suffixCorrupt + now().UTC().Format(timeForm)
	for _, move := range [][2]string{
		{op.path + suffixBuilding, op.path + suffixRebuilt},
		{op.path, name},
		{op.path + suffixRebuilt, op.path},
	} {
		if err := replaceFile(move[0], move[1]); err != nil {
			return fmt.Errorf("rebuild state %s: %w", op.path, err)
		}
	}
	op.report.Quarantined = name
	op.report.Carried = carried
	op.report.Lost = sum.Lost
	op.report.Damage = strings.TrimPrefix(why.Error(), ErrCorrupt.Error()+": ")
	names, err := filepath.Glob(globQuote(op.path) + suffixCorrupt + "*")
	if err != nil || len(names) <= maxCorruptFiles {
		return nil
	}
	slices.Sort(names)
	for _, name := range names[:len(names)-maxCorruptFiles] { // the oldest
		if err := os.Remove(name); err != nil {
			op.log.Warn("remove an old damaged state file", "path", name, "err", err)
		}
	}
	return nil
}

// globQuote takes the meaning from the special characters of a pattern.
var globQuote = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace

// salvageInto writes the readable records of the damaged file to a new file at path.
func (op *opening) salvageInto(path string) (sum repair.Summary, carried int, err error) {
	// No cap: what was readable is carried, and the cap refuses the next growth.
	f, err := openBolt(path, boltOptions(0))
	if err != nil {
		return sum, 0, err
	}
	b := newBuilder(f, frame.NewMeta(op.format.version, 0, now()))
	err = repair.Guard(func() error {
		sum, err = repair.Salvage(op.ctx, op.path, func(r repair.Record) error {
			carried++
			return b.add(r.Bucket, r.Key, r.Frame)
		})
		return err
	})
	if err != nil {
		return sum, 0, errors.Join(err, b.abort(), f.close())
	}
	b.m.Revision = max(b.m.Revision, sum.Revision)
	if sum.Schema > 0 {
		b.m.Schema = min(sum.Schema, op.format.version)
	}
	return sum, carried, frame.Classify(errors.Join(b.index(op.ctx), b.finish(), f.close()))
}

// index writes the index of history by UID from the records. Of two records of one job the later
// written stays.
func (b *builder) index(ctx context.Context) error {
	if err := b.commit(); err != nil {
		return err
	}
	return repair.Guard(func() error {
		return b.f.db.Update(func(tx *bbolt.Tx) error {
			if err := layout(tx, b.m, now()); err != nil {
				return err
			}
			t := &txn{view: view{tx: tx}, m: b.m, now: now(), room: 1 << 62}
			type place struct {
				key   []byte
				stamp uint64
			}
			latest := map[string]place{} // by UID
			var drop [][]byte
			err := t.scan(ctx, frame.History, nil, nil, func(k []byte, f frame.Frame) (bool, error) {
				k = bytes.Clone(k)
				if len(k) <= 8 {
					drop = append(drop, k)
					return true, nil
				}
				was, have := latest[string(k[8:])]
				switch {
				case have && was.stamp > f.Stamp:
					drop = append(drop, k)
					return true, nil
				case have:
					drop = append(drop, was.key)
				}
				latest[string(k[8:])] = place{k, f.Stamp}
				return true, nil
			})
			for _, k := range drop {
				if err == nil {
					err = t.remove(frame.History, k)
				}
			}
			for uid, at := range latest {
				if err == nil {
					err = t.putJSON(frame.UIDs, []byte(uid), at.key)
				}
			}
			b.m = t.m
			return err
		})
	})
}

// copyBatch is how many bytes of records one transaction of a copy takes.
const copyBatch = 4 << 20

// builder fills a new file with records in large transactions. Its meta record is written last: a
// file without one was never finished.
type builder struct {
	f     *file
	m     frame.Meta
	tx    *bbolt.Tx
	bytes int
}

// newBuilder takes schema and revision from m.
func newBuilder(f *file, m frame.Meta) *builder {
	m.Counters = map[frame.Bucket]frame.Counter{}
	return &builder{f: f, m: m}
}

// add copies one record; the first of two under one key stays. Keys should come sorted, then
// pages are filled.
func (b *builder) add(name frame.Bucket, key []byte, f frame.Frame) error {
	if err := b.begin(); err != nil {
		return err
	}
	bk, err := b.tx.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	if bk.Get(key) != nil {
		return nil
	}
	bk.FillPercent = 0.9
	raw := frame.Encode(name, key, f.Body, f.Stamp)
	if err := bk.Put(bytes.Clone(key), raw); err != nil {
		return err
	}
	count := b.m.Counters[name]
	count.Add(key, raw)
	b.m.Counters[name] = count
	if b.bytes += len(key) + len(raw); b.bytes < copyBatch {
		return nil
	}
	return b.commit()
}

func (b *builder) begin() (err error) {
	if b.tx == nil {
		b.tx, err = b.f.db.Begin(true)
	}
	return err
}

func (b *builder) commit() error {
	if b.tx == nil {
		return nil
	}
	tx := b.tx
	b.tx, b.bytes = nil, 0
	return tx.Commit()
}

// finish makes the file complete and durable.
func (b *builder) finish() error {
	if err := b.begin(); err != nil {
		return err
	}
	if err := layout(b.tx, b.m, now()); err != nil {
		return err
	}
	return b.commit()
}

// abort ends the transaction in progress, so that the file can be closed.
func (b *builder) abort() error {
	if b.tx == nil {
		return nil
	}
	tx := b.tx
	b.tx = nil
	return tx.Rollback()
}
