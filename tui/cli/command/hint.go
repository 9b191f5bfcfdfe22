package command

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
)

// CommandFor returns a command line about an object of a namespace, for a hint. Invocation.Complete adds the
// flags that it needs.
func CommandFor(namespace, words string) string {
	if namespace == "" {
		return "limpet " + words
	}
	return "limpet " + words + namespaceFlag + ShellWord(namespace)
}

// namespaceFlag separates the namespace from the words of a call.
const namespaceFlag = " -n "

// CommandFor returns a command line with the targets of this call.
func (e *Env) CommandFor(namespace, words string) string {
	return e.Invocation.Complete(CommandFor(namespace, words))
}

// Invocation holds the flags by which a call selects the state file, the server and the namespace. The command
// lines in its hints repeat them. Environment and config file apply to those anyway.
type Invocation struct {
	args      []string // of the call
	flags     []string // with their values: "--state x.db"
	namespace string   // that of the flag, "" = none is given, or all are meant
	all       bool     // the call covers all namespaces
}

// newInvocation reads a parsed call. The token is left out: it is a secret.
func newInvocation(call *kong.Context, g *Flags, args []string) *Invocation {
	f := &Invocation{args: args, all: g.ListNamespace() == ""}
	for _, p := range call.Path {
		if p.Flag == nil || p.Resolved {
			continue
		}
		switch name := p.Flag.Name; {
		case name == "token":
		case name == "namespace":
			f.namespace = g.ListNamespace()
		case Selects(p.Flag):
			f.flags = append(f.flags, writtenFlag(name, p.Flag.Target))
		}
	}
	return f
}

// Selects reports whether a flag selects the state file or the server.
func Selects(flag *kong.Flag) bool {
	return flag.Name == "state" || flag.Name == "config" || flag.Group != nil && flag.Group.Key == APIGroup
}

// writtenFlag is a flag with its value as on a command line.
func writtenFlag(name string, value reflect.Value) string {
	switch {
	case value.Kind() != reflect.Pointer:
		return "--" + name + " " + ShellWord(value.String())
	case value.IsNil() || value.Elem().Bool():
		return "--" + name
	}
	return "--no-" + name
}

// hintedCommand matches a command line in a hint, which ends before a comment or a pipe.
var hintedCommand = regexp.MustCompile(`(^|: )limpet((?: .*?)??)(    #| \| |$)`)

// Complete adds missing flags to the command lines of a hint, which are separated by "; " and may have a
// comment behind them that ends with another one.
func (f *Invocation) Complete(hint string) string {
	if f == nil {
		f = &Invocation{all: true}
	}
	parts := strings.Split(hint, "; ")
	for i := range parts {
		parts[i] = hintedCommand.ReplaceAllStringFunc(parts[i], func(found string) string {
			m := hintedCommand.FindStringSubmatch(found)
			return m[1] + f.withFlags(strings.TrimSpace(m[2])) + m[3]
		})
	}
	return strings.Join(parts, "; ")
}

// rootless are the commands that use neither a state file nor a server.
var rootless = []string{"version", "completion", "man", "crds", "demo", "help", "service"}

// withFlags returns the command line of the words of one call with the missing flags.
func (f *Invocation) withFlags(words string) string {
	namespace := f.namespace
	if at := strings.LastIndex(words, namespaceFlag); at >= 0 {
		named, rest, _ := strings.Cut(words[at+len(namespaceFlag):], " ")
		words, namespace = strings.TrimSpace(words[:at]+" "+rest), named
		if namespace == defaultNamespace && f.all {
			namespace = "" // the name alone is looked up in all namespaces
		}
	}
	line := strings.TrimSpace("limpet " + words)
	command, _, _ := strings.Cut(words, " ")
	if slices.Contains(rootless, command) || strings.Contains(words, "--help") {
		return line
	}
	has := func(flag string) bool {
		return strings.Contains(" "+strings.ReplaceAll(words, "=", " ")+" ", " "+flag+" ")
	}
	if namespace != "" && words != "" && !has("--daemon") && !has("--namespace") {
		line += namespaceFlag + namespace
	}
	for _, flag := range f.flags {
		if name, _, _ := strings.Cut(flag, " "); !has(name) {
			line += " " + flag
		}
	}
	return line
}

// Again returns the call with a flag added or its value replaced; value is "" for a flag without one.
func (f *Invocation) Again(flag, value string) string {
	if value != "" {
		return f.without(flag, 1) + " " + flag + " " + value
	}
	return f.without(flag, 0) + " " + flag
}

// without returns the call without a flag and the values that it takes.
func (f *Invocation) without(flag string, takes int) string {
	words := []string{"limpet"}
	if f == nil {
		f = new(Invocation)
	}
	for i := 0; i < len(f.args); i++ {
		switch arg := f.args[i]; {
		case arg == flag:
			i += takes
		case !strings.HasPrefix(arg, flag+"="):
			words = append(words, ShellWord(text.Redact(arg)))
		}
	}
	return strings.Join(words, " ")
}

// plainWord matches words that no shell changes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// ShellWord quotes a word for a shell.
func ShellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
