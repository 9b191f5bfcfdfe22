package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPrograms: a program runs once after each switch that asks for it, and again, after a pause
// that grows, until it ends well.
func TestPrograms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testPrograms)
}

func testPrograms(t *testing.T) {
	var programs Programs
	prefix := t.TempDir()
	target, err := Permit(filepath.Join(prefix, "site"), []string{prefix})
	if err != nil {
		t.Fatal(err)
	}
	const owner = "GitRepository/default/site"
	write := func(content string, exec bool) {
		t.Helper()
		d, err := Open(t.Context(), target, owner)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		d.Exec = exec
		plan, err := d.Plan(content, "", []File{{Path: "a", Hash: SHA256 + content, Size: int64(len(content))},
			{Path: ".limpet/exec", Hash: SHA256, Size: 1}, {Path: ".limpet", Hash: SHA256, Size: 1}})
		if err == nil {
			err = d.Write(t.Context(), plan, func(context.Context, File) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(content)), nil
			}, func(File) {})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(what string, ran, well bool, script string) {
		t.Helper()
		_, did, err := programs.Run(t.Context(), target, owner, "r", []string{"/bin/sh", "-c", script})
		e, is := errors.AsType[*ExecError](err)
		if did != ran || (err == nil) != well || err != nil && (!is || e.Reason != ReasonExecFailed) {
			t.Errorf("%s: ran %v, %v", what, did, err)
		}
	}
	run("no directory", false, true, "exit 0")
	write("1", false)
	run("not asked", false, true, "exit 0")
	write("2", true)
	for pause := firstPause; pause <= 4*firstPause; pause *= 2 {
		run("fails", true, false, "exit 1")
		time.Sleep(pause - 1)
		run("waits", false, false, "exit 1")
		time.Sleep(time.Nanosecond)
	}
	run("again", true, true, `test "$(cat a)" = 2 && test "$PWD $LIMPET_NAME" = "$LIMPET_DIR site"`)
	run("once", false, true, "exit 0")
	write("3", true)
	run("switched meanwhile", true, true, "printf other > .limpet/exec")
	run("the other switch", true, true, "exit 0")
	write("4", true)
	run("quick failure", true, false, "exit 1")
	write("5", true)
	run("another switch does not wait for its pause", true, true, "exit 0")
	hung := failedRun{of: "before", err: context.DeadlineExceeded, took: time.Minute, pause: maxPause, ended: time.Now()}
	programs.failed.Store(target, hung)
	write("6", true)
	time.Sleep(time.Minute - 1)
	run("it waits as long as the last run took", false, false, "exit 0")
	time.Sleep(time.Nanosecond)
	run("after it", true, true, "exit 0")
	if n, err := Leave(t.Context(), target, owner, true); n != 1 || err != nil {
		t.Errorf("left %d, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(target.String(), manifestDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the manifest is left: %v", err)
	}
	for annotation, ok := range map[string]bool{`["/bin/true"]`: true, `["/bin/true","a"]`: true, `["/bin/../bin/true"]`: false, `["true"]`: false,
		`[]`: false, `"/bin/true"`: false, `["/bin/false"]`: false, "[\"/bin/true\",\"\\u0000\"]": false, ``: false} {
		if _, err := PermitExec(annotation, []string{"/bin/true"}); (err == nil) != ok {
			t.Errorf("%s: %v", annotation, err)
		}
	}
}

// TestProgramsLongRun: the first pause is the time that the run took.
func TestProgramsLongRun(t *testing.T) {
	t.Parallel()
	prefix, took := t.TempDir(), firstPause+200*time.Millisecond
	target, err := Permit(filepath.Join(prefix, "site"), []string{prefix})
	if err == nil {
		err = os.MkdirAll(filepath.Join(target.String(), manifestDir), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(target.String(), execPath), []byte("1"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, ran, err := new(Programs).Run(t.Context(), target, "ns/site", "r", []string{"/bin/sh", "-c", fmt.Sprintf("sleep %f; exit 1", took.Seconds())})
	if e, is := errors.AsType[*ExecError](err); !ran || !is || e.RetryAfter < took {
		t.Errorf("ran %v, %v", ran, err)
	}
}
