package kube

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"
)

// Values of packed objects: a tag and what it says to follow.
const (
	tagNone   byte = iota // not there
	tagNull               // nothing
	tagTrue               // nothing
	tagFalse              // nothing
	tagInt                // varint
	tagFloat              // 8 bytes
	tagText               // length and bytes
	tagUUID               // 16 bytes: a text like 9f1f4d4c-98d7-b745-3ce8-7d0908a8bfc8
	tagTime               // varint of Unix seconds: a text like 2026-11-20T12:00:00Z
	tagDigits             // uvarint: a text like 4711
	tagAgain              // uvarint: the text of the value with that number
)

// againFrom is the shortest text that is worth a reference.
const againFrom = 3

// scalar is what stands at a leaf of an object.
type scalar struct {
	tag    byte
	text   string
	number int64
	float  float64
}

// String is the text of a value, "" for what is no text.
func (v scalar) String() string {
	switch v.tag {
	case tagText:
		return v.text
	case tagUUID:
		return formatUUID(v.text)
	case tagTime:
		return time.Unix(v.number, 0).UTC().Format(time.RFC3339)
	case tagDigits:
		return strconv.FormatUint(uint64(v.number), 10)
	}
	return ""
}

// plain is the value as a decoder makes it.
func (v scalar) plain() any {
	switch v.tag {
	case tagNull:
		return nil
	case tagTrue:
		return true
	case tagFalse:
		return false
	case tagInt:
		return v.number
	case tagFloat:
		return v.float
	}
	return v.String()
}

// appendText adds a text in its shortest form.
func (w *writer) appendText(s string) []byte {
	if len(s) >= againFrom {
		for i, before := range w.texts {
			if before == s {
				return binary.AppendUvarint(append(w.values, tagAgain), uint64(i))
			}
		}
	}
	if id, ok := parseUUID(s); ok {
		return append(append(w.values, tagUUID), id[:]...)
	}
	if n, ok := parseDigits(s); ok {
		return binary.AppendUvarint(append(w.values, tagDigits), n)
	}
	if t, ok := parseTime(s); ok {
		return binary.AppendVarint(append(w.values, tagTime), t)
	}
	return append(binary.AppendUvarint(append(w.values, tagText), uint64(len(s))), s...)
}

// reader reads the values of a packed object one after the other.
type reader struct {
	data string
	at   int
	from int // where the first value begins, for references; 0 = not read yet
}

func (r *reader) uvarint() uint64 {
	var n uint64
	for shift := uint(0); ; shift += 7 {
		b := r.data[r.at]
		r.at++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (r *reader) varint() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *reader) take(n int) string {
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *reader) next() scalar {
	if r.from == 0 {
		r.from = r.at
	}
	v := scalar{tag: r.data[r.at]}
	r.at++
	switch v.tag {
	case tagInt, tagTime:
		v.number = r.varint()
	case tagDigits:
		v.number = int64(r.uvarint())
	case tagFloat:
		v.float = math.Float64frombits(binary.BigEndian.Uint64([]byte(r.take(8))))
	case tagText:
		v.text = r.take(int(r.uvarint()))
	case tagUUID:
		v.text = r.take(16)
	case tagAgain:
		place := int(r.uvarint())
		before := reader{data: r.data, at: r.from}
		return before.nth(place)
	}
	return v
}

// nth reads the value with a number, counted from here.
func (r *reader) nth(n int) scalar {
	if r.from == 0 {
		r.from = r.at
	}
	for range n {
		r.pass()
	}
	return r.next()
}

// pass goes behind the next value.
func (r *reader) pass() {
	tag := r.data[r.at]
	r.at++
	switch tag {
	case tagInt, tagTime, tagDigits, tagAgain:
		for r.data[r.at] >= 0x80 {
			r.at++
		}
		r.at++
	case tagFloat:
		r.at += 8
	case tagUUID:
		r.at += 16
	case tagText:
		n := int(r.uvarint())
		r.at += n
	}
}

// uuidBreaks are the places of the dashes.
var uuidBreaks = [...]int{8, 13, 18, 23}

func parseUUID(s string) (id [16]byte, ok bool) {
	if len(s) != 36 {
		return id, false
	}
	var digits [32]byte
	n := 0
	for i := range len(s) {
		c := s[i]
		switch {
		case i == uuidBreaks[0] || i == uuidBreaks[1] || i == uuidBreaks[2] || i == uuidBreaks[3]:
			if c != '-' {
				return id, false
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f':
			digits[n] = c
			n++
		default:
			return id, false
		}
	}
	_, err := hex.Decode(id[:], digits[:])
	return id, err == nil
}

func formatUUID(id string) string {
	var digits [32]byte
	hex.Encode(digits[:], []byte(id))
	out := make([]byte, 0, 36)
	from := 0
	for i, at := range uuidBreaks {
		to := at - i
		out = append(append(out, digits[from:to]...), '-')
		from = to
	}
	return string(append(out, digits[from:]...))
}

// parseDigits reads a decimal number that is written as FormatUint does.
func parseDigits(s string) (n uint64, ok bool) {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(s[i]-'0')
	}
	return n, true
}

// parseTime reads a time in the one form that Format gives back.
func parseTime(s string) (seconds int64, ok bool) {
	if len(s) != len("2006-01-02T15:04:05Z") || s[len(s)-1] != 'Z' {
		return 0, false
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UTC().Format(time.RFC3339) != s {
		return 0, false
	}
	return t.Unix(), true
}
