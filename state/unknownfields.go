package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"limpet/state/frame"
)

// A record that a newer program of the same schema has written may have members that this one does not know. They stay
// when this program writes the record again, so that a later upgrade finds them.

// fieldsOf are the names under which a type is written as JSON.
func fieldsOf[T any]() map[string]bool {
	names := map[string]bool{}
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

var (
	claimFields   = fieldsOf[Claim]()
	recordFields  = fieldsOf[Record]()
	attemptFields = fieldsOf[Attempt]()
)

// unknownFields returns the members of a JSON object that are not among those known; nil when there are none.
func unknownFields(body []byte, known map[string]bool) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		return nil
	}
	for name := range all {
		if known[name] {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// withFields appends members to a JSON object that has none of them.
func withFields(body []byte, extra map[string]json.RawMessage) ([]byte, error) {
	if len(extra) == 0 {
		return body, nil
	}
	more, err := json.Marshal(extra)
	if err != nil {
		return nil, err
	}
	body = bytes.TrimSuffix(body, []byte("}"))
	if !bytes.HasSuffix(body, []byte("{")) {
		body = append(body, ',')
	}
	return append(body, more[1:]...), nil
}

// encodeClaim is c as JSON, with what old, the frame body that it takes the place of, has beyond it. nil = there is none.
func encodeClaim(c Claim, old []byte) ([]byte, error) {
	body, err := json.Marshal(c)
	if err == nil && old != nil {
		body, err = withFields(body, unknownFields(old, claimFields))
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", frame.Claims, err)
	}
	return body, nil
}

// encodeRecord is the same for a record and for each of its attempts.
func encodeRecord(r Record, old []byte) ([]byte, error) {
	body, err := encodeRecordPlain(r, old)
	if err == nil && old != nil {
		body, err = withFields(body, unknownFields(old, recordFields))
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", frame.History, err)
	}
	return body, nil
}

// encodeRecordPlain takes care of the attempts: one that is kept keeps its unknown members.
func encodeRecordPlain(r Record, old []byte) ([]byte, error) {
	extra := unknownAttemptFields(old)
	if extra == nil {
		return json.Marshal(r)
	}
	attempts := make([]json.RawMessage, len(r.Attempts))
	for i, a := range r.Attempts {
		text, err := json.Marshal(a)
		if err == nil {
			text, err = withFields(text, extra[a.N])
		}
		if err != nil {
			return nil, err
		}
		attempts[i] = text
	}
	type plain Record
	return json.Marshal(struct {
		plain
		Attempts []json.RawMessage `json:"attempts,omitempty"`
	}{plain(r), attempts})
}

// unknownAttemptFields are the unknown members of the attempts of a record by their number; nil when no attempt has any.
func unknownAttemptFields(body []byte) map[int]map[string]json.RawMessage {
	var old struct {
		Attempts []json.RawMessage `json:"attempts"`
	}
	if json.Unmarshal(body, &old) != nil {
		return nil
	}
	var out map[int]map[string]json.RawMessage
	for _, text := range old.Attempts {
		extra := unknownFields(text, attemptFields)
		var a Attempt
		if extra == nil || json.Unmarshal(text, &a) != nil {
			continue
		}
		if out == nil {
			out = map[int]map[string]json.RawMessage{}
		}
		out[a.N] = extra
	}
	return out
}
