package command

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
)

// Invocation holds the flags by which a call selects the state file, the server and the namespace.
// The command lines in its hints repeat them. Environment and config file apply to those anyway.
type Invocation struct {
	args      []string // of the call
	flags     []string // with their values: "--state x.db"
	elsewhere []string // flags and those of the environment, with absolute paths
	all       bool     // the call covers all namespaces
	words     []string // arguments by which another call of this program has the same flags
	output    []string // flags of the output and of the config file, as arguments
}

// newInvocation reads a parsed call. The token is left out, and passwords in URLs: they are
// secrets.
func newInvocation(call *kong.Context, g *Flags, config *ConfigFile, args []string) *Invocation {
	f := &Invocation{args: args, all: g.ListNamespace() == "", words: args}
	for _, p := range call.Path {
		if p.Flag != nil && !p.Resolved && (GroupOf(p.Flag) == "Output" || p.Flag.Name == "config") && !p.Flag.IsSlice() {
			f.output = append(f.output, fmt.Sprintf("--%s=%v", p.Flag.Name, p.Flag.Target))
		}
		if p.Flag == nil || p.Flag.Name == "token" || !Selects(p.Flag) || p.Flag.Name == "namespace" && f.all ||
			p.Resolved && config.From[p.Flag.Name].Kind != FromEnv {
			continue
		}
		name, value, given := "--"+p.Flag.Name, p.Flag.Target, !p.Resolved
		switch {
		case name == "--namespace":
			f.add(given, "-n ", g.Namespace, "")
		case value.Kind() == reflect.Pointer:
			f.add(given, name+"=", fmt.Sprint(value.Elem()), "")
		default:
			f.add(given, name+" ", value.String(), p.Flag.PlaceHolder)
		}
	}
	return f
}

func (f *Invocation) add(given bool, name, value, holder string) {
	if given {
		f.flags = append(f.flags, name+text.ShellWord(text.Redact(value)))
	}
	if path, err := filepath.Abs(value); err == nil && holder == "FILE" && value != "" {
		value = path
	}
	f.elsewhere = append(f.elsewhere, name+text.ShellWord(text.Redact(value)))
}

// Elsewhere returns the invocation for command lines that are run in another terminal, which has
// another working directory.
func (f *Invocation) Elsewhere() *Invocation {
	return &Invocation{args: f.args, flags: f.elsewhere, all: f.all, words: f.words}
}

// Output returns the flags of the call that concern the output and the config file, as arguments.
func (f *Invocation) Output() []string { return f.output }

// Args returns the flags of a call of the dashboard as arguments of another call.
func (f *Invocation) Args() []string {
	for i, word := range f.words {
		if word == "dashboard" && (i == 0 || !strings.HasPrefix(f.words[i-1], "-")) {
			return slices.Delete(slices.Clone(f.words), i, i+1)
		}
	}
	return f.words
}

// Selects reports whether a flag selects the state file or the server.
func Selects(flag *kong.Flag) bool {
	return flag.Name == "state" || flag.Name == "config" || flag.Name == "context" || GroupOf(flag) == APIGroup
}

// hintedCommand matches a command line in a hint, which ends before a comment or a pipe.
var hintedCommand = regexp.MustCompile(`(^|: )limpet((?: .*?)??)(    #| \| |$)`)

// Complete adds missing flags to the command lines of a hint, which are separated by "; " and may
// have a comment behind them that ends with another one.
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
	if f.all { // the name alone is looked up in all namespaces
		words = strings.TrimSpace(strings.Replace(words+" ", namespaceFlag+defaultNamespace+" ", " ", 1))
	}
	line := strings.TrimSpace("limpet " + words)
	command, _, _ := strings.Cut(words, " ")
	if slices.Contains(rootless, command) || strings.Contains(words, "--help") {
		return line
	}
	given := " " + strings.ReplaceAll(words, "=", " ") + " "
	roots := words == "" || strings.Contains(given, " --daemon ") || strings.Contains(given, " --namespace ")
	for _, flag := range f.flags {
		name, _, _ := strings.Cut(strings.ReplaceAll(flag, "=", " "), " ")
		if !strings.Contains(given, " "+name+" ") && !(name == "-n" && roots) {
			line += " " + flag
		}
	}
	return line
}

// WithFlag returns the call with a flag added or its value replaced; value is "" for a flag without
// one.
func (f *Invocation) WithFlag(flag, value string) string {
	return strings.TrimSpace(f.without(flag, min(len(value), 1)) + " " + flag + " " + value)
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
			words = append(words, text.ShellWord(text.Redact(arg)))
		}
	}
	return strings.Join(words, " ")
}
