package joblog

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"limpet/sync/text"
)

func TestBuffer(t *testing.T) {
	t.Parallel()
	b := New()
	b.Add("uid", Line{Text: "before its begin"})
	b.Begin("uid")
	for n := range 5 * maxLines {
		b.Add("uid", Line{Text: fmt.Sprint("line ", n)})
	}
	lines := b.Lines("uid")
	if len(lines) != maxLines || lines[maxLines-1].Text != fmt.Sprint("line ", 5*maxLines-1) {
		t.Errorf("%d lines, the last one %q", len(lines), lines[len(lines)-1].Text)
	}
	b.Add("uid", Line{Text: strings.Repeat("x", 2*maxText)})
	if last := b.Lines("uid")[maxLines-1]; len(last.Text) > maxText {
		t.Errorf("a line of %d bytes", len(last.Text))
	}
	b.End("uid")
	if len(b.Lines("uid")) != 0 || len(b.jobs) != 0 {
		t.Error("the lines of a job outlive it")
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	text.RegisterSecret([]byte("a-secret-of-a-handler"))
	b := New()
	b.Begin("uid")
	log := slog.New(b.Handler("uid", slog.LevelInfo))

	log.Debug("not kept")
	log.Info(`says "so"`, "files", 3, "name", "two words")
	log.With("part", "git").WithGroup("pack").Warn("a-secret-of-a-handler", "size", 2*time.Second)
	log.Error("alone")

	want := []Line{
		{Level: "info", Text: `says "so" files=3 name="two words"`},
		{Level: "warn", Text: text.Redacted + " part=git pack.size=2s"},
		{Level: "error", Text: "alone"},
	}
	lines := b.Lines("uid")
	if len(lines) != len(want) {
		t.Fatalf("lines %v", lines)
	}
	for i, l := range lines {
		if l.Level != want[i].Level || l.Text != want[i].Text || time.Since(l.At) > time.Minute {
			t.Errorf("%+v instead of %+v", l, want[i])
		}
	}
}
