package complete

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
	"limpet/tui/cli/help"
)

// ManCommand is 'limpet man'.
type ManCommand struct{}

func (ManCommand) Run(e *command.Env, call *kong.Context) error {
	_, err := io.WriteString(e.Out, manPage(call.Model.Node))
	return err
}

// manPage is the manual as one page of man(7), made from the command tree.
func manPage(root *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH LIMPET 1 \"\" \"limpet %s\" \"User Commands\"\n", roff(command.Version))
	b.WriteString(".SH NAME\nlimpet \\- an edge agent for Git sync\n.SH SYNOPSIS\n")
	for _, form := range []string{"", "\\-\\-daemon", "\\fIcommand\\fR [\\fIargument\\fR ...]"} {
		fmt.Fprintf(&b, ".B limpet\n[\\fIflag\\fR ...] %s\n.br\n", form)
	}
	b.WriteString(".SH DESCRIPTION\n")
	for _, paragraph := range strings.Split(command.Description, "\n\n") {
		b.WriteString(".PP\n" + roffLine(paragraph))
	}
	b.WriteString(".SH COMMANDS\n")
	for _, n := range root.Leaves(true) {
		manCommand(&b, n)
	}
	b.WriteString(".SH FLAGS\nThese go with every command.\n")
	group := ""
	for _, f := range slices.Concat(root.DefaultCmd.Flags, root.Flags) {
		if f.Hidden {
			continue
		}
		if key := command.GroupOf(f); key != group {
			group = key
			b.WriteString(".SS " + roff(key) + "\n")
		}
		manFlag(&b, f)
	}
	for _, topic := range help.Topics() {
		fmt.Fprintf(&b, ".SH %s\n.nf\n", roff(strings.ToUpper(topic.Title)))
		for line := range strings.Lines(strings.ReplaceAll(topic.Render(strings.ToUpper), "`", "")) {
			b.WriteString(roffLine(line))
		}
		b.WriteString(".fi\n")
	}
	return b.String()
}

func manCommand(b *strings.Builder, n *kong.Node) {
	words := []string{"\\fB" + roff(command.CallText(n)) + "\\fR"}
	for _, arg := range n.Positional {
		word := "\\fI" + roff(arg.Name) + "\\fR"
		if !arg.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	fmt.Fprintf(b, ".TP\n%s\n%s", strings.Join(words, " "), roffLine(n.Help))
	name := strings.TrimPrefix(command.CallText(n), "limpet ")
	if detail := help.Detail(name); detail != "" {
		b.WriteString(".sp\n" + roffLine(detail))
	}
	for _, call := range help.Examples(name) {
		b.WriteString(".br\n\\fB" + roff(call) + "\\fR\n")
	}
	if len(n.Positional)+len(n.Flags) == 0 {
		return
	}
	b.WriteString(".RS\n")
	for _, arg := range n.Positional {
		fmt.Fprintf(b, ".TP\n\\fI%s\\fR\n%s", roff(arg.Name), roffLine(arg.Help))
	}
	for _, f := range n.Flags {
		if !f.Hidden {
			manFlag(b, f)
		}
	}
	b.WriteString(".RE\n")
}

func manFlag(b *strings.Builder, f *kong.Flag) {
	head, name, value := "", "--"+f.Name, ""
	if f.Short != 0 {
		head = "\\fB\\-" + string(f.Short) + "\\fR, "
	}
	if f.Tag.Negatable != "" {
		name = "--[no-]" + f.Name
	}
	if !f.IsBool() {
		enum := strings.Trim(strings.ReplaceAll(f.Enum, ",", "|"), "|")
		value = "=\\fI" + roff(cmp.Or(enum, f.PlaceHolder, "VALUE")) + "\\fR"
	}
	help := f.Help
	if f.Default != "" && !strings.Contains(help, "Default:") {
		help += " Default: " + f.Default + "."
	}
	fmt.Fprintf(b, ".TP\n%s\\fB%s\\fR%s\n%s", head, roff(name), value, roffLine(help))
}

// roff escapes text so that it prints as it is.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// roffLine is text as a line of its own, which must not begin like a request.
func roffLine(text string) string {
	text = roff(strings.TrimRight(strings.ReplaceAll(strings.ReplaceAll(text, "$$", "$"), "\n", " "), " "))
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text + "\n"
}
