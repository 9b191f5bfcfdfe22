// Package complete has the commands that are made from the command tree itself: shell completion
// and the manual.
package complete

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
	"limpet/tui/screen"
)

// Word is the hidden command that the completion scripts call:
//
//	limpet __complete WORD... .CURRENT
//
// The words are those before the cursor, without the program. CURRENT is the word at the cursor,
// with a point in front because some shells drop empty words. It prints one candidate a line, with
// a tab and a description behind it, or one line that has the shell complete a path: ":file" or
// ":dir". Whatever happens, it prints nothing else and succeeds.
const Word = "__complete"

// Run does what Word describes for the arguments behind it.
func Run(ctx context.Context, args []string, streams command.Streams, newTree func() command.Tree) {
	_, call, err := command.Parse(streams, newTree, "version")
	if err != nil || len(args) == 0 {
		return
	}
	last := len(args) - 1
	c := read(call.Model.Node, args[:last])
	c.names = func(kind string) []string {
		e, _, err := command.Parse(streams, newTree, append(c.selected, "status")...)
		if err != nil {
			return nil
		}
		return namesOf(ctx, e, kind)
	}
	for _, found := range c.candidates(strings.TrimPrefix(args[last], ".")) {
		fmt.Fprintln(streams.Out, found)
	}
}

// Entries returns the commands for the palette of the dashboard.
func Entries(e *command.Env) (out []screen.Entry) {
	_, call, err := command.Parse(e.Streams, e.NewTree, "version")
	if err != nil {
		return nil
	}
	for _, n := range call.Model.Leaves(true) {
		out = append(out, screen.Entry{Words: strings.TrimPrefix(command.CallText(n), "limpet "), Help: summary(n.Help)})
	}
	return append(out, screen.Entry{Words: "help", Help: "A topic, or a command"})
}

// completion finds what may stand at the cursor, from the words before it.
type completion struct {
	at       *kong.Node // the command
	args     []string   // of the command
	pending  *kong.Flag // its value comes next
	kind     string     // of --kind, of a source
	selected []string   // the words that select the state file and the server
	names    func(kind string) []string
}

func read(root *kong.Node, words []string) (c completion) {
	c.at = root
	for i, w := range words {
		name, value, assigned := strings.Cut(w, "=")
		flag := findFlag(c.at, name)
		if assigned && name == "--kind" {
			c.kind = value
		}
		switch {
		case c.pending != nil:
			if c.pending.Name == "kind" {
				c.kind = w
			}
			if command.Selects(c.pending) {
				c.selected = append(c.selected, words[i-1], w)
			}
			c.pending = nil
		case flag != nil && !assigned && !flag.IsBool():
			c.pending = flag
		case flag != nil && command.Selects(flag):
			c.selected = append(c.selected, w)
		case strings.HasPrefix(w, "-"):
		default:
			at := slices.IndexFunc(c.at.Children, func(n *kong.Node) bool { return n.Name == w && !n.Hidden })
			if at < 0 {
				c.args = append(c.args, w)
			} else {
				c.at, c.args = c.at.Children[at], nil
			}
		}
	}
	return c
}

