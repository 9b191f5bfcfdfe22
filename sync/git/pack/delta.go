package pack

import (
	"errors"
	"fmt"

	"limpet/sync/git/giterr"
)

var errDelta = errors.New("malformed delta")

// deltaSizes reads the two numbers at the head of a delta: the size of the
// base it is made for and of the object that it makes.
func deltaSizes(delta []byte) (base, result int64, rest []byte, err error) {
	base, rest, ok := varint(delta)
	if !ok {
		return 0, 0, nil, errDelta
	}
	result, rest, ok = varint(rest)
	if !ok {
		return 0, 0, nil, errDelta
	}
	return base, result, rest, nil
}

// varint reads a little-endian base-128 number below 2^56.
func varint(b []byte) (v int64, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 8; i++ {
		v |= int64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}

// applyDelta makes the object that delta describes from base, in room when it
// is large enough. Nothing is allocated before the announced size has been held
// against limit.
func applyDelta(room, base, delta []byte, limit int64) ([]byte, error) {
	baseSize, size, ops, err := deltaSizes(delta)
	if err != nil {
		return nil, err
	}
	if baseSize != int64(len(base)) {
		return nil, fmt.Errorf("%w: it is made for a base of %d bytes, not %d", errDelta, baseSize, len(base))
	}
	if size > limit {
		return nil, &giterr.TooLargeError{What: "object", Size: size, Limit: limit}
	}
	out := room[:0]
	if int64(cap(out)) < size || out == nil {
		out = make([]byte, 0, size)
	}
	for len(ops) > 0 {
		op := ops[0]
		ops = ops[1:]
		switch {
		case op&0x80 != 0: // copy from base
			var at, n int64
			for i := range 7 {
				if op&(1<<i) == 0 {
					continue
				}
				if len(ops) == 0 {
					return nil, errDelta
				}
				if i < 4 {
					at |= int64(ops[0]) << (8 * i)
				} else {
					n |= int64(ops[0]) << (8 * (i - 4))
				}
				ops = ops[1:]
			}
			if n == 0 {
				n = 0x10000
			}
			if at+n > int64(len(base)) || int64(len(out))+n > size {
				return nil, errDelta
			}
			out = append(out, base[at:at+n]...)
		case op != 0: // take op bytes from the delta itself
			n := int(op)
			if n > len(ops) || int64(len(out)+n) > size {
				return nil, errDelta
			}
			out = append(out, ops[:n]...)
			ops = ops[n:]
		default:
			return nil, errDelta
		}
	}
	if int64(len(out)) != size {
		return nil, fmt.Errorf("%w: it makes %d bytes, not %d", errDelta, len(out), size)
	}
	return out, nil
}
