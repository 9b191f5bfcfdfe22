package state

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"limpet/state/frame"
	"limpet/state/repair"

	"go.etcd.io/bbolt"
)

// A clean close leaves two things that make the next open quick:
//
// The list of free pages. While the file is in use it is not written (NoFreelistSync), which would cost every
// transaction; without it bbolt has to scan the whole file when it opens it.
//
// The seal, in the spare page behind the last one in use: checksums of both heads and of that list, none of which bbolt
// protects well enough (a flipped bit in the list gives a page of live data away). The next transaction makes it void,
// because it names the last one. A file without a valid seal is verified before use.

const (
	sealMagic = "limpet\x00seal\x001"
	sealLen   = len(sealMagic) + 8 + 4*4
)

// sealBytes are the contents of the seal for the heads of a file.
func sealBytes(r io.ReaderAt, newest repair.Head) ([]byte, error) {
	out := repair.Native.AppendUint64([]byte(sealMagic), newest.Txid)
	for _, off := range []int64{0, int64(newest.Page)} {
		head := make([]byte, repair.PageHeader+repair.MetaLen)
		if _, err := r.ReadAt(head, off); err != nil {
			return nil, fmt.Errorf("read head: %w", err)
		}
		out = repair.Native.AppendUint32(out, crc32.Checksum(head, frame.Castagnoli))
	}
	p := &repair.Pages{R: r, Page: newest.Page, High: newest.High}
	list, err := p.Read(newest.Freelist)
	if err != nil {
		return nil, fmt.Errorf("read list of free pages: %w", err)
	}
	out = repair.Native.AppendUint32(out, crc32.Checksum(list.Data, frame.Castagnoli))
	return repair.Native.AppendUint32(out, crc32.Checksum(out, frame.Castagnoli)), nil
}

// sealed reports whether the file was closed cleanly by this program and its heads are what they were then.
func isSealed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	metas := repair.ReadHeads(f)
	if len(metas) == 0 || metas[0].Freelist == repair.NoFreelist {
		return false
	}
	end := int64(metas[0].High) * int64(metas[0].Page)
	want, err := sealBytes(f, metas[0])
	have := make([]byte, sealLen)
	if _, readErr := f.ReadAt(have, end); err != nil || readErr != nil || info.Size() < end {
		return false
	}
	return string(have) == string(want)
}

// syncFree writes the list of free pages with one last transaction.
func (f *file) syncFree() error {
	return repair.Guard(func() error {
		f.db.NoFreelistSync = false
		return f.db.Update(func(*bbolt.Tx) error { return nil })
	})
}

// writeSeal seals a closed file.
func writeSeal(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("seal state: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	metas := repair.ReadHeads(f)
	if len(metas) == 0 || metas[0].Freelist == repair.NoFreelist {
		return frame.Corrupt("no list of free pages to seal")
	}
	seal, err := sealBytes(f, metas[0])
	if err != nil {
		return fmt.Errorf("seal state: %w", err)
	}
	if _, err := f.WriteAt(seal, int64(metas[0].High)*int64(metas[0].Page)); err != nil {
		return fmt.Errorf("seal state: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("seal state: %w", err)
	}
	return nil
}
