package state

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestSieve: what the sieve drops is what the query does not select, for any records and any queries.
func TestSieve(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 5))
	bits := []string{"", "lab", "LAB", "-17", "a", "B", "é", "É", "K", "İ", "ß", "日本", "\"", "\\", "\n", "\u2028", "<b>", "&", "\x00", "\x1b", "\x7f", "\xff", "�", `\u0041`, `","state":"error`, " "}
	text := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(bits[r.IntN(len(bits))])
		}
		return b.String()
	}
	dropped := 0
	for range 100_000 {
		rec := Record{UID: text(), Namespace: text(), Name: text(), Repository: text(), Action: text(), State: text(), Message: text(), Agent: text(), RefTo: text(), Finished: noon}
		if r.IntN(2) == 0 {
			rec.Started, rec.Spec, rec.Labels = noon, json.RawMessage(`{"name":"lab-17"}`), map[string]string{"state": "error"}
		}
		if r.IntN(2) == 0 {
			rec.Commit = &Commit{Subject: text(), Author: text()}
		}
		body, err := encodeRecord(rec, []byte(`{"name2":"lab","Extra":1}`))
		if err != nil {
			t.Fatal(err)
		}
		var read Record
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatal(err)
		}
		var q Query
		for _, field := range []struct{ of, has *string }{{&q.Namespace, &read.Namespace}, {&q.Outside, &read.Namespace}, {&q.Repository, &read.Repository}, {&q.Action, &read.Action}} {
			switch r.IntN(6) {
			case 0:
				*field.of = text()
			case 1:
				*field.of = *field.has
			}
		}
		for range r.IntN(3) {
			q.Words = append(q.Words, text())
		}
		for range r.IntN(3) {
			q.States = append(q.States, text(), read.State)
		}
		drops := newSieve(q).drops(body)
		if drops == q.matches(read) {
			t.Fatalf("%s: dropped %v by %+v", body, drops, q)
		}
		if drops {
			dropped++
		}
	}
	if dropped < 20_000 || dropped > 80_000 {
		t.Errorf("%d of 100,000 dropped: the test looks at one side only", dropped)
	}
}

// TestSieveOfTwoCommits: where something else in a record looks like its commit, the query judges.
func TestSieveOfTwoCommits(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{`{"commit":{"subject":"one"}}`, `{"commit":{"subject":"o\"ne"},"commit":{"subject":""}}`} {
		rec := Record{UID: "u", Name: "n", Finished: noon, Spec: json.RawMessage(spec), Commit: &Commit{Subject: "two"}}
		body, err := encodeRecord(rec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if newSieve(Query{Words: []string{"two"}}).drops(body) {
			t.Errorf("%s is dropped", body)
		}
	}
	if body := `{"uid":"u","name":"n","finished":"2026-11-20T12:00:00Z","commit":{"author":"a","subject":"two"}}`; newSieve(Query{Words: []string{"two"}}).drops([]byte(body)) {
		t.Errorf("%s is dropped", body)
	}
}

// TestSieveOfOtherHands: a record in a form that this program does not write is left to the query.
func TestSieveOfOtherHands(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `{`, `{}`, `[]`, `null`, `{"uid":"u`, `{"uid":"u"`, `{"uid":"u"}`, `{"uid":"u\`, `{"uid":"u","name":"lab"`, `{"uid":"u","name":7,"finished":""}`,
		`{ "uid":"u","name":"lab","finished":"2026-11-20T12:00:00Z"}`,
		`{"uid":"u","state":"error","name":"lab","finished":"2026-11-20T12:00:00Z"}`,
		`{"newer":1,"uid":"u","name":"lab","finished":"2026-11-20T12:00:00Z"}`,
		`{"uid":"u","newer":1,"name":"lab","finished":"2026-11-20T12:00:00Z"}`,
		`{"uid":"u","name":"lab\x","finished":"2026-11-20T12:00:00Z"}`,
		"{\"uid\":\"u\",\"name\":\"l\xffb\",\"finished\":\"2026-11-20T12:00:00Z\"}",
	} {
		if newSieve(Query{Words: []string{"nowhere"}}).drops([]byte(body)) {
			t.Errorf("%s is dropped", body)
		}
	}
}

// BenchmarkLookForWords looks through 100,000 records of 770 bytes for words that few have: one key of a filter of the
// history.
func BenchmarkLookForWords(b *testing.B) {
	path := b.TempDir() + "/limpet.db"
	FillHistory(b, path, 90_000_000)
	s := opened(b, Options{Path: path})
	for _, word := range []string{"no such word", "0099"} {
		b.Run(word, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.History(b.Context(), Query{Words: []string{word}, Limit: 200, Brief: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
