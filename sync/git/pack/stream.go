package pack

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/hash"
)

// stream reads a pack from its first byte to its last. What it hands on to the inflater it counts,
// and adds to the checksums, without a copy: a buffer is filled again when all of it was read.
type stream struct {
	objects *objectReader
	from    io.Reader
	unread  []byte // what the buffer got last, from what was counted on
	at      int64  // offset of unread
	crc     uint32 // of the object
	sum     hash.Hash
}

// streamBuffer is more than an inflater asks for at a time, so that all goes through the buffer.
const streamBuffer = 64 << 10

func newStream(from io.Reader) *stream {
	s := &stream{from: from, sum: newSum()}
	s.objects = &objectReader{buf: bufio.NewReaderSize(s, streamBuffer)}
	return s
}

// Read fills the buffer.
func (s *stream) Read(p []byte) (int, error) {
	s.count(len(s.unread))
	n, err := s.from.Read(p)
	s.unread = p[:n]
	return n, err
}

func (s *stream) count(n int) {
	s.crc = crc32.Update(s.crc, crc32.IEEETable, s.unread[:n])
	s.sum.Write(s.unread[:n])
	s.at += int64(n)
	s.unread = s.unread[n:]
}

// offset is where the next byte is.
func (s *stream) offset() int64 {
	s.count(len(s.unread) - s.objects.buf.Buffered())
	return s.at
}

// begin reads the head of the pack and returns the number of its objects.
func (s *stream) begin() (objects uint32, err error) {
	var head [12]byte
	if _, err := io.ReadFull(s.objects.buf, head[:]); err != nil {
		return 0, fmt.Errorf("it has no head: %w", unexpected(err))
	}
	if version := binary.BigEndian.Uint32(head[4:]); string(head[:4]) != "PACK" || version != 2 {
		return 0, errors.New("it is no pack of version 2")
	}
	return binary.BigEndian.Uint32(head[8:]), nil
}

// next reads the header of the next object.
func (s *stream) next() (packfile.ObjectHeader, error) {
	at := s.offset()
	s.crc = 0
	h, err := s.objects.entryHeader(at)
	return h, unexpected(err)
}

// end reads the checksum of the pack.
func (s *stream) end() (sum ID, err error) {
	s.offset()
	made := ID(s.sum.Sum(nil))
	if _, err := io.ReadFull(s.objects.buf, sum[:]); err != nil {
		return sum, unexpected(err)
	}
	if sum != made {
		return sum, errors.New("its checksum is wrong")
	}
	return sum, nil
}

// unexpected is the error of an end within a pack.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
