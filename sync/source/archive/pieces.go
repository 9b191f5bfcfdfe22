package archive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/flate"
)

// A tar is compressed in pieces, each for itself: all processors work on one archive, and a piece
// that the archive before has is copied from it. Where a piece ends follows from the tar alone, so
// that the bytes are the same on every host, and a file that has changed moves the ends of the
// pieces around it and no others.
const (
	mostPiece  = 1 << 20   // bytes of the tar; smaller ones cost ratio, larger ones memory
	leastPiece = 256 << 10 // a piece that is shorter does not end at a path
	endsAt     = 16        // one path in so many ends the piece before it
	mostAtOnce = 4         // pieces that are compressed at once, of some 4 MiB each
)

// Pieces are the pieces of an archive, for the next one of the same source.
type Pieces struct {
	Version string  `json:"version"`
	List    []Piece `json:"pieces"` // in their order

	Archive io.ReaderAt `json:"-"` // the file that has them; nil = none
}

// Piece is the compressed form of a piece of a tar.
type Piece struct {
	Sum  string `json:"sum"`  // of the piece, in hex digits
	Size int64  `json:"size"` // of its compressed form
	CRC  uint32 `json:"crc"`  // of that too: a disk may lose bytes
}

// place is where a piece begins in the archive before.
type place struct {
	Piece
	offset int64
}

// places returns where the pieces are. It returns none of an archive of another format.
func (p *Pieces) places() map[string]place {
	if p == nil || p.Archive == nil || p.Version != Version {
		return nil
	}
	out, at := make(map[string]place, len(p.List)), int64(len(gzipHead))
	for _, one := range p.List {
		if one.Size <= 0 || one.Size > 2*mostPiece { // it is damaged, and the places behind it are not known
			break
		}
		out[one.Sum] = place{one, at}
		at += one.Size
	}
	return out
}

// Parts of a gzip file, see RFC 1952 and, of the end of the compressed data, RFC 1951.
const (
	gzipHead = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" // without a time
	lastData = "\x03\x00"                                 // an empty block, which is the last one
)

// compressor compresses a tar into a tar.gz. One goroutine writes to it and ends it.
type compressor struct {
	ctx    context.Context // run-scope: of the one archive; ends also with an error of to
	cancel context.CancelCauseFunc
	before map[string]place
	older  io.ReaderAt // of before
	next   *piece      // that is filled
	crc    uint32      // of the tar so far
	size   uint32      // of the tar so far, modulo 2^32
	made   []Piece

	queue chan *piece   // those that are compressed, in their order
	ended chan struct{} // closed when the queue is empty for good
	to    io.Writer
	err   error // of to; is read once ended is closed
}

func newCompressor(ctx context.Context, to io.Writer, pieces *Pieces) *compressor {
	atOnce := min(runtime.GOMAXPROCS(0), mostAtOnce)
	c := &compressor{before: pieces.places(), next: newPiece(), to: to,
		queue: make(chan *piece, atOnce-1), ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	if c.before != nil {
		c.older = pieces.Archive
	}
	go c.drain()
	return c
}

// drain writes the pieces. After an error, which ends the making of others, it throws them away.
func (c *compressor) drain() {
	defer close(c.ended)
	c.put([]byte(gzipHead))
	for p := range c.queue {
		<-p.done
		c.put(p.packed.Bytes())
		c.made = append(c.made, p.Piece)
		free.Put(p)
	}
}

func (c *compressor) put(data []byte) {
	if c.err != nil {
		return
	}
	if _, c.err = c.to.Write(data); c.err != nil {
		c.cancel(c.err)
	}
}

// Write implements io.Writer. It blocks while as many pieces are compressed as may be.
func (c *compressor) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), mostPiece-len(c.next.raw))
		c.next.raw, rest = append(c.next.raw, rest[:n]...), rest[n:]
		if len(c.next.raw) == mostPiece {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(data), nil
}

// begin ends a piece before the entry of a path, where one is to end there.
func (c *compressor) begin(path string) error {
	if len(c.next.raw) < leastPiece || crc32.ChecksumIEEE([]byte(path))%endsAt != 0 {
		return nil
	}
	return c.flush()
}

// flush has the piece that is filled compressed.
func (c *compressor) flush() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	p := c.next
	c.crc, c.size = crc32.Update(c.crc, crc32.IEEETable, p.raw), c.size+uint32(len(p.raw))
	c.next = newPiece()
	go p.pack(c.before, c.older)
	c.queue <- p // drain takes it for certain
	return nil
}

// end ends the archive, or with an error its making, which it returns.
func (c *compressor) end(err error) error {
	defer c.cancel(nil)
	if err == nil {
		err = c.flush()
	}
	close(c.queue)
	<-c.ended
	if err = cmp.Or(err, c.err); err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint32([]byte(lastData), c.crc)
	_, err = c.to.Write(binary.LittleEndian.AppendUint32(tail, c.size))
	return err
}

// piece is a piece with what it needs to be compressed, which others use after it.
type piece struct {
	Piece
	raw    []byte
	packed bytes.Buffer
	z      *flate.Writer
	done   chan struct{} // closed when it is packed
}

var free = sync.Pool{New: func() any {
	z, _ := flate.NewWriter(nil, level) // the level is a valid one
	return &piece{raw: make([]byte, 0, mostPiece), z: z}
}}

func newPiece() *piece {
	p := free.Get().(*piece)
	p.raw, p.done = p.raw[:0], make(chan struct{})
	p.packed.Reset()
	return p
}

// pack copies the compressed form from the archive before, or makes it.
func (p *piece) pack(before map[string]place, older io.ReaderAt) {
	defer close(p.done)
	sum := sha256.Sum256(p.raw)
	p.Sum = hex.EncodeToString(sum[:])
	if was, ok := before[p.Sum]; ok {
		_, err := io.Copy(&p.packed, io.NewSectionReader(older, was.offset, was.Size))
		if err == nil && int64(p.packed.Len()) == was.Size && crc32.ChecksumIEEE(p.packed.Bytes()) == was.CRC {
			p.Piece = was.Piece
			return
		}
		p.packed.Reset()
	}
	p.z.Reset(&p.packed)
	_, _ = p.z.Write(p.raw) // memory takes it all
	_ = p.z.Flush()         // to the next whole byte
	p.Size, p.CRC = int64(p.packed.Len()), crc32.ChecksumIEEE(p.packed.Bytes())
}
