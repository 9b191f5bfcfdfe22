package failpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv/suite"
)

// program passes the points that are its arguments.
const program = `package main

import (
	"fmt"
	"os"

	"limpet/sync/failpoint"
)

func main() {
	for _, p := range os.Args[1:] {
		fmt.Println(p, failpoint.Pass(p))
	}
}
`

// build makes the program with or without the tag.
func build(t *testing.T, tags string) string {
	t.Helper()
	dir := t.TempDir()
	source, path := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-tags", tags, "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestPass(t *testing.T) {
	suite.Full(t) // it takes a second variant of the program
	on, off := build(t, "failpoints"), build(t, "")
	for _, c := range []struct {
		name, program, env string
		args               []string
		out                string
		code               int // -9 = killed
	}{
		{"nothing asked", on, "", []string{"claimed"}, "claimed <nil>\n", 0},
		{"without the tag", off, "claimed=kill,nonsense", []string{"claimed"}, "claimed <nil>\n", 0},
		{"killed", on, "claimed=kill", []string{"intent", "claimed", "ended"}, "intent <nil>\n", -9},
		{"killed at the third", on, "claimed=kill@3", []string{"claimed", "claimed", "claimed", "ended"}, "claimed <nil>\nclaimed <nil>\n", -9},
		{"ended", on, "seen=exit", []string{"seen"}, "", 99},
		{"an error, once", on, "fetched=error@2,seen=exit", []string{"fetched", "fetched", "fetched"},
			"fetched <nil>\nfetched failpoint fetched\nfetched <nil>\n", 0},
		{"a goroutine that waits for ever", on, "marked=stall", []string{"marked"}, "", 2}, // of which the runtime makes a deadlock
		{"no such point", on, "claims=kill", nil, "", 2},
		{"no such action", on, "claimed=die", nil, "", 2},
		{"no such passage", on, "claimed=kill@0", nil, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(c.program, c.args...)
			cmd.Env = []string{"LIMPET_FAILPOINTS=" + c.env}
			out, err := cmd.Output()
			code := cmd.ProcessState.ExitCode()
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
				code = -int(status.Signal())
			}
			if string(out) != c.out || code != c.code {
				t.Errorf("%q, code %d (%v), want %q, %d", out, code, err, c.out, c.code)
			}
		})
	}
}

// TestNoTraceWithoutTheTag: the released binary has no failpoints, and no journal
// of its state file.
func TestNoTraceWithoutTheTag(t *testing.T) {
	suite.Full(t)
	on, off := symbols(t, "failpoints"), symbols(t, "")
	for _, trace := range []string{"limpet/sync/failpoint.", "limpet/state.journal", "limpet/state.(*journal)"} {
		if !strings.Contains(on, trace) {
			t.Errorf("the tag makes no difference to %s", trace)
		}
		for line := range strings.Lines(off) {
			if strings.Contains(line, trace) {
				t.Errorf("the binary has %s", line)
			}
		}
	}
}

// symbols lists what a binary of limpet consists of.
func symbols(t *testing.T, tags string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limpet")
	if err := suite.Program(path, "-tags", tags); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "nm", path).Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	return string(out)
}
