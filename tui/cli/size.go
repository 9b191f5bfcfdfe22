package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes, written plain or with a unit: 512KiB, 64MiB, 1GiB,
// or 500KB, 64MB, 1GB for powers of ten.
type size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		number, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit.bytes {
			break
		}
		*s = size(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is no size such as 65536, 64MiB or 1GB", text)
}
