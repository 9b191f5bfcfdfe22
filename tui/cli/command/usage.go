package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// usageError turns kong's error into one with our exit code and a next command. Of an unknown
// command kong sees only a surplus argument of the default one.
func usageError(k *kong.Kong, config *ConfigFile, err error) error {
	call, txt := "limpet", config.withOrigin(err)
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		call = CallText(parse.Context.Selected())
		if missing := missingOf(parse.Context.Selected()); missing != "" && !strings.HasPrefix(err.Error(), "--") {
			txt = errors.New("missing " + missing)
		}
	}
	if flag, got, ok := strings.Cut(err.Error(), ": expected "); ok && strings.HasSuffix(got, "(<EOL>)") {
		txt = config.withOrigin(errors.New(flag + " needs a value"))
	}
	if flag, _, ok := strings.Cut(err.Error(), ", did you mean"); ok && len(flag) == len("unknown flag -f") {
		txt = config.withOrigin(errors.New(flag)) // any letter is near to any other
	}
	if word, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok && call == "limpet" {
		word, _, _ = strings.Cut(word, ",")
		var names []string
		for _, c := range k.Model.Children {
			names = append(names, c.Name)
		}
		txt = fmt.Errorf("unknown command %q%s", word, Suggestion(word, names))
	}
	return &Error{Err: txt, Hint: call + " --help", Code: ExitUsage}
}

// missingOf returns the required arguments and flags that a call of a command lacks, as its usage
// names them.
func missingOf(n *kong.Node) string {
	var out []string
	if n != nil {
		for _, a := range n.Positional {
			if a.Required && !a.Set {
				out = append(out, strings.ToUpper(a.Name))
			}
		}
		for _, f := range n.Flags {
			if f.Required && !f.Set {
				out = append(out, "--"+f.Name)
			}
		}
	}
	return strings.Join(out, " and ")
}
