package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/program"
)

const (
	// execPath is a file that comes with a switch and goes when the program has ended well: whatever kills limpet between the
	// two, the program runs again.
	execPath = manifestDir + "/exec"

	execTimeout = time.Minute
	maxOutput   = 4 << 10 // bytes of the end of the output
)

// Reasons of an ExecError.
const (
	ReasonExecFailed  = "SinkExecFailed"
	ReasonExecRefused = "SinkExecRefused"
)

// ExecError reports a program that failed, or that may not run.
type ExecError struct {
	Reason string
	Err    error
}

func (e *ExecError) Error() string { return e.Err.Error() }
func (e *ExecError) Unwrap() error { return e.Err }

// PermitExec reads the annotation of a program, which must be among those that the host permits. The error is an *ExecError.
func PermitExec(annotation string, permitted []string) ([]string, error) {
	argv, err := api.ParseExec(annotation)
	if err == nil && !slices.Contains(permitted, argv[0]) {
		err = fmt.Errorf("program %s may not be run: this agent has no --sink-exec for it; start it with --sink-exec %s", argv[0], argv[0])
	}
	if err != nil {
		return nil, &ExecError{ReasonExecRefused, err}
	}
	return argv, nil
}

// RunExec runs a program in the directory of owner if it was switched with Dir.Exec since the program ended well last. It
// takes no lock meanwhile. ran is false when there was nothing to do; the error of the program is an *ExecError.
func RunExec(ctx context.Context, t Target, owner, revision string, argv []string) (output string, ran bool, err error) {
	marker, err := t.execMarker()
	if marker == nil || err != nil {
		return "", false, err
	}
	if err := failpoint.Pass(failpoint.Switched); err != nil {
		return "", false, err
	}
	parts := strings.Split(owner, "/")
	output, err = program.Command{Argv: argv, Dir: t.String(), Timeout: execTimeout, Most: maxOutput, Env: []string{
		"LIMPET_NAME=" + parts[len(parts)-1],
		"LIMPET_NAMESPACE=" + parts[len(parts)-2], "LIMPET_REVISION=" + revision, "LIMPET_DIR=" + t.String()}}.Run(ctx)
	if err != nil {
		return output, true, &ExecError{ReasonExecFailed, fmt.Errorf("run %s: %w", argv[0], err)}
	}
	d, err := Open(ctx, t, owner) // another switch has another marker
	if err != nil {
		return output, true, err
	}
	defer d.Close()
	if now, err := t.execMarker(); err == nil && bytes.Equal(now, marker) {
		err = d.parent.Remove(path.Join(d.base, execPath))
		return output, true, err
	}
	return output, true, nil
}

// execMarker returns nil if there is none.
func (t Target) execMarker() ([]byte, error) {
	root, err := openPrefix(t.prefix)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	marker, err := root.ReadFile(path.Join(t.rel, execPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return marker, err
}
