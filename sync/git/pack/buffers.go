package pack

import (
	"math/bits"
	"sync"
)

// Objects are many and short-lived: the buffers of those of a file's size are used again, so that
// there is less garbage to collect.

// smallestBuffer and largestBuffer bound the buffers that are used again, as powers of two.
const (
	smallestBuffer = 12
	largestBuffer  = 20
)

var buffers [largestBuffer + 1]sync.Pool // of *[]byte, by the logarithm of their capacity

// buffer returns a buffer of a size. There may be something in it.
func buffer(size int64) []byte {
	class := bits.Len64(uint64(max(size, 1) - 1))
	if class < smallestBuffer || class > largestBuffer {
		return make([]byte, size)
	}
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return (*b)[:size]
	}
	return make([]byte, size, 1<<class)
}

// Recycle takes the content of an object back that is not used any more.
func Recycle(b []byte) {
	class := bits.Len64(uint64(cap(b))) - 1
	if class >= smallestBuffer && class <= largestBuffer && cap(b) == 1<<class {
		buffers[class].Put(&b)
	}
}
