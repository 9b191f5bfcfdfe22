package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/api"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"Shell: bash, zsh, fish or powershell."`
}

// Help is the long help of the command.
func (completionCmd) Help() string {
	return "bash: limpet completion bash > /etc/bash_completion.d/limpet, or: source <(limpet completion bash). " +
		"zsh: limpet completion zsh > a directory of $fpath, as _limpet. fish: limpet completion fish > ~/.config/fish/completions/limpet.fish. " +
		"powershell: limpet completion powershell | Out-String | Invoke-Expression, in the file $$PROFILE names. " +
		"Commands and flags are in the script. Names are asked of the daemon or the server, for 150 ms; then those of the last time are offered."
}

func (c completionCmd) Run(r *run, call *kong.Context) error {
	model := completions(call.Model.Node)
	script := map[string]func([]node) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript, "powershell": powershellScript}[c.Shell](model)
	_, err := io.WriteString(r.Out, script)
	return err
}

// node is a command as a shell has to know it.
type node struct {
	path  string // its words, "" = limpet itself
	help  string
	subs  []*kong.Node
	flags []flagWords
	args  []string // what each argument is: see kindOfValue
}

// flagWords is a flag as a shell has to know it.
type flagWords struct {
	long, short, help string
	kind              string // what its value is, "" = it takes none
}

// What a value may be, besides a name that is asked for. A list of words is written
// behind "=".
const (
	fillText = "text" // nobody knows
	fillFile = "file"
	fillDir  = "dir"
)

// Names that are asked for.
const (
	fillRepository = "repository"
	fillJob        = "job"    // a live one
	fillRecord     = "record" // a live job, or a finished one by its UID
	fillConnection = "connection"
	fillSource     = "source"
	fillNamespace  = "namespace"
	fillObject     = "object" // of the kind that stands before it
)

// completions lists the commands that a person is shown, each after the one it is
// part of.
func completions(n *kong.Node) []node {
	one := node{path: strings.TrimPrefix(strings.TrimPrefix(callText(n), "limpet"), " "), help: n.Help}
	var below []node
	for _, child := range n.Children {
		if child.Hidden {
			if child == n.DefaultCmd {
				one.flags = append(one.flags, flagsWords(child.Flags)...)
			}
			continue
		}
		one.subs = append(one.subs, child)
		below = append(below, completions(child)...)
	}
	for m := n; m != nil; m = m.Parent {
		flags := slices.DeleteFunc(slices.Clone(m.Flags), func(f *kong.Flag) bool {
			return f.Hidden || f.Group != nil && f.Group.Key == agentGroup && one.path != "" && one.path != "demo" && !strings.HasPrefix(one.path, "service")
		})
		one.flags = append(one.flags, flagsWords(flags)...)
	}
	for _, arg := range n.Positional {
		one.args = append(one.args, kindOfArgument(one.path, arg))
	}
	return append([]node{one}, below...)
}

func flagsWords(flags []*kong.Flag) (out []flagWords) {
	for _, f := range flags {
		w := flagWords{long: f.Name, help: summary(f.Help), kind: kindOfFlag(f)}
		if f.Short != 0 {
			w.short = string(f.Short)
		}
		out = append(out, w)
		if f.Tag.Negatable != "" {
			out = append(out, flagWords{long: "no-" + f.Name, help: w.help})
		}
	}
	return out
}

// summary is the first sentence of a help, without what a shell could take for
// something of its own.
func summary(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	first, _, _ = strings.Cut(first, "; ")
	return strings.TrimSuffix(strings.NewReplacer("$$", "", "'", "", `"`, "", "`", "", `\`, "", "$", "").Replace(first), ".")
}

func kindOfFlag(f *kong.Flag) string {
	switch {
	case f.IsBool():
		return ""
	case f.Enum != "":
		return "=" + strings.TrimSpace(strings.Join(f.EnumSlice(), " "))
	case f.Name == "namespace":
		return fillNamespace
	case f.Name == "repository":
		return fillRepository
	case f.Name == "connection":
		return fillConnection
	case f.Name == "state" || f.PlaceHolder == "FILE" || f.Tag.Type == "path":
		return fillFile
	case f.PlaceHolder == "DIR":
		return fillDir
	}
	return fillText
}

// kindOfArgument goes by the noun of the command and the name of its argument.
func kindOfArgument(path string, arg *kong.Positional) string {
	noun, verb, _ := strings.Cut(path, " ")
	switch {
	case arg.Enum != "":
		return "=" + strings.Join(arg.EnumSlice(), " ")
	case arg.Name == "file":
		return fillFile
	case arg.Name == "kind":
		var kinds []string
		for _, k := range api.Kinds {
			kinds = append(kinds, k.Plural)
		}
		return "=" + strings.Join(kinds, " ")
	case arg.Name == "repository" || noun == "repo" && verb != "create":
		return fillRepository
	case noun == "connection":
		return fillConnection
	case noun == "source":
		return fillSource
	case noun == "history" || path == "job show" || path == "job retry" || path == "job logs":
		return fillRecord
	case noun == "job":
		return fillJob
	case noun == "get" || noun == "delete":
		return fillObject
	}
	return fillText
}
