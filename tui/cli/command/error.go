package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
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
	ExitVersion     = 6 // unsupported version of the API or the state file
	ExitJobFailed   = 7
	ExitUnreachable = 8
	ExitStore       = 9 // state file locked, damaged, read-only or full
	ExitTimeout     = 10
)

// Error is an error with an exit code and one command to run next.
type Error struct {
	Err  error
	Hint string
	Code int
}

func (f *Error) Error() string { return f.Err.Error() }
func (f *Error) Unwrap() error { return f.Err }

// Usagef makes an error of invalid usage.
func Usagef(hint, format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint, Code: ExitUsage}
}

// Errorf makes an error with an exit code and a hint.
func Errorf(code int, hint, format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint, Code: code}
}

// WithHint gives an error a hint and keeps its exit code.
func WithHint(err error, hint string) error {
	code, _ := Classify(err)
	return &Error{Err: err, Hint: hint, Code: code}
}

// report writes the error as text, or as one document for -o json and yaml, and returns the exit code.
func (e *Env) report(w io.Writer, form string, err error) int {
	if err == nil {
		return ExitOK
	}
	code, hint := Classify(err)
	if hint == "" && code == ExitUsage {
		hint = "limpet --help"
	}
	hint = text.Redact(e.Invocation.Complete(hint))
	text := text.Redact(ErrorText(err))
	if machine(form) {
		reportDocument(w, form, newErrorDocument(code, text, hint, err))
		return code
	}
	fmt.Fprintf(w, "%s %s\n", ColorsOf(w).paint("error", "limpet:"), text)
	if hint != "" {
		fmt.Fprintf(w, "  try: %s\n", hint)
	}
	return code
}

// ErrorText returns the text of an error without the method and the path that net/http adds.
func ErrorText(err error) string {
	var own *Error
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

// Classify returns the exit code and the hint of an error. The order matters: what a command has set wins over
// what the packages below it say.
func Classify(err error) (code int, hint string) {
	var own *Error
	if errors.As(err, &own) {
		return own.Code, own.Hint
	}
	if refused, ok := errors.AsType[*control.RefusedError](err); ok {
		return ExitError, CommandFor(refused.Namespace, refused.Next)
	}
	if target, ok := errors.AsType[*TargetError](err); ok {
		return ExitError, target.hint()
	}
	if hint, ok := StoreHint(err); ok {
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
	case StatusCode(err) == http.StatusInsufficientStorage:
		return ExitStore, "limpet store info    # free space on its disk, or: limpet history prune --older-than 24h"
	case apierrors.IsServiceUnavailable(err):
		// A daemon retries its calls; a command has made its only one.
		return ExitUnreachable, "limpet status    # says whether the API is back"
	case errors.As(err, &away), errors.As(err, &network), errors.Is(err, control.ErrNoDaemon):
		return ExitUnreachable, hint
	}
	return ExitError, hint
}

// StatusCode returns the HTTP status of an API's answer, 0 for other errors.
func StatusCode(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// storeCode returns the exit code of an error of the state file.
func storeCode(err error) int {
	var schema *state.SchemaError
	if errors.As(err, &schema) {
		return ExitVersion
	}
	return ExitStore
}

// StoreHint returns what to do about an error of the state file; ok is false for other errors.
func StoreHint(err error) (hint string, ok bool) {
	var silent *UnresponsiveError
	var locked *state.LockedError
	var schema *state.SchemaError
	switch {
	case errors.As(err, &silent):
		return UnresponsiveHint(silent), true
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

// lockedHint depends on whether the holder has a socket: an agent has, 'limpet api' and other commands have
// not.
func lockedHint(locked *state.LockedError) string {
	if locked.Socket != "" {
		return "limpet --state " + ShellWord(locked.Path) + " status    # asks the process that holds the file"
	}
	return fmt.Sprintf("wait until process %d has ended, or give another --state FILE", locked.PID)
}

// System returns the world of the real process.
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

func IsTerminal(w any) bool {
	f, ok := OutFile(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// schemaVersion is that of the documents that only limpet prints: errors and lines of streams. A member that
// is removed or changes its meaning raises it.
const schemaVersion = 1

// errorDocument is printed to stderr when a command with machine-readable output fails: one line of JSON, or
// YAML with -o yaml.
type errorDocument struct {
	Type          string      `json:"type"` // "error"
	SchemaVersion int         `json:"schemaVersion"`
	Error         errorDetail `json:"error"`
}

type errorDetail struct {
	Code    int    `json:"code"`   // the exit code of the command
	Reason  string `json:"reason"` // the code as a word
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"` // the root cause, when it is not the whole message
	Try     string `json:"try,omitempty"`   // one command to run next
}

// reasons are the exit codes as words.
var reasons = map[int]string{
	ExitError: "error", ExitUsage: "usage", ExitAuth: "notAllowed", ExitPartial: "partial", ExitCancelled: "cancelled",
	ExitVersion:   "version",
	ExitJobFailed: "jobFailed", ExitUnreachable: "unreachable", ExitStore: "store", ExitTimeout: "timeout",
}

func newErrorDocument(code int, message, hint string, err error) errorDocument {
	d := errorDetail{Code: code, Reason: reasons[code], Message: message, Try: hint}
	if why := text.Redact(root(err).Error()); len(why) < len(message) {
		d.Cause = why
	}
	return errorDocument{"error", schemaVersion, d}
}

// root returns the innermost error of a chain; of joined ones, the first.
func root(err error) error {
	for {
		next := errors.Unwrap(err)
		if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
			next = many.Unwrap()[0]
		}
		if next == nil {
			return err
		}
		err = next
	}
}

// reportDocument writes the error document. Errors of stderr cannot be reported anywhere.
func reportDocument(w io.Writer, form string, d errorDocument) {
	if form == "yaml" {
		_ = PrintYAML(w, d)
		return
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(d)
}

// outputFlag returns the output format by the arguments or the environment, also when the rest of the command
// line is invalid.
func outputFlag(args []string, env func(string) string) string {
	form := env(Variable("output"))
	if env(Variable("json")) != "" {
		form = "json"
	}
	for i, a := range args {
		if a == "--" {
			break
		}
		switch {
		case (a == "-o" || a == "--output") && i+1 < len(args):
			form = args[i+1]
		case strings.HasPrefix(a, "--output="), strings.HasPrefix(a, "-o="):
			_, form, _ = strings.Cut(a, "=")
		case strings.HasPrefix(a, "-o") && slices.Contains(outputForms, a[2:]):
			form = a[2:]
		case (a == "--json" || strings.HasPrefix(a, "--json=")) && !machine(form):
			form = "json"
		}
	}
	return form
}

// outputForms are the values of --output.
var outputForms = []string{"table", "wide", "json", "jsonl", "yaml", "name"}
