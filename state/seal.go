package state

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"go.etcd.io/bbolt"

	"limpet/state/frame"
	"limpet/state/repair"
)

// A clean close leaves two things that make the next open quick:
//
// The list of free pages. While the file is in use it is not written (NoFreelistSync), which would
// cost every transaction; without it bbolt has to scan the whole file when it opens it.
//
// The seal, in the spare page behind the last one in use: checksums of both heads and of that list,
// none of which bbolt protects well enough (a flipped bit in the list gives a page of live data
// away). The next transaction makes it void, because it names the last one. A file without a valid
// seal is verified before use.

const sealMagic = "limpet\x00seal\x001"

// sealOf returns the seal of a file and its place.
func sealOf(f *os.File) (seal []byte, at int64, err error) {
	heads := repair.ReadHeads(f)
	if len(heads) == 0 || heads[0].Freelist == repair.NoFreelist {
		return nil, 0, frame.Corrupt("no list of free pages to seal")
	}
	newest := heads[0]
	seal = repair.Native.AppendUint64([]byte(sealMagic), newest.Txid)
	for _, off := range []int64{0, int64(newest.Page)} {
		head := make([]byte, repair.PageHeader+repair.MetaLen)
		if _, err := f.ReadAt(head, off); err != nil {
			return nil, 0, fmt.Errorf("read head: %w", err)
		}
		seal = repair.Native.AppendUint32(seal, crc32.Checksum(head, frame.Castagnoli))
	}
	list, err := (&repair.Pages{R: f, Page: newest.Page, High: newest.High}).Read(newest.Freelist)
	if err != nil {
		return nil, 0, fmt.Errorf("read list of free pages: %w", err)
	}
	seal = repair.Native.AppendUint32(seal, crc32.Checksum(list.Data, frame.Castagnoli))
	seal = repair.Native.AppendUint32(seal, crc32.Checksum(seal, frame.Castagnoli))
	return seal, int64(newest.High) * int64(newest.Page), nil
}

// isSealed reports whether the file was closed cleanly by this program and its heads are what they
// were then.
func isSealed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	want, at, err := sealOf(f)
	have := make([]byte, len(want))
	if err == nil {
		_, err = f.ReadAt(have, at)
	}
	return err == nil && bytes.Equal(have, want)
}

// syncFree writes the list of free pages with one last transaction.
func (f *file) syncFree() error {
	return repair.Guard(func() error {
		f.db.NoFreelistSync = false
		return f.db.Update(func(*bbolt.Tx) error { return nil })
	})
}

func writeSeal(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	seal, at, err := sealOf(f)
	if err == nil {
		_, err = f.WriteAt(seal, at)
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}
