package command

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/charmbracelet/x/ansi"

	"limpet/tui/cli/help"
)

// Description is the first paragraph of the help.
const Description = `limpet keeps Grafana dashboards in step with Git, from an edge host.
Without a command: the dashboard; on a pipe the status; with --daemon the agent.`

// AgentGroup is the group of the flags that configure an agent.
const AgentGroup = "Agent"

// APIGroup is the group of the flags that select a server.
const APIGroup = "API"

// GroupOf returns the group of a flag.
func GroupOf(flag *kong.Flag) string {
	if flag.Group == nil {
		return "General"
	}
	return flag.Group.Key
}

// allFlags is the word of 'limpet help flags'.
const allFlags = "flags"

// rootFlags are the flags that 'limpet --help' lists.
var rootFlags = []string{"config", "state", "daemon"}

// fromHelp returns the words of a call of the help where only flags stand before them.
func (e *Env) fromHelp(args []string) []string {
	for at := 1; at < len(args) && strings.HasPrefix(args[0], "-"); at++ {
		if args[at] != "help" {
			continue
		}
		parser, err := kong.New(e.NewTree())
		if err != nil {
			return args
		}
		flags, err := kong.Trace(parser, args[:at])
		if err == nil && flags.Error == nil && CallText(flags.Selected()) == "limpet" {
			return args[at:]
		}
	}
	return args
}

// helpTopic prints the topic of 'limpet help TOPIC'; ok = false for another call.
func (e *Env) helpTopic(args []string) (ok bool, err error) {
	if len(args) != 2 || args[0] != "help" {
		return false, nil
	}
	topics := help.Topics()
	i := slices.IndexFunc(topics, func(t help.Topic) bool { return t.Name == args[1] })
	if i < 0 {
		return false, nil
	}
	call := Env{Streams: e.Streams, Flags: &Flags{Output: "table", Color: cmp.Or(e.Getenv(Variable("color")), "auto")}}
	heading := func(title string) string { return title }
	if call.Colors(e.Out) != nil {
		heading = func(title string) string { return "\x1b[1m" + title + "\x1b[0m" }
	}
	_, err = io.WriteString(e.Out, heading(topics[i].Title)+"\n\n"+topics[i].Render(heading))
	return true, err
}

// printHelp prints the help of a command: its examples and its own flags. That of the program has
// the commands in groups and few flags; with listFlags it has all flags and no commands.
func printHelp(listFlags bool) kong.HelpPrinter {
	return func(options kong.HelpOptions, ctx *kong.Context) error {
		root, selected := ctx.Model.Node, ctx.Selected()
		foot := "\nFlags of every command: limpet help flags"
		switch {
		case listFlags:
			root.Flags = slices.Concat(root.Flags, root.DefaultCmd.Flags)
			for _, n := range root.Children {
				n.Hidden = true
			}
			foot = "\nEvery flag has a variable LIMPET_<NAME> and a key <name> in the config file: limpet help config"
		case selected == nil:
			options.NoExpandSubcommands = true
			root.Flags = slices.Concat(root.Flags, root.DefaultCmd.Flags)
			var names []string
			for _, t := range help.Topics() {
				names = append(names, t.Name)
			}
			foot = ansi.Wordwrap("All flags: limpet help flags. limpet help TOPIC: "+strings.Join(names, ", ")+
				". Start with concepts, manifests, credentials.", 80, "")
		default:
			selected.Group = nil
			words := strings.TrimPrefix(CallText(selected), "limpet ")
			selected.Detail = help.Detail(words)
			if calls := help.Examples(words); len(calls) > 0 {
				selected.Detail = strings.TrimSpace(selected.Detail + "\n\nExamples:\n\n    " + strings.Join(calls, "\n    "))
			}
		}
		if !listFlags {
			for _, f := range root.Flags {
				f.Hidden = f.Hidden || selected != nil || !slices.Contains(rootFlags, f.Name)
			}
		}
		if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(ctx.Stdout, foot)
		return err
	}
}

// helpWords turns 'limpet help job list' into 'limpet job list --help', 'limpet help flags' into
// 'limpet --help', and 'limpet --version' into 'limpet version'.
func helpWords(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		if slices.Equal(args[1:], []string{allFlags}) {
			args = args[:1]
		}
		return append(slices.Clone(args[1:]), "--help")
	case len(args) > 0 && args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

// CallText returns the words of a command without the placeholders of its arguments.
func CallText(n *kong.Node) string {
	if n == nil || n.Name == "dashboard" {
		return "limpet"
	}
	var words []string
	for _, w := range strings.Fields(n.FullPath()) {
		if !strings.HasPrefix(w, "<") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}
