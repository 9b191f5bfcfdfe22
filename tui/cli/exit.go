package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"syscall"

	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// Exit codes. 0 to 6 mean what they mean in Grafana's own command line tool.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitAuth        = 3 // 401 or 403
	ExitPartial     = 4 // the job ended in warning, or with resource errors
	ExitCancelled   = 5 // by the user
	ExitVersion     = 6 // the API or the state file speaks a version that limpet does not know
	ExitJobFailed   = 7
	ExitUnreachable = 8
	ExitStore       = 9 // state file locked, damaged, read-only or full
	ExitTimeout     = 10
)

// Failure is an error with an exit code and the one thing to do next.
type Failure struct {
	Err  error
	Hint string
	Code int
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// usage makes the error of a call that cannot be meant as it stands.
func usage(hint, format string, args ...any) error {
	return &Failure{Err: fmt.Errorf(format, args...), Hint: hint, Code: ExitUsage}
}

// fail makes an error with a hint and a code.
func fail(code int, hint, format string, args ...any) error {
	return &Failure{Err: fmt.Errorf(format, args...), Hint: hint, Code: code}
}

// hinted gives an error a hint of its own and leaves it its exit code.
func hinted(err error, hint string) error {
	code, _ := classify(err)
	return &Failure{Err: err, Hint: hint, Code: code}
}

// report writes the error for a person, or as the one document that form asks for,
// and returns the exit code.
func (r *run) report(w io.Writer, form string, err error) int {
	if err == nil {
		return ExitOK
	}
	code, hint := classify(err)
	if hint == "" && code == ExitUsage {
		hint = "limpet --help"
	}
	hint = text.Redact(r.aim.into(hint))
	text := text.Redact(errorText(err))
	if machine(form) {
		reportDocument(w, form, newErrorDocument(code, text, hint, err))
		return code
	}
	fmt.Fprintf(w, "%s %s\n", inkOf(w).paint("error", "limpet:"), text)
	if hint != "" {
		fmt.Fprintf(w, "  try: %s\n", hint)
	}
	return code
}

// errorText is the text of an error, without the method and the path that
// net/http puts in front of what a person can do something about.
func errorText(err error) string {
	var own *Failure
	var network *url.Error
	if errors.As(err, &own) || !errors.As(err, &network) {
		return err.Error()
	}
	at := network.URL
	if u, parse := url.Parse(at); parse == nil {
		at = u.Scheme + "://" + u.Host
	}
	if at == control.BaseURL {
		return fmt.Sprintf("the daemon does not answer: %v", network.Err)
	}
	return fmt.Sprintf("%s does not answer: %v", at, network.Err)
}

// classify finds the exit code and the hint of an error. The order matters:
// what a command said itself wins over what the rooms below it said.
func classify(err error) (code int, hint string) {
	var own *Failure
	if errors.As(err, &own) {
		return own.Code, own.Hint
	}
	if target, ok := errors.AsType[*targetError](err); ok {
		return ExitError, target.hint()
	}
	if hint, ok := storeHint(err); ok {
		return storeCode(err), hint
	}
	hint = kube.Hint(err)
	var (
		foreign  *kube.NotKubernetesError
		flag     *kube.FlagError
		exchange *kube.ExchangeError
		away     *kube.UnreachableError
		network  *url.Error
	)
	switch {
	case errors.As(err, &flag):
		return ExitUsage, hint
	case errors.As(err, &exchange) && (exchange.Status == http.StatusUnauthorized || exchange.Status == http.StatusForbidden):
		return ExitAuth, hint
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout, hint
	case errors.Is(err, context.Canceled):
		return ExitCancelled, hint
	case errors.As(err, &foreign):
		return ExitVersion, hint
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return ExitAuth, hint
	case statusCode(err) == http.StatusInsufficientStorage:
		return ExitStore, "limpet store info    # free space on its disk, or: limpet history prune --older-than 24h"
	case apierrors.IsServiceUnavailable(err):
		// A daemon repeats its calls by itself; a command has made its one.
		return ExitUnreachable, "limpet status    # says whether the API is back"
	case errors.As(err, &away), errors.As(err, &network), errors.Is(err, control.ErrNoDaemon):
		return ExitUnreachable, hint
	}
	return ExitError, hint
}

// statusCode is the HTTP status of an API's answer, 0 when err is none.
func statusCode(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// storeCode is the exit code of an error of the state file.
func storeCode(err error) int {
	var schema *state.SchemaError
	if errors.As(err, &schema) {
		return ExitVersion
	}
	return ExitStore
}

// storeHint says what to do about an error of the state file; ok is false when
// it is none.
func storeHint(err error) (hint string, ok bool) {
	var silent *silentError
	var locked *state.LockedError
	var schema *state.SchemaError
	switch {
	case errors.As(err, &silent):
		return silentHint(silent), true
	case errors.As(err, &locked):
		return lockedHint(locked), true
	case errors.As(err, &schema):
		return "install the newer limpet again, or give another --state FILE", true
	case errors.Is(err, state.ErrForeign):
		return "give another file: --state FILE", true
	case errors.Is(err, state.ErrFull):
		return "limpet history prune --older-than 24h", true
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space on the disk, or give another --state FILE", true
	case errors.Is(err, state.ErrReadOnly) && errors.Is(err, fs.ErrPermission):
		return "run it as the user that the file belongs to, as with sudo -u USER; or give another: --state FILE", true
	case errors.Is(err, state.ErrReadOnly):
		return "give a file in a directory that can be written: --state FILE", true
	case errors.Is(err, state.ErrCorrupt):
		return "limpet store check", true
	}
	return "", false
}

// lockedHint depends on whether the holder answers on a socket: an agent does,
// 'limpet api' and other commands do not.
func lockedHint(locked *state.LockedError) string {
	if locked.Socket != "" {
		return "limpet --state " + shellWord(locked.Path) + " status    # asks the process that holds the file"
	}
	return fmt.Sprintf("wait until process %d has ended, or give another --state FILE", locked.PID)
}

// System is the world of a real process.
func System() World {
	return World{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lookup: os.LookupEnv}
}

// World is all that a command touches outside of itself.
type World struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Lookup reads the environment, as os.LookupEnv does.
	Lookup func(name string) (value string, set bool)
}

// Getenv returns the value of a variable, "" when it is not set.
func (w World) Getenv(name string) string {
	value, _ := w.Lookup(name)
	return value
}

func isTerminal(w any) bool {
	f, ok := outFile(w)
	return ok && term.IsTerminal(int(f.Fd()))
}