// candidates returns the lines that Word prints.
func (c completion) candidates(current string) []string {
	flag, value, assigned := strings.Cut(current, "=")
	switch {
	case c.pending != nil:
		return c.values(c.pending.Value, "", current)
	case strings.HasPrefix(current, "--") && assigned:
		if f := findFlag(c.at, flag); f != nil {
			return c.values(f.Value, flag+"=", value)
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
		return c.values(c.at.Positional[len(c.args)], "", current)
	}
	return withPrefix(subs, "", current)
}

// nouns are the kinds of objects that commands and flags name, by their own word.
var nouns = map[string]string{"repo": "repository", "repository": "repository", "connection": "connection", "source": "gitrepository",
	"job": "job", "history": "job", "context": contexts, "site": contexts}

// contexts stands for the sites of the config file among the kinds of objects.
const contexts = "context"

// values returns what the value of a flag or an argument may be, as far as it begins with current,
// each behind a prefix.
func (c completion) values(of *kong.Value, prefix, current string) []string {
	path := strings.TrimPrefix(command.CallText(c.at), "limpet ")
	noun, _, _ := strings.Cut(path, " ")
	kind := nouns[of.Name]
	switch {
	case of.Enum != "":
		return withPrefix(of.EnumSlice(), prefix, current)
	case of.Name == "state" || of.Name == "file" || of.Tag.PlaceHolder == "FILE" || of.Tag.Type == "path":
		return []string{":file"}
	case of.Tag.PlaceHolder == "DIR":
		return []string{":dir"}
	case of.Flag == nil && of.Name == "kind":
		var kinds []string
		for _, k := range api.Kinds {
			kinds = append(kinds, k.Plural)
		}
		return withPrefix(kinds, prefix, current)
	case of.Flag != nil && of.Name == "kind" && noun == "source":
		var kinds []string
		for _, k := range api.SourceKinds() {
			kinds = append(kinds, k.Singular)
		}
		return withPrefix(kinds, prefix, current)
	case of.Flag == nil && of.Name == "name" && noun == "source" && c.kind != "":
		kind = c.kind
	case of.Flag == nil && len(c.args) > 0 && (noun == "get" || noun == "delete"):
		kind = c.args[0]
	case of.Flag == nil && kind == "" && path != "repo create":
		kind = nouns[noun]
	}
	if kind == "" {
		return nil
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

// flagWords returns the flags that a command takes. Those of the agent belong to the commands that
// run one.
func flagWords(n *kong.Node) (out []string) {
	words := strings.Fields(command.CallText(n))
	agents := len(words) < 2 || words[1] == "demo" || words[1] == "service"
	for _, f := range allFlags(n) {
		if f.Hidden || !agents && command.GroupOf(f) == command.AgentGroup {
			continue
		}
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

// allFlags returns the flags of a command and of those above it.
func allFlags(n *kong.Node) (out []*kong.Flag) {
	if n.DefaultCmd != nil {
		out = n.DefaultCmd.Flags
	}
	for m := n; m != nil; m = m.Parent {
		out = slices.Concat(out, m.Flags)
	}
	return out
}

// findFlag returns the flag that a word of a command line is, nil for none.
func findFlag(n *kong.Node, word string) *kong.Flag {
	for _, f := range allFlags(n) {
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

// lookupTimeout bounds the look-up of names: longer feels like a hanging key.
const lookupTimeout = 150 * time.Millisecond

// maxNames bounds what is offered of one kind.
const maxNames = 1000

// plainName matches names that need no quotes in a shell.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// namesOf asks the daemon for the names of a kind, else the server; none when nothing answers in
// time. Without either it opens nothing: only one process at a time can open a state file.
func namesOf(ctx context.Context, e *command.Env, kind string) (out []string) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if kind == contexts {
		for _, one := range e.Config.Contexts {
			out = append(out, one.Name)
		}
		return out
	}
	k, _, unknown := object.KindNamed(kind)
	path, err := e.StatePath()
	if unknown != nil || err != nil {
		return nil
	}
	s := new(command.Session)
	defer s.Close()
	if s.Daemon, err = control.Attach(ctx, agent.SocketPath(path)); err != nil && (!errors.Is(err, control.ErrNoDaemon) || e.Embedded()) {
		return nil
	}
	if s.Client, err = e.Connect(ctx, s, ""); err != nil {
		return nil
	}
	resource, err := object.Resource(ctx, s, k, "")
	if err != nil {
		return nil
	}
	items, _ := s.List(ctx, resource, e.Flags.ListNamespace(), "", nil, maxNames) // none where it fails
	for i := range items {
		if name := items[i].GetName(); plainName.MatchString(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ScriptCommand prints the completion script of a shell.
type ScriptCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"Shell: bash, zsh, fish or powershell."`
}

// scripts pass the words of the command line to Word and its candidates to the shell.
//
//go:embed scripts
var scripts embed.FS

// Run prints the script.
func (c ScriptCommand) Run(e *command.Env) error {
	script, err := scripts.ReadFile("scripts/" + c.Shell)
	if err == nil {
		_, err = e.Out.Write(script)
	}
	return err
}
