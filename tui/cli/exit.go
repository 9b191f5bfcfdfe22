package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/api"
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

// Failure is an error with an exit code and the one command to run next.
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

// report writes the error for a person and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	code, hint := classify(err)
	if text := api.Redact(err.Error()); text != "" {
		fmt.Fprintf(w, "limpet: %s\n", text)
	}
	if hint != "" {
		fmt.Fprintf(w, "  try: %s\n", hint)
	}
	return code
}

// classify finds the exit code and the hint of an error. The order matters:
// what a command said itself wins over what the rooms below it said.
func classify(err error) (code int, hint string) {
	var own *Failure
	if errors.As(err, &own) {
		return own.Code, own.Hint
	}
	if code, hint, ok := classifyStore(err); ok {
		return code, hint
	}
	hint = api.Hint(err)
	var (
		foreign  *api.NotKubernetesError
		flag     *api.FlagError
		exchange *api.ExchangeError
		away     *api.UnreachableError
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
	case errors.As(err, &away), errors.As(err, &network):
		return ExitUnreachable, hint
	}
	return ExitError, hint
}

func classifyStore(err error) (code int, hint string, ok bool) {
	var locked *state.LockedError
	var schema *state.SchemaError
	switch {
	case errors.As(err, &locked):
		return ExitStore, "limpet status    # asks the process that holds the file; or give another --state FILE", true
	case errors.As(err, &schema):
		return ExitVersion, "install the newer limpet again, or give another --state FILE", true
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, state.ErrFull):
		return ExitStore, "limpet history prune --older-than 24h    # or free space on the disk", true
	case errors.Is(err, state.ErrReadOnly):
		return ExitStore, "give a directory that can be written: --state FILE", true
	case errors.Is(err, state.ErrCorrupt):
		return ExitStore, "limpet store check", true
	}
	return 0, "", false
}

// System is the world of a real process.
func System() World {
	return World{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv}
}

// World is all that a command touches outside of itself.
type World struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	Env func(string) string
}
