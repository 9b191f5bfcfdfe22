package apiserver

import "bytes"

// A scanner for JSON that this package has written. Objects are stored as the bytes that clients
// receive; lists, watches and selectors read a few members of thousands of them, and decoding each
// would cost fifty times more.
//
// The input is trusted: it is one compact JSON value without errors. Foreign bytes are decoded with
// the library first.

// span is the place of a value in a JSON text: data[from:to].
type span struct{ from, to int }

// none is the span of an absent value.
var none = span{-1, -1}

func (s span) found() bool { return s.from >= 0 }

func (s span) of(data []byte) []byte { return data[s.from:s.to] }

// find returns the place of the value at the path of member names, or none.
func find(data []byte, path ...string) span {
	at := span{0, len(data)}
	for _, name := range path {
		if at = member(data, at, name); !at.found() {
			return none
		}
	}
	return at
}

// member returns the place of one member's value in the object at place.
func member(data []byte, place span, name string) span {
	hit := none
	eachMember(data, place, func(key []byte, value span) bool {
		if string(key) == name {
			hit = value
			return false
		}
		return true
	})
	return hit
}

// eachMember calls fn with the raw name (escapes not resolved) and the place of the value of each
// member of the object at place, until fn returns false. It does nothing if there is no object at
// place.
func eachMember(data []byte, place span, fn func(key []byte, value span) bool) {
	i := place.from
	if i >= place.to || data[i] != '{' {
		return
	}
	i++
	for i < place.to && data[i] == '"' {
		end := skip(data, i)
		key := data[i+1 : end-1]
		from := end + 1 // the colon
		to := skip(data, from)
		if !fn(key, span{from, to}) {
			return
		}
		if data[to] != ',' {
			return
		}
		i = to + 1
	}
}

// skip returns the index behind the value that begins at i.
func skip(data []byte, i int) int {
	switch data[i] {
	case '"':
		for i++; ; {
			end := i + bytes.IndexByte(data[i:], '"')
			escape := bytes.IndexByte(data[i:end], '\\')
			if escape < 0 {
				return end + 1
			}
			i += escape + 2
		}
	case '{', '[':
		depth := 0
		for {
			switch data[i] {
			case '"':
				i = skip(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	default:
		for i < len(data) && data[i] != ',' && data[i] != '}' && data[i] != ']' {
			i++
		}
		return i
	}
}

// text returns the string at place; "" for an absent value and for one that is no
// string. The library decodes strings with escapes.
func text(data []byte, place span) string {
	if !place.found() || data[place.from] != '"' {
		return ""
	}
	return unquote(data[place.from:place.to])
}

// splice returns data with the value at place replaced.
func splice(data []byte, place span, value []byte) []byte {
	out := make([]byte, 0, len(data)-(place.to-place.from)+len(value))
	out = append(out, data[:place.from]...)
	out = append(out, value...)
	return append(out, data[place.to:]...)
}
