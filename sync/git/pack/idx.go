package pack

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"math"
	"slices"
)

// Layout of a version 2 pack index: magic and version, 256 running counts by
// first byte, names, checksums, 31-bit offsets, 63-bit offsets, two trailers.
const idxMagic = "\xfftOc\x00\x00\x00\x02"

// writeIndex writes the index of a pack whose trailer is sum. It sorts entries.
// Objects that are in the pack twice are listed twice, as git does.
func writeIndex(w io.Writer, entries []entry, sum ID) error {
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(a.id[:], b.id[:]) })
	h := sha1.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, h), 64<<10)
	out.WriteString(idxMagic)
	at := 0
	for first := range 256 {
		for at < len(entries) && int(entries[at].id[0]) <= first {
			at++
		}
		put32(out, uint32(at))
	}
	for i := range entries {
		out.Write(entries[i].id[:])
	}
	for i := range entries {
		put32(out, entries[i].crc)
	}
	var large []int64
	for i := range entries {
		if at := entries[i].offset; at > math.MaxInt32 {
			put32(out, 1<<31|uint32(len(large)))
			large = append(large, at)
		} else {
			put32(out, uint32(at))
		}
	}
	for _, at := range large {
		out.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
	}
	out.Write(sum[:])
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(h.Sum(nil))
	return err
}

func put32(w *bufio.Writer, v uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	w.Write(b[:])
}
