package state

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// sieve tells from the head of a record, without decoding it, that a query does not select it. A look at the whole
// history for a few records costs a tenth of decoding them all, and no garbage. What it lets through the query still
// has to judge. One goroutine uses it at a time.
type sieve struct {
	q     Query
	words []string // of q, in lower case
	text  []byte   // of one record, where words are looked for; kept to be used again
}

func newSieve(q Query) *sieve {
	s := &sieve{q: q}
	for _, w := range q.Words {
		s.words = append(s.words, strings.ToLower(w))
	}
	return s
}

// drops says that q does not select the record with that body. False says nothing.
func (s *sieve) drops(body []byte) bool {
	h, ok := headOf(body)
	if !ok {
		return false
	}
	q := s.q
	return q.Namespace != "" && q.Namespace != string(h[headNamespace]) ||
		q.Outside != "" && q.Outside == string(h[headNamespace]) ||
		q.Repository != "" && q.Repository != string(h[headRepository]) ||
		q.Action != "" && q.Action != string(h[headAction]) ||
		len(q.States) > 0 && !oneOf(q.States, h[headState]) ||
		len(s.words) > 0 && !s.says(h, body)
}

func oneOf(names []string, name []byte) bool {
	for _, n := range names {
		if n == string(name) {
			return true
		}
	}
	return false
}

// says is Query.says of the record with that head and body, and true where that cannot be told.
func (s *sieve) says(h head, body []byte) bool {
	t := s.text[:0]
	for i, part := range [...]int{headName, headRepository, headAction, headState, headMessage} {
		if i > 0 {
			t = append(t, '\n')
		}
		t = append(t, h[part]...)
	}
	subject, ok := subjectOf(body)
	if !ok {
		return true
	}
	t = append(append(t, '\n'), subject...)
	s.text = t
	plain := true
	for i, c := range t {
		if 'A' <= c && c <= 'Z' {
			t[i] = c + ('a' - 'A')
		}
		plain = plain && c < utf8.RuneSelf
	}
	if !plain {
		t = bytes.ToLower(t)
	}
	for _, w := range s.words {
		if !bytes.Contains(t, []byte(w)) {
			return false
		}
	}
	return true
}

// subjectOf is the subject of the commit of a record, nil where there is none; it is not ok where something else in the
// record looks like a commit too. The slice aliases body or is new.
func subjectOf(body []byte) (subject []byte, ok bool) {
	const commit, member = `"commit":{`, `"subject":`
	_, rest, found := bytes.Cut(body, []byte(commit))
	if !found {
		return nil, true
	}
	if bytes.Contains(rest, []byte(commit)) {
		return nil, false
	}
	rest, found = bytes.CutPrefix(rest, []byte(member))
	if !found {
		return nil, !bytes.Contains(rest, []byte(member))
	}
	end := closing(rest)
	if end < 0 || !bytes.HasPrefix(rest, []byte(`"`)) {
		return nil, false
	}
	quoted := rest[:end+1]
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return quoted[1:end], true
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	return []byte(text), true
}

// head are the first members of a record.
type head [headEnd][]byte

const (
	headUID = iota
	headNamespace
	headName
	headRepository
	headAction
	headState
	headMessage
	headEnd
)

// headMembers are how they begin in JSON, in the order in which a Record has them.
var headMembers = [headEnd]string{`"uid":"`, `"namespace":"`, `"name":"`, `"repository":"`, `"action":"`, `"state":"`, `"message":"`}

// headOf reads the head of a record that this program has written: members in their order, empty ones left out, and
// behind them one of those that follow in a Record. Of any other text it is not ok. The slices alias body or are new.
func headOf(body []byte) (h head, ok bool) {
	rest, ok := bytes.CutPrefix(body, []byte("{"))
	if !ok {
		return h, false
	}
	for i, begin := range headMembers {
		if len(rest) < len(begin) || string(rest[:len(begin)]) != begin {
			continue
		}
		rest = rest[len(begin)-1:]
		end := closing(rest)
		if end < 0 || end+1 >= len(rest) || rest[end+1] != ',' {
			return h, false
		}
		quoted := rest[:end+1]
		h[i], rest = quoted[1:end], rest[end+2:]
		if bytes.IndexByte(h[i], '\\') >= 0 {
			var text string
			if json.Unmarshal(quoted, &text) != nil {
				return h, false
			}
			h[i] = []byte(text)
		} else if !utf8.Valid(h[i]) {
			return h, false // the decoder has its own idea of it
		}
	}
	return h, bytes.HasPrefix(rest, []byte(`"agent":`)) || bytes.HasPrefix(rest, []byte(`"started":`)) || bytes.HasPrefix(rest, []byte(`"finished":`))
}

// closing is where the string ends that text begins with; -1 = nowhere.
func closing(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
