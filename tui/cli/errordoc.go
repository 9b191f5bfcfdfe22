package cli

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"limpet/sync/text"
)

// schemaVersion is that of the documents that only limpet prints: errors and the
// lines of streams. A member that goes or changes its meaning raises it.
const schemaVersion = 1

// errorDocument is what stderr ends with when a command fails whose output is for
// programs: one document, in one line of JSON, or as YAML with -o yaml.
type errorDocument struct {
	Type          string      `json:"type"` // "error"
	SchemaVersion int         `json:"schemaVersion"`
	Error         errorDetail `json:"error"`
}

type errorDetail struct {
	Code    int    `json:"code"`   // the exit code of the command
	Reason  string `json:"reason"` // the code as a word
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"` // what the message ends with, when it names more
	Try     string `json:"try,omitempty"`   // one command to run next
}

// reasons are the exit codes as words.
var reasons = map[int]string{
	ExitError: "error", ExitUsage: "usage", ExitAuth: "notAllowed", ExitPartial: "partial", ExitCancelled: "cancelled", ExitVersion: "version",
	ExitJobFailed: "jobFailed", ExitUnreachable: "unreachable", ExitStore: "store", ExitTimeout: "timeout",
}

func newErrorDocument(code int, message, hint string, err error) errorDocument {
	d := errorDetail{Code: code, Reason: reasons[code], Message: message, Try: hint}
	if why := text.Redact(root(err).Error()); len(why) < len(message) {
		d.Cause = why
	}
	return errorDocument{"error", schemaVersion, d}
}

// root is the error with which a chain of them began; of several that were joined,
// the first.
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

// reportDocument writes the error as the form of the output asks for. Nothing can
// be done about a stderr that takes nothing.
func reportDocument(w io.Writer, form string, d errorDocument) {
	if form == "yaml" {
		_ = printYAML(w, d)
		return
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(d)
}

// outputFlag is the format of the output as the arguments say, or the environment,
// also when the rest of the call cannot be read.
func outputFlag(args []string, env func(string) string) string {
	form := env(variable("output"))
	if env(variable("json")) != "" {
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
