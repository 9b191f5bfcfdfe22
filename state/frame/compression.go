package frame

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// PackedFrom is the size in bytes from which an object is compressed. Smaller ones would be little
// smaller, and are what is written and read most often: jobs and statuses.
const PackedFrom = 2 << 10

// encoders is how many objects are compressed at a time.
const encoders = 2

// magic is how a compressed object begins (RFC 8878, 3.1.1). JSON never does.
var magic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// Compression makes and reads the stored form of objects. The zero value is ready. Its window is
// that of a large dashboard, so that neither side keeps more than that.
type Compression struct {
	once    sync.Once // makes both
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	err     error
}

func (c *Compression) open() error {
	c.once.Do(func() {
		c.encoder, c.err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(encoders),
			zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // the frame has a checksum
		if c.err == nil {
			c.decoder, c.err = zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(MaxBody))
		}
	})
	return c.err
}

// Pack returns the form in which an object is stored.
func (c *Compression) Pack(data []byte) ([]byte, error) {
	if len(data) < PackedFrom && !bytes.HasPrefix(data, magic) {
		return data, nil
	}
	out, err := c.Frame(data)
	if err == nil && len(out) >= len(data) && !bytes.HasPrefix(data, magic) {
		return data, nil
	}
	return out, err
}

// Frame compresses data of any size. Unpack reads several in a row as one object.
func (c *Compression) Frame(data []byte) ([]byte, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	return c.encoder.EncodeAll(data, make([]byte, 0, len(data)/3)), nil
}

// Unpack returns an object from its stored form under key, which it copies. Bytes that cannot be read are
// ErrCorrupt.
func (c *Compression) Unpack(key, stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, magic) {
		return bytes.Clone(stored), nil
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	data, err := c.decoder.DecodeAll(stored, nil)
	if err != nil {
		return nil, Corrupt("%s %q: %s", Objects, key, err)
	}
	return data, nil
}
