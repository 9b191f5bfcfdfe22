package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

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

// report writes the error as text, or as one document for -o json and yaml, and returns the exit
// code.
func (e *Env) report(w io.Writer, form string, err error) int {
	if err == nil {
		return ExitOK
	}
	code, hint := Classify(err)
	if hint == "" && code == ExitUsage {
		hint = "limpet --help"
	}
	hint = text.Redact(e.Invocation.Complete(hint))
	message := text.Redact(ErrorText(err))
	if !machine(form) {
		fmt.Fprintf(w, "%s %s\n", ColorsOf(w).Paint("error", "limpet:"), message)
		if hint != "" {
			fmt.Fprintf(w, "  try: %s\n", hint)
		}
		return code
	}
	d := errorDocument{Type: "error", SchemaVersion: schemaVersion}
	d.Error.Code, d.Error.Reason, d.Error.Message, d.Error.Try = code, reasons[code], message, hint
	if cause := text.Redact(root(err).Error()); len(cause) < len(message) {
		d.Error.Cause = cause
	}
	_ = encode(w, form, "", d) // errors of stderr cannot be reported anywhere
	return code
}

// ErrorText returns the text of an error without the method and the path that net/http adds.
func ErrorText(err error) string {
	if x, ok := errors.AsType[*kube.ExchangeError](err); ok && !is[*Error](err) {
		once := *x
		once.Next = time.Time{} // this command tries no more
		return once.Error()
	}
	var network *url.Error
	if is[*Error](err) || !errors.As(err, &network) {
		return err.Error()
	}
	at := network.URL
	if u, parse := url.Parse(at); parse == nil {
		at = u.Scheme + "://" + u.Host
	}
	if at == control.BaseURL {
		at = "the daemon"
	}
	return fmt.Sprintf("%s does not answer: %v", at, network.Err)
}

// is reports whether an error of type T is in the chain of err.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// Classify returns the exit code and the hint of an error. The order matters: what a command has
// set wins over what the packages below it say.
func Classify(err error) (code int, hint string) {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Code, own.Hint
	}
	if refused, ok := errors.AsType[*control.RefusedError](err); ok {
		return ExitError, CommandFor(refused.Namespace, refused.Next)
	}
	if hint, ok := StoreHint(err); ok {
		if is[*state.SchemaError](err) {
			return ExitVersion, hint
		}
		return ExitStore, hint
	}
	hint = kube.Hint(err)
	exchange, _ := errors.AsType[*kube.ExchangeError](err)
	switch {
	case is[*kube.FlagError](err):
		return ExitUsage, hint
	case exchange != nil && (exchange.Status == http.StatusUnauthorized || exchange.Status == http.StatusForbidden):
		return ExitAuth, hint
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout, hint
	case errors.Is(err, context.Canceled):
		return ExitCancelled, hint
	case is[*kube.NotKubernetesError](err):
		return ExitVersion, hint
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return ExitAuth, hint
	case StatusCode(err) == http.StatusInsufficientStorage:
		return ExitStore, "limpet store info    # free space on its disk, or: limpet history prune --older-than 24h"
	case apierrors.IsServiceUnavailable(err):
		// A daemon retries its calls; a command has made its only one.
		return ExitUnreachable, "limpet status    # says whether the API is back"
	case is[*kube.UnreachableError](err), is[*url.Error](err), errors.Is(err, control.ErrNoDaemon):
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

// StoreHint returns what to do about an error of the state file; ok is false for other errors.
func StoreHint(err error) (hint string, ok bool) {
	if silent, ok := errors.AsType[*UnresponsiveError](err); ok {
		return UnresponsiveHint(silent), true
	}
	if locked, ok := errors.AsType[*state.LockedError](err); ok {
		if locked.Socket == "" { // 'limpet api' or another command: it cannot be asked
			return fmt.Sprintf("wait until process %d has ended, give another --state FILE, "+
				"or, where it is 'limpet api': limpet --provisioning-server-url https://localhost:6446 repo list", locked.PID), true
		}
		return "limpet --state " + text.ShellWord(locked.Path) + " status    # asks the process that holds the file", true
	}
	if shared, ok := errors.AsType[*state.SharedDirectoryError](err); ok {
		if shared.Mode&fs.ModeSticky != 0 { // it is shared on purpose, as /tmp
			return "give a file in a directory of your own: --state FILE", true
		}
		return "chmod go-w " + text.ShellWord(shared.Dir) + "    # or give another --state FILE", true
	}
	switch {
	case errors.Is(err, syscall.ELOOP):
		return "remove the link, or give another --state FILE", true
	case is[*state.SchemaError](err):
		return "limpet help upgrade    # the way back; or install the newer limpet again", true
	case errors.Is(err, state.ErrForeign):
		return "give another file: --state FILE", true
	case errors.Is(err, state.ErrFull):
		return "limpet history prune --older-than 24h    # or start with a larger --state-max-size", true
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

// schemaVersion is that of the documents that only limpet prints: errors and lines of streams. A
// member that is removed or changes its meaning raises it.
const schemaVersion = 1

// errorDocument is printed to stderr when a command with machine-readable output fails: one line of
// JSON, or YAML with -o yaml.
type errorDocument struct {
	Type          string `json:"type"` // "error"
	SchemaVersion int    `json:"schemaVersion"`
	Error         struct {
		Code    int    `json:"code"`   // the exit code of the command
		Reason  string `json:"reason"` // the code as a word
		Message string `json:"message"`
		Cause   string `json:"cause,omitempty"` // the root cause, when it is not the whole message
		Try     string `json:"try,omitempty"`   // one command to run next
	} `json:"error"`
}

// reasons are the exit codes as words.
var reasons = map[int]string{
	ExitError: "error", ExitUsage: "usage", ExitAuth: "notAllowed", ExitPartial: "partial", ExitCancelled: "cancelled",
	ExitVersion: "version", ExitJobFailed: "jobFailed", ExitUnreachable: "unreachable", ExitStore: "store", ExitTimeout: "timeout",
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

// outputFlag returns the output format by the arguments or the environment, also when the rest of
// the command line is invalid.
func outputFlag(args []string, env func(string) string) string {
	form := flagValue(args, env, "--output", "-o")
	if !machine(form) && flagValue(args, env, "--json") != "" {
		return "json"
	}
	return form
}

// CommandFor returns a command line about an object of a namespace, for a hint. Invocation.Complete
// adds the flags that it needs.
func CommandFor(namespace, words string) string {
	if namespace == "" {
		return "limpet " + words
	}
	return "limpet " + words + namespaceFlag + text.ShellWord(namespace)
}

// namespaceFlag stands before the namespace in the words of a call.
const namespaceFlag = " -n "

// CommandFor returns a command line with the targets of this call.
func (e *Env) CommandFor(namespace, words string) string {
	return e.Invocation.Complete(CommandFor(namespace, words))
}

// Demo replaces the flags of the call by those that select the embedded API on a state file,
// whatever the settings say.
func (e *Env) Demo(state string) {
	f := &Invocation{args: e.Invocation.args, all: true}
	f.add(true, "--state ", state, "FILE")
	if !e.Embedded() || e.Getenv("GRAFANA_SERVER") != "" {
		f.add(true, "--provisioning-server-url=", "", "")
		f.add(true, "--kubeconfig=", "", "")
	}
	if e.Flags.ListNamespace() != "" {
		f.add(true, "-n ", "*", "")
	}
	f.words, _ = text.Words(strings.Join(f.flags, " ")) // each is quoted
	e.Invocation = f
}
