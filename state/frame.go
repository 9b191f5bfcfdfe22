package state

import (
	"encoding/binary"
	"hash/crc32"
)

// A frame is what stands under every key:
//
//	offset 0   1 byte   version of the frame, 1
//	       1   4 bytes  length of the body, big endian
//	       5   8 bytes  stamp, big endian: revision of an object, else milliseconds since 1970 of the write
//	      13   4 bytes  CRC-32C, big endian, of bytes 0-12, the body, the bucket's name, a zero byte and the key
//	      17            body, JSON or the caller's own bytes
//
// The checksum covers bucket and key because damage to a page can put a sound value under a wrong key. The body comes
// before them so that a reader that does not know the bucket can try each at little cost.
const (
	frameVersion = 1
	frameHeader  = 17
	frameCRC     = 13

	// maxBody is the largest body that is written, and so the largest length that is believed when reading.
	maxBody = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type frame struct {
	stamp uint64
	sum   uint32
	body  []byte // aliases the encoded bytes
}

// encodeFrame returns the frame of a body that stands under key in bucket b.
func encodeFrame(b bucket, key, body []byte, stamp uint64) []byte {
	raw := make([]byte, frameHeader+len(body))
	raw[0] = frameVersion
	binary.BigEndian.PutUint32(raw[1:], uint32(len(body)))
	binary.BigEndian.PutUint64(raw[5:], stamp)
	copy(raw[frameHeader:], body)
	binary.BigEndian.PutUint32(raw[frameCRC:], place(content(raw), b, key))
	return raw
}

// decodeFrame verifies a frame that was found under key in bucket b. Any error is ErrCorrupt.
func decodeFrame(b bucket, key, raw []byte) (frame, error) {
	if err := frameShape(raw); err != nil {
		return frame{}, corrupt("%s %q: %s", b, key, err)
	}
	f := frame{
		stamp: binary.BigEndian.Uint64(raw[5:]),
		sum:   frameSum(raw),
		body:  raw[frameHeader:],
	}
	if place(content(raw), b, key) != f.sum {
		return frame{}, corrupt("%s %q: checksum differs", b, key)
	}
	return f, nil
}

// shapeError is why bytes cannot be a frame at all.
type shapeError string

func (e shapeError) Error() string { return string(e) }

func frameShape(raw []byte) error {
	switch {
	case len(raw) < frameHeader:
		return shapeError("shorter than a frame")
	case raw[0] != frameVersion:
		return shapeError("unknown frame version")
	}
	if n := binary.BigEndian.Uint32(raw[1:]); n > maxBody || int(n) != len(raw)-frameHeader {
		return shapeError("length differs")
	}
	return nil
}

// frameSum returns the checksum that a frame claims, 0 for what is too short to be one.
func frameSum(raw []byte) uint32 {
	if len(raw) < frameHeader {
		return 0
	}
	return binary.BigEndian.Uint32(raw[frameCRC:])
}

// content is the part of the checksum that does not depend on where the frame stands.
func content(raw []byte) uint32 {
	sum := crc32.Update(0, castagnoli, raw[:frameCRC])
	return crc32.Update(sum, castagnoli, raw[frameHeader:])
}

// place carries the checksum over the bucket and key.
func place(sum uint32, b bucket, key []byte) uint32 {
	sum = crc32.Update(sum, castagnoli, []byte(b))
	sum = crc32.Update(sum, castagnoli, []byte{0})
	return crc32.Update(sum, castagnoli, key)
}
