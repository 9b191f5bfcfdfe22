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
	"sync"
	"time"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/fileid"
	"limpet/sync/program"
)

const (
	// execPath is a file that comes with a switch and goes when the program has ended well: whatever
	// kills limpet between the two, the program runs again.
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
	Reason     string
	Err        error
	RetryAfter time.Duration // until the program may run again; 0 = see Reason
}

func (e *ExecError) Error() string { return e.Err.Error() }
func (e *ExecError) Unwrap() error { return e.Err }

// PermitExec reads the annotation of a program, which must be among those that the host permits.
// The error is an *ExecError.
func PermitExec(annotation string, permitted []string) ([]string, error) {
	argv, err := api.ParseExec(annotation)
	if err == nil && !slices.Contains(permitted, argv[0]) {
		err = fmt.Errorf("program %s may not be run: this agent has no --sink-exec for it; start it with --sink-exec %s", argv[0], argv[0])
	}
	if err != nil {
		return nil, &ExecError{Reason: ReasonExecRefused, Err: err}
	}
	return argv, nil
}

// firstPause and maxPause bound the pause after a run that failed.
const firstPause, maxPause = time.Second, 15 * time.Minute

// Programs runs the programs that follow the switch of a directory, with a backoff for each
// directory. The zero value is ready. It is safe for concurrent use with different directories.
type Programs struct {
	failed sync.Map // Target -> failedRun
}

// failedRun is the last run in a directory.
type failedRun struct {
	of          string // the marker of the switch, and the program
	err         error
	took, pause time.Duration
	ended       time.Time
}

// Run runs a program in the directory of owner if it was switched with Dir.Exec since the program
// ended well last, unless it waits after a failure. It takes no lock meanwhile. ran is false when
// the program was not started; its error, also that of the run before, is an *ExecError.
func (p *Programs) Run(ctx context.Context, t Target, owner, revision string, argv []string) (output string, ran bool, err error) {
	marker, err := t.execMarker()
	if marker == nil || err != nil {
		return "", false, err
	}
	known, _ := p.failed.Load(t)
	last, _ := known.(failedRun)
	if of := fmt.Sprintf("%s %q", marker, argv); last.of != of {
		last.of, last.pause = of, last.took // a program that hangs has at most half of all time, whatever comes
	}
	if wait := time.Until(last.ended.Add(last.pause)); wait > 0 {
		return "", false, &ExecError{ReasonExecFailed, last.err, wait}
	}
	if err := failpoint.Pass(failpoint.Switched); err != nil {
		return "", false, err
	}
	parts := strings.Split(owner, "/")
	began := time.Now()
	output, err = program.Command{Argv: argv, Dir: t.String(), Timeout: execTimeout, Most: maxOutput, Env: []string{
		"LIMPET_NAME=" + parts[len(parts)-1],
		"LIMPET_NAMESPACE=" + parts[len(parts)-2], "LIMPET_REVISION=" + revision, "LIMPET_DIR=" + t.String()}}.Run(ctx)
	if err != nil {
		last.err, last.took, last.ended = fmt.Errorf("run %s: %w", argv[0], err), time.Since(began), time.Now()
		last.pause = min(max(2*last.pause, last.took, firstPause), maxPause)
		p.failed.Store(t, last)
		return output, true, &ExecError{ReasonExecFailed, last.err, last.pause}
	}
	p.failed.Delete(t)
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
	marker, err := fileid.ReadChecked(root.OpenFile, path.Join(t.rel, execPath), maxOutput, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return marker, err
}
