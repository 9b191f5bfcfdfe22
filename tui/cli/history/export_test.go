package history

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/state"
	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// exported reads lines of JSON.
func exported(t *testing.T, text string) (out []state.Record) {
	t.Helper()
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if text == "" {
			break
		}
		var rec state.Record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("line %d: %v: %s", n+1, err, line)
		}
		out = append(out, rec)
	}
	return out
}

// TestExportIsTheList: the lines are the items of history list -o json, with the
// same filters, whatever the number of pages.
func TestExportIsTheList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Store(t, func(store *state.Store) {
		for i := range 2*exportPage + 30 {
			rec := clitest.Record(fmt.Sprintf("u%03d", i), []string{"default", "other"}[i%2], []string{"boards", "lab", "<far>"}[i%3],
				[]string{"success", "error", "dead"}[i%3], time.Duration(i)*time.Minute)
			if err := store.PutRecord(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, filter := range []string{
		"", "--limit 1", "--limit 100", "--limit 101", "-n other", "--status error,dead", "--dead", "--action push",
		"--since 2026-11-20T09:00:00Z --until 2026-11-20T11:00:00Z -r lab --limit 7",
	} {
		args := strings.Fields(filter)
		list, _ := s.Must(t, 0, append([]string{"history", "list", "-o", "json"}, args...)...)
		var want struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal([]byte(list), &want); err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		for _, item := range want.Items {
			if err := json.Compact(&lines, item); err != nil {
				t.Fatal(err)
			}
			lines.WriteByte('\n')
		}
		for _, form := range []string{"table", "jsonl"} {
			if out, _ := s.Must(t, 0, append([]string{"history", "export", "-o", form}, args...)...); out != lines.String() {
				t.Errorf("%q: %d records, want %d", filter, len(exported(t, out)), len(want.Items))
			}
		}
		if out, _ := s.Must(t, 0, append([]string{"history", "list", "-o", "jsonl"}, args...)...); out != lines.String() {
			t.Errorf("%q: history list -o jsonl says something else", filter)
		}
		whole, _ := s.Must(t, 0, append([]string{"history", "export", "-o", "json"}, args...)...)
		var have struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal([]byte(whole), &have); err != nil || len(have.Items) != len(want.Items) {
			t.Errorf("%q: as json %d records, %v", filter, len(have.Items), err)
		}
	}
	for _, bad := range []string{"-o yaml", "-o wide", "-o name", "--since yesterday"} {
		if out, errs := s.Must(t, command.ExitUsage, append([]string{"history", "export"}, strings.Fields(bad)...)...); out != "" ||
			!strings.Contains(errs, "try: limpet history") {
			t.Errorf("%s: %s%s", bad, out, errs)
		}
	}
}

// TestExportIsCut: a reader that has had enough is no news.
func TestExportIsCut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Record(t, clitest.Record("u1", "default", "boards", "success", time.Hour))
	var errs bytes.Buffer
	if code := s.main([]string{"history", "export"}, s.streams("", clitest.FailingWriter{Err: syscall.EPIPE},
		&errs)); code != command.ExitPipe || errs.Len() > 0 {
		t.Errorf("exit %d, %s", code, &errs)
	}
}

// pages is a store that only has a history.
type pages func(q state.Query) []state.Record

func (p pages) History(_ context.Context, q state.Query) ([]state.Record, error) { return p(q), nil }

// TestExportOfMany: 100,000 records in constant memory: what is in use while
// they go out does not depend on their number.
func TestExportOfMany(t *testing.T) {
	const records = 100_000
	page := make([]state.Record, exportPage)
	for i := range page {
		page[i] = clitest.Record(fmt.Sprint("u", i), "default", "boards", "success", time.Hour)
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	given, most := 0, uint64(0)
	lines, end := io.Pipe()
	counted := make(chan int)
	go func() {
		n := 0
		for in := bufio.NewReader(lines); ; n++ {
			if _, err := in.ReadSlice('\n'); err != nil {
				break
			}
		}
		counted <- n
	}()
	form := exportForms["jsonl"]
	form.pick = new(command.Flags).PickEach
	n, err := form.export(t.Context(), end, state.Query{}, pages(func(q state.Query) []state.Record {
		if given%(10*exportPage) == 0 {
			var now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		next := page[:min(q.Limit, records-given)]
		given += len(next)
		return next
	}))
	end.Close()
	if got := <-counted; err != nil || n != records || got != records {
		t.Errorf("%d records exported, %d lines, %v", n, got, err)
	}
	if grown := int64(most) - int64(before.HeapAlloc); grown > 2<<20 {
		t.Errorf("%d bytes more are in use", grown)
	}
}
