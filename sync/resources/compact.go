package resources

import "bytes"

// compact returns data, which has to be one JSON value, without white space
// outside of strings. ok is false for everything that is
// not valid JSON or nested deeper than maxDepth; why is for encoding/json to
// say, which checks the same at a third of the speed.
func compact(data []byte) (out []byte, ok bool) {
	c := compactor{in: data, out: make([]byte, 0, len(data))}
	if !c.value(0) {
		return nil, false
	}
	c.flush(c.at)
	c.skip()
	return c.out, c.at == len(data)
}

// compactor copies runs of bytes between white space.
type compactor struct {
	in, out  []byte
	at, from int // next byte to look at; first byte not copied yet
}

func (c *compactor) flush(to int) {
	c.out = append(c.out, c.in[c.from:to]...)
	c.from = to
}

// skip passes over white space and leaves it out.
func (c *compactor) skip() {
	if c.at < len(c.in) && c.in[c.at] > ' ' {
		return
	}
	c.flush(c.at)
	for c.at < len(c.in) && isSpace(c.in[c.at]) {
		c.at++
	}
	c.from = c.at
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// next skips white space and takes the byte b.
func (c *compactor) next(b byte) bool {
	c.skip()
	if c.at < len(c.in) && c.in[c.at] == b {
		c.at++
		return true
	}
	return false
}

func (c *compactor) value(depth int) bool {
	c.skip()
	if c.at == len(c.in) {
		return false
	}
	switch b := c.in[c.at]; b {
	case '"':
		return c.text()
	case '{', '[':
		return depth < maxDepth && c.container(b, depth+1)
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
}

func (c *compactor) container(open byte, depth int) bool {
	end := open + 2 // of both pairs in ASCII
	c.at++
	if c.next(end) {
		return true
	}
	for {
		if open == '{' {
			if c.skip(); c.at == len(c.in) || c.in[c.at] != '"' || !c.text() || !c.next(':') {
				return false
			}
		}
		if !c.value(depth) {
			return false
		}
		if !c.next(',') {
			return c.next(end)
		}
	}
}

func (c *compactor) literal(s string) bool {
	if !bytes.HasPrefix(c.in[c.at:], []byte(s)) {
		return false
	}
	c.at += len(s)
	return true
}

// text takes a string that begins here.
func (c *compactor) text() bool {
	in := c.in
	for i := c.at + 1; i < len(in); i++ {
		b := in[i]
		switch {
		case b == '"':
			c.at = i + 1
			return true
		case b < ' ':
			return false
		case b != '\\':
			continue
		}
		if i++; i == len(in) {
			return false
		}
		switch in[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if i+4 >= len(in) || !hex4(in[i+1:i+5]) {
				return false
			}
			i += 4
		default:
			return false
		}
	}
	return false
}

func hex4(digits []byte) bool {
	for _, b := range digits {
		if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F') {
			return false
		}
	}
	return true
}

// number takes a number that begins here.
func (c *compactor) number() bool {
	c.have('-')
	if !c.have('0') && !c.digits() {
		return false
	}
	if c.have('.') && !c.digits() {
		return false
	}
	if c.have('e') || c.have('E') {
		if !c.have('+') {
			c.have('-')
		}
		return c.digits()
	}
	return true
}

func (c *compactor) have(b byte) bool {
	if c.at < len(c.in) && c.in[c.at] == b {
		c.at++
		return true
	}
	return false
}

func (c *compactor) digits() bool {
	from := c.at
	for c.at < len(c.in) && c.in[c.at] >= '0' && c.in[c.at] <= '9' {
		c.at++
	}
	return c.at > from
}
