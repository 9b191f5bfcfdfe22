package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// BenchmarkFilterKey is a letter typed into the filter of the history, with as many rows
// as a dashboard keeps, and taken back: two keys, their rows and their frames.
func BenchmarkFilterKey(b *testing.B) {
	src := &archive{}
	for i := range maxHistoryRows {
		src.rows = append(src.rows, snapshot.Past{UID: fmt.Sprint("u", i), Name: fmt.Sprintf("lab-%d-past-%06d", i%50, i), Repository: fmt.Sprint("lab-", i%50), Action: "pull",
			State: []string{"success", "error"}[i%2], Message: []string{"completed successfully", "401 bad credentials"}[i%2], Finished: noon.Add(-time.Duration(i) * time.Second)})
	}
	s := press(shown(picture(), Caps{}), "4")
	s, look := s.fetch()
	s = look(b.Context(), src)(s)
	s.history.rows, s.history.next = src.rows, ""
	s.history.fold()
	s = press(s, "/")
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range []string{"7", "backspace"} {
			s = press(s, key)
			if s, look = s.fetch(); look != nil {
				b.Fatal("the history is asked")
			}
			if frame := Render(s, 80, 24, s.Caps); !strings.Contains(frame, "lab-") {
				b.Fatal(frame)
			}
		}
	}
}
