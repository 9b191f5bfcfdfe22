package doctor

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// attributesQuery asks a terminal for its type (DA1); each that answers queries answers this one, with a text
// that ends with attributesEnd.
const (
	attributesQuery = "\x1b[c"
	attributesEnd   = 'c'
)

// answers reports whether a terminal answers a query in time. Known is false when it cannot be asked.
func answers(in, out *os.File, within time.Duration) (answered, known bool) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return false, false
	}
	defer term.Restore(int(in.Fd()), before)
	if _, err := out.WriteString(attributesQuery); err != nil {
		return false, false
	}
	deadline := time.Now().Add(within)
	var got []byte
	for {
		left := time.Until(deadline)
		ready := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, int(max(left, 0).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return false, err == nil
		}
		part := make([]byte, 64)
		n, err = in.Read(part)
		if got = append(got, part[:max(n, 0)]...); bytes.Contains(got, []byte("\x1b[?")) && bytes.IndexByte(got, attributesEnd) > 0 {
			return true, true
		}
		if err != nil || left <= 0 {
			return false, err == nil
		}
	}
}
