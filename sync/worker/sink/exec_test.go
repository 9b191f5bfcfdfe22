package sink

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunExec: a program runs once after each switch that asks for it, and again until it ends well.
func TestRunExec(t *testing.T) {
	t.Parallel()
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
		_, did, err := RunExec(t.Context(), target, owner, "r", []string{"/bin/sh", "-c", script})
		e, is := errors.AsType[*ExecError](err)
		if did != ran || (err == nil) != well || err != nil && (!is || e.Reason != ReasonExecFailed) {
			t.Errorf("%s: ran %v, %v", what, did, err)
		}
	}
	run("no directory", false, true, "exit 0")
	write("1", false)
	run("not asked", false, true, "exit 0")
	write("2", true)
	run("fails", true, false, "exit 1")
	run("again", true, true, `test "$(cat a)" = 2 && test "$PWD $LIMPET_NAME" = "$LIMPET_DIR site"`)
	run("once", false, true, "exit 0")
	write("3", true)
	run("switched meanwhile", true, true, "printf other > .limpet/exec")
	run("the other switch", true, true, "exit 0")
	write("4", true)
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
