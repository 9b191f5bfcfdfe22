package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"limpet/sync/snapshot"
)

// TestConditionState: a condition that is true by what it means.
func TestConditionState(t *testing.T) {
	t.Parallel()
	for c, want := range map[snapshot.Condition]string{
		{Type: "Ready", Status: "True"}: "success", {Type: "Ready", Status: "False"}: "error", {Type: "Ready", Status: "Unknown"}: "unknown",
		{Type: "Stalled", Status: "True"}: "error", {Type: "Stalled", Status: "False"}: "success",
		{Type: "Reconciling", Status: "True"}: "working", {Type: "Reconciling", Status: "False"}: "",
	} {
		if got := ConditionState(c); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

// TestInkOfColumns: those that tell a state; of fields the first word of a value with a state,
// and the keys of what is wrong. Wide letters move nothing.
func TestInkOfColumns(t *testing.T) {
	t.Parallel()
	marked := ColorFunc(func(state, text string) string { return "<" + state + " " + text + ">" })
	names := []string{"NAME", "STATE", "HEALTH", "SYNC", "RESULT", "READY", "TOKEN", "MESSAGE"}
	line := slices.Repeat([]string{"ok"}, len(names))
	if got, want := Align([][]string{line}, marked.OfColumns(names, 0)), "ok   "+strings.Repeat("<ok ok>   ", 6)+"ok\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got := Align([][]string{{"漢字", "error x"}, {"abcde", "error x"}, {"!", "error"}, {"error", "bad"}},
		marked.ofFields([]string{"", "s", "", ""}))
	if want := "漢字    error x\nabcde   <s error> x\n<error !>       error\n<error error>   bad\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestLogIsColoured: the level of a line has the colour of its state.
func TestLogIsColoured(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := NewLogger(&Flags{LogLevel: "info"},
		&stderr{w: &b, colors: func(state, text string) string { return "<" + state + " " + text + ">" }}, false)
	log.Warn("odd")
	log.Error("bad")
	log.Info("fine")
	if want := "limpet: <warning warning:> odd\nlimpet: <error error:> bad\nlimpet: fine\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}
