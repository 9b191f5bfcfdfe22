// Package complete has the commands that are made from the command tree itself: shell completion
// and the manual.
package complete

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/api"
	"limpet/tui/cli/command"
)

// Word is the hidden command that the completion scripts call:
//
//	limpet __complete WORD... .CURRENT
//
// The words are those before the cursor, without the program. CURRENT is the word at the cursor, with a
// point in front because some shells drop empty words. It prints one candidate a line, with a tab and a
// description behind it, or one line that has the shell complete a path: ":file" or ":dir". Whatever
// happens, it prints nothing else and succeeds.
const Word = "__complete"

// Run does what Word describes for the arguments behind it.
func Run(ctx context.Context, args []string, world command.World, newTree func() command.Tree) {
	if len(args) == 0 {
		return
	}
	last := len(args) - 1
	words, current := args[:last], strings.TrimPrefix(args[last], ".")
	_, call, err := command.Parse(world, newTree, "version")
	if err != nil {
		return
	}
	c := completion{root: call.Model.Node, words: words, names: func(kind string) []string {
		e, _, err := command.Parse(world, newTree, append(commonFlags(call.Model.Node, words), "status")...)
		if err != nil {
			return nil
		}
		return namesOf(ctx, e, kind)
	}}
	for _, found := range c.candidates(current) {
		fmt.Fprintln(world.Out, found)
	}
}

// completion finds what may stand at the cursor.
type completion struct {
	root  *kong.Node
	words []string // before the cursor
	names func(kind string) []string
}

// candidates returns the lines that Word prints.
func (c completion) candidates(current string) []string {
	at, argument, pending := c.position()
	flag, value, assigned := strings.Cut(current, "=")
	switch {
	case pending != nil:
		return c.values(kindOfFlag(pending), "", current)
	case strings.HasPrefix(current, "--") && assigned:
		if f := findFlag(at, flag); f != nil {
			return c.values(kindOfFlag(f), flag+"=", value)
		}
		return nil
	case strings.HasPrefix(current, "-"):
		return withPrefix(flagWords(at), current)
	}
	if subs := subcommands(at); len(subs) > 0 {
		return withPrefix(subs, current)
	}
	if argument >= len(at.Positional) {
		return nil
	}
	return c.values(kindOfArgument(at, at.Positional[argument]), "", current)
}

// position returns the command that the words select, how many arguments it has already, and the flag whose
// value comes next.
func (c completion) position() (at *kong.Node, argument int, pending *kong.Flag) {
	at = c.root
	for _, w := range c.words {
		switch {
		case pending != nil:
			pending = nil
		case strings.HasPrefix(w, "--") && strings.Contains(w, "="):
		case strings.HasPrefix(w, "-"):
			if f := findFlag(at, w); f != nil && !f.IsBool() {
				pending = f
			}
		default:
			i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == w && !n.Hidden })
			if i < 0 {
				argument++
				continue
			}
			at, argument = at.Children[i], 0
		}
	}
	return at, argument, pending
}

// values returns the values of a kind that begin with current, each behind a prefix.
func (c completion) values(kind, prefix, current string) []string {
	list, listed := strings.CutPrefix(kind, "=")
	var out []string
	switch {
	case kind == kindText:
		return nil
	case kind == kindFile, kind == kindDir:
		return []string{":" + kind}
	case listed:
		out = withPrefix(strings.Fields(list), current)
	case kind == kindObject:
		out = withPrefix(c.names(kind+" "+objectKind(c.words)), current)
	default:
		out = withPrefix(c.names(kind), current)
	}
	for i := range out {
		out[i] = prefix + out[i]
	}
	return out
}

func withPrefix(words []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, prefix) })
}

func subcommands(n *kong.Node) (out []string) {
	for _, child := range n.Children {
		if !child.Hidden {
			out = append(out, child.Name+"\t"+summary(child.Help))
		}
	}
	return out
}

