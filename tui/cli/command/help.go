package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const Description = `An edge agent for Git sync: it claims pull jobs, does their work, and shows it live.

Without a command: the dashboard on a terminal, the status on a pipe, the agent without a screen with --daemon.`

// ExitCodes is the table of 'limpet help exit-codes'.
const ExitCodes = `Exit codes:
   0  ok
   1  error
   2  the call cannot be meant as it stands: unknown flag, bad value, bad file
   3  not allowed: 401 or 403
   4  the job ended in warning, or with errors in some resources
   5  cancelled by the user: Ctrl-C, or the job was cancelled
   6  version not supported, or not this kind of API
   7  the job ended in error
   8  API unreachable
   9  state file locked, damaged, read-only or full
  10  --timeout passed
`

// AgentGroup is the group of the flags that configure an agent.
const AgentGroup = "Agent"

// APIGroup is the group of the flags that select a server.
const APIGroup = "API"

// printHelp prints kong's help without flags that do not concern the command: those of the agent are listed
// where an agent runs. At the root they come with --daemon, which belongs to the command without a name.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	root := ctx.Model.Node
	selected := ctx.Selected()
	for _, f := range root.Flags {
		if f.Group != nil && f.Group.Key == AgentGroup && selected != nil && selected.Name != "demo" {
			f.Hidden = true
		}
	}
	if selected == nil {
		for _, n := range root.Children {
			if n.Name == "dashboard" {
				root.Flags = slices.Concat(root.Flags, n.Flags)
			}
		}
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	foot := "\nEvery flag has a variable LIMPET_<NAME> and a key <name> in the config file; a flag beats the variable, the variable beats the file.\n"
	if selected == nil {
		foot += "Exit codes: limpet help exit-codes\n"
	} else if selected.Name != "demo" {
		foot += "Flags of the agent: limpet --help\n"
	}
	_, err := fmt.Fprint(ctx.Stdout, foot)
	return err
}

// helpWords turns 'limpet help job list' into 'limpet job list --help', and 'limpet --version' into 'limpet
// version'.
func helpWords(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
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
