package command

import (
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
)

// CommandFor is the command line about an object of a namespace, for a person who is told
// what to do next. It names the namespace; what aim.into does with it comes behind.
func CommandFor(namespace, words string) string {
	if namespace == "" {
		return "limpet " + words
	}
	return "limpet " + words + namespaceFlag + ShellWord(namespace)
}

// namespaceFlag stands before the namespace of a call, behind what the call does: that
// is what a person reads first.
const namespaceFlag = " -n "

// CommandFor is the same within this call.
func (e *Env) CommandFor(namespace, words string) string {
	return e.Invocation.Complete(CommandFor(namespace, words))
}

// Invocation is what a call says about the state file, the server and the namespace that it
// means. A command line that a person is told to run next means the same ones, so it
// has to say so too. What the environment and the config file say holds for it anyway.
type Invocation struct {
	args      []string // of the call
	flags     []string // with their values: "--state x.db"
	namespace string   // that of the flag, "" = none is given, or all are meant
	all       bool     // the call looks in all namespaces
}

// newInvocation reads it from a call. The token stays out: it is a secret.
func newInvocation(call *kong.Context, g *Flags, args []string) *Invocation {
	f := &Invocation{args: args, all: g.ListNamespace() == ""}
	for _, p := range call.Path {
		if p.Flag == nil || p.Resolved {
			continue
		}
		name := p.Flag.Name
		switch {
		case name == "token":
		case name == "namespace":
			f.namespace = g.ListNamespace()
		case name == "state", name == "config", p.Flag.Group != nil && p.Flag.Group.Key == APIGroup:
			f.flags = append(f.flags, writtenFlag(name, p.Flag.Target))
		}
	}
	return f
}

// writtenFlag is a flag with its value, as it is written on a command line.
func writtenFlag(name string, value reflect.Value) string {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() || value.Elem().Bool() {
			return "--" + name
		}
		return "--no-" + name
	}
	return "--" + name + " " + ShellWord(value.String())
}

// Complete completes the command lines of a hint, which stand apart by "; " and may have a
// comment behind them, at whose end another one may stand. What begins with another
// word than limpet is left as it is.
func (f *Invocation) Complete(hint string) string {
	if f == nil {
		f = &Invocation{all: true}
	}
	lines, comment, commented := strings.Cut(hint, "    #")
	calls := strings.Split(lines, "; ")
	for i, call := range calls {
		if words, ok := strings.CutPrefix(call+" ", "limpet "); ok {
			calls[i] = f.withFlags(words)
		}
	}
	hint = strings.Join(calls, "; ")
	if commented {
		said, words, other := strings.Cut(comment, ": limpet ")
		hint += "    #" + said
		if other {
			hint += ": " + f.withFlags(words)
		}
	}
	return hint
}

// rootless are the commands that ask neither a state file nor a server.
var rootless = []string{"version", "completion", "man", "crds", "demo", "help", "service"}

// withFlags is the command line of the words of one call, with the flags that are
// missing behind them.
func (f *Invocation) withFlags(words string) string {
	words, reader, piped := strings.Cut(strings.TrimSpace(words), " | ")
	namespace := f.namespace
	if at := strings.LastIndex(words, namespaceFlag); at >= 0 {
		named, rest, _ := strings.Cut(words[at+len(namespaceFlag):], " ")
		words, namespace = strings.TrimSpace(words[:at]+" "+rest), named
		if namespace == defaultNamespace && f.all {
			namespace = "" // the name alone is looked for everywhere
		}
	}
	out := strings.TrimSpace("limpet "+words) + f.missing(words, namespace)
	if piped {
		out += " | " + reader
	}
	return out
}

// missing are the flags that have to stand behind the words of a call.
func (f *Invocation) missing(words, namespace string) (out string) {
	command, _, _ := strings.Cut(words, " ")
	if slices.Contains(rootless, command) || strings.Contains(words, "--help") {
		return ""
	}
	has := func(flag string) bool {
		return strings.Contains(" "+strings.ReplaceAll(words, "=", " ")+" ", " "+flag+" ")
	}
	if namespace != "" && words != "" && !has("--daemon") && !has("--namespace") {
		out += namespaceFlag + namespace
	}
	for _, flag := range f.flags {
		if name, _, _ := strings.Cut(flag, " "); !has(name) {
			out += " " + flag
		}
	}
	return out
}

// Again is the call as it was, with a flag that it needs besides or has to have
// another value of; "" for one that takes none.
func (f *Invocation) Again(flag, value string) string {
	if value != "" {
		return f.without(flag, 1) + " " + flag + " " + value
	}
	return f.without(flag, 0) + " " + flag
}

// without is the call as it was, but for a flag and as many words as it takes.
func (f *Invocation) without(flag string, takes int) string {
	words := []string{"limpet"}
	if f == nil {
		f = new(Invocation)
	}
	for i := 0; i < len(f.args); i++ {
		switch arg := f.args[i]; {
		case arg == flag:
			i += takes
		case strings.HasPrefix(arg, flag+"="):
		default:
			words = append(words, ShellWord(text.Redact(arg)))
		}
	}
	return strings.Join(words, " ")
}

// ShellWord is a word as a shell takes it for one.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