// flagsOf returns the flags that a command takes. Those of the agent belong to the commands that run one.
func flagsOf(n *kong.Node) (out []*kong.Flag) {
	noun := n
	for noun.Parent != nil && noun.Parent.Parent != nil {
		noun = noun.Parent
	}
	agents := n.Parent == nil || noun.Name == "demo" || noun.Name == "service"
	if n.DefaultCmd != nil {
		out = append(out, n.DefaultCmd.Flags...)
	}
	for m := n; m != nil; m = m.Parent {
		for _, f := range m.Flags {
			if !f.Hidden && (agents || f.Group == nil || f.Group.Key != command.AgentGroup) {
				out = append(out, f)
			}
		}
	}
	return out
}

func flagWords(n *kong.Node) (out []string) {
	for _, f := range flagsOf(n) {
		help := "\t" + summary(f.Help)
		out = append(out, "--"+f.Name+help)
		if f.Tag.Negatable != "" {
			out = append(out, "--no-"+f.Name+help)
		}
		if f.Short != 0 {
			out = append(out, "-"+string(f.Short)+help)
		}
	}
	return out
}

// findFlag returns the flag that a word of a command line is, nil for none.
func findFlag(n *kong.Node, word string) *kong.Flag {
	all := flagsOf(n)
	for root := n; root != nil; root = root.Parent {
		all = append(all, root.Flags...)
	}
	for _, f := range all {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// summary is the first sentence of a help text.
func summary(help string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(help, "$$", "$"), ". ")
	first, _, _ = strings.Cut(first, "; ")
	return strings.TrimSuffix(first, ".")
}

// What a value may be, besides a list of words, which is written behind "=".
const (
	kindText       = "text"
	kindFile       = "file"
	kindDir        = "dir"
	kindRepository = "repository"
	kindJob        = "job"    // a live one
	kindRecord     = "record" // a live job, or a finished one by its UID
	kindConnection = "connection"
	kindSource     = "source"
	kindNamespace  = "namespace"
	kindObject     = "object" // of the kind that the word before it names
)

func kindOfFlag(f *kong.Flag) string {
	switch {
	case f.Enum != "":
		return "=" + strings.TrimSpace(strings.Join(f.EnumSlice(), " "))
	case f.Name == kindNamespace, f.Name == kindRepository, f.Name == kindConnection:
		return f.Name
	case f.Name == "state" || f.PlaceHolder == "FILE" || f.Tag.Type == "path":
		return kindFile
	case f.PlaceHolder == "DIR":
		return kindDir
	}
	return kindText
}

// kindOfArgument depends on the noun of the command and the name of its argument.
func kindOfArgument(n *kong.Node, arg *kong.Positional) string {
	path := strings.TrimPrefix(command.CallText(n), "limpet ")
	noun, verb, _ := strings.Cut(path, " ")
	switch {
	case arg.Enum != "":
		return "=" + strings.Join(arg.EnumSlice(), " ")
	case arg.Name == kindFile:
		return kindFile
	case arg.Name == "kind":
		var kinds []string
		for _, k := range api.Kinds {
			kinds = append(kinds, k.Plural)
		}
		return "=" + strings.Join(kinds, " ")
	case arg.Name == kindRepository || noun == "repo" && verb != "create":
		return kindRepository
	case noun == kindConnection, noun == kindSource:
		return noun
	case noun == "history" || path == "job show" || path == "job retry" || path == "job logs":
		return kindRecord
	case noun == "job":
		return kindJob
	case noun == "get" || noun == "delete":
		return kindObject
	}
	return kindText
}

// ScriptCommand prints the completion script of a shell.
type ScriptCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"Shell: bash, zsh, fish or powershell."`
}

// Help is the long help of the command.
func (ScriptCommand) Help() string {
	return "bash: limpet completion bash > /etc/bash_completion.d/limpet, or: source <(limpet completion bash). " +
		"zsh: limpet completion zsh > a directory of $fpath, as _limpet. " +
		"fish: limpet completion fish > ~/.config/fish/completions/limpet.fish. " +
		"powershell: limpet completion powershell | Out-String | Invoke-Expression, in the file $$PROFILE names. " +
		"The scripts ask limpet itself. Names come from the daemon or the server, where it answers within 150 ms."
}

// Run prints the script.
func (c ScriptCommand) Run(e *command.Env) error {
	_, err := io.WriteString(e.Out, scripts[c.Shell])
	return err
}
