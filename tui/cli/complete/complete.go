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
	_, call, err := command.Parse(world, newTree, "version")
	if err != nil || len(args) == 0 {
		return
	}
	last := len(args) - 1
	c := read(call.Model.Node, args[:last])
	c.names = func(kind string) []string {
		e, _, err := command.Parse(world, newTree, append(c.selected, "status")...)
		if err != nil {
			return nil
		}
		return namesOf(ctx, e, kind)
	}
	for _, found := range c.candidates(strings.TrimPrefix(args[last], ".")) {
		fmt.Fprintln(world.Out, found)
	}
}

// completion finds what may stand at the cursor, from the words before it.
type completion struct {
	at       *kong.Node // the command
	args     []string   // of the command
	pending  *kong.Flag // its value comes next
	selected []string   // the words that select the state file and the server
	names    func(kind string) []string
}

func read(root *kong.Node, words []string) (c completion) {
	c.at = root
	for i, w := range words {
		if c.pending != nil {
			if command.Selects(c.pending) {
				c.selected = append(c.selected, words[i-1], w)
			}
			c.pending = nil
			continue
		}
		name, _, whole := strings.Cut(w, "=")
		if strings.HasPrefix(w, "-") {
			f := findFlag(c.at, name)
			switch {
			case f == nil:
			case !whole && !f.IsBool():
				c.pending = f
			case command.Selects(f):
				c.selected = append(c.selected, w)
			}
			continue
		}
		if i := slices.IndexFunc(c.at.Children, func(n *kong.Node) bool { return n.Name == w && !n.Hidden }); i >= 0 {
			c.at, c.args = c.at.Children[i], nil
		} else {
			c.args = append(c.args, w)
		}
	}
	return c
}

// candidates returns the lines that Word prints.
func (c completion) candidates(current string) []string {
	flag, value, assigned := strings.Cut(current, "=")
	switch {
	case c.pending != nil:
		return c.values(kindOfFlag(c.pending), "", current)
	case strings.HasPrefix(current, "--") && assigned:
		if f := findFlag(c.at, flag); f != nil {
			return c.values(kindOfFlag(f), flag+"=", value)
		}
		return nil
	case strings.HasPrefix(current, "-"):
		return withPrefix(flagWords(c.at), "", current)
	}
	var subs []string
	for _, child := range c.at.Children {
		if !child.Hidden {
			subs = append(subs, child.Name+"\t"+summary(child.Help))
		}
	}
	if len(subs) == 0 && len(c.args) < len(c.at.Positional) {
		return c.values(c.kindOfArgument(c.at.Positional[len(c.args)]), "", current)
	}
	return withPrefix(subs, "", current)
}

// values returns the values of a kind that begin with current, each behind a prefix.
func (c completion) values(kind, prefix, current string) []string {
	list, listed := strings.CutPrefix(kind, "=")
	switch {
	case kind == "":
		return nil
	case kind == kindFile, kind == kindDir:
		return []string{":" + kind}
	case listed:
		return withPrefix(strings.Fields(list), prefix, current)
	}
	return withPrefix(c.names(kind), prefix, current)
}

// withPrefix returns the words that begin with current, each behind a prefix.
func withPrefix(words []string, prefix, current string) (out []string) {
	for _, w := range words {
		if strings.HasPrefix(w, current) {
			out = append(out, prefix+w)
		}
	}
	return out
}

// flagsOf returns the flags that a command takes. Those of the agent belong to the commands that run one.
func flagsOf(n *kong.Node) (out []*kong.Flag) {
	words := strings.Fields(command.CallText(n))
	agents := len(words) < 2 || words[1] == "demo" || words[1] == "service"
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
	for m := n; m != nil; m = m.Parent {
		all := m.Flags
		if m.DefaultCmd != nil {
			all = slices.Concat(all, m.DefaultCmd.Flags)
		}
		for _, f := range all {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
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

// What a value may be, besides "" for any text, a list of words, which is written behind "=", and a kind of objects.
const (
	kindFile       = "file"
	kindDir        = "dir"
	kindRepository = "repository"
	kindJob        = "job"    // a live one
	kindRecord     = "record" // a live job, or a finished one by its UID
	kindConnection = "connection"
	kindSource     = "source"
	kindNamespace  = "namespace"
)

func kindOfFlag(f *kong.Flag) string {
	switch {
	case f.Enum != "":
		return "=" + strings.Join(f.EnumSlice(), " ")
	case f.Name == kindNamespace, f.Name == kindRepository, f.Name == kindConnection:
		return f.Name
	case f.Name == "state" || f.PlaceHolder == "FILE" || f.Tag.Type == "path":
		return kindFile
	case f.PlaceHolder == "DIR":
		return kindDir
	}
	return ""
}

// kindOfArgument depends on the noun of the command and the name of its argument.
func (c completion) kindOfArgument(arg *kong.Positional) string {
	path := strings.TrimPrefix(command.CallText(c.at), "limpet ")
	noun, verb, _ := strings.Cut(path, " ")
	switch {
	case arg.Enum != "":
		return "=" + strings.Join(arg.EnumSlice(), " ")
	case arg.Name == kindFile:
		return kindFile
	case arg.Name == "kind":
		kinds := "="
		for _, k := range api.Kinds {
			kinds += k.Plural + " "
		}
		return kinds
	case arg.Name == kindRepository || noun == "repo" && verb != "create":
		return kindRepository
	case noun == kindConnection, noun == kindSource:
		return noun
	case noun == "history" || path == "job show" || path == "job retry" || path == "job logs":
		return kindRecord
	case noun == "job":
		return kindJob
	case (noun == "get" || noun == "delete") && len(c.args) > 0:
		return c.args[0]
	}
	return ""
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
