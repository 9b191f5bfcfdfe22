package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// WholeTag is the tag of the commands that look at the flags of others, in the tree or in the config
// file.
const WholeTag = "whole"

// parseNamed is parse without the commands that the call does not name: to build the tree of all is
// a quarter of a start. A call that fails is parsed again with all, which its error may speak of.
func (e *Env) parseNamed(args []string) (*kong.Context, error) {
	if others := unnamedCommands(e.NewTree(), args); others != "" {
		call, err := e.parse(args, kong.IgnoreFields(others))
		if err == nil || is[exitNow](err) {
			return call, err
		}
	}
	return e.parse(args)
}

// unnamedCommands returns a pattern of the fields of a tree with the commands that no argument
// names, "" for a call that needs all: one for help, and one of a command with WholeTag. A command
// whose field has the name of the field of a flag stays: the pattern would match the flag too.
func unnamedCommands(t Tree, args []string) string {
	tree := reflect.TypeOf(t).Elem()
	var others []string
	for i := range tree.NumField() {
		f := tree.Field(i)
		_, isCommand := f.Tag.Lookup("cmd")
		_, isDefault := f.Tag.Lookup("default")
		_, whole := f.Tag.Lookup(WholeTag)
		_, isFlag := reflect.TypeFor[Flags]().FieldByName(f.Name)
		named := slices.Contains(args, cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name)))
		switch {
		case named && whole:
			return ""
		case isCommand && !isDefault && !isFlag && !named:
			others = append(others, f.Name)
		}
	}
	helps := func(arg string) bool {
		return strings.HasPrefix(arg, "--help") || strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, "h")
	}
	if len(others) == 0 || slices.ContainsFunc(args, helps) {
		return ""
	}
	return `^` + tree.Name() + `\.(` + strings.Join(others, "|") + `)$`
}

// parse reads the config file, the environment and the arguments into e.
func (e *Env) parse(args []string, more ...kong.Option) (call *kong.Context, err error) {
	config, unread := ReadConfig(flagValue(args, e.Getenv, "--config"), e.Getenv)
	if unread != nil {
		config = noConfig()
	}
	t := e.NewTree()
	parser, err := kong.New(t, append(more,
		kong.Name("limpet"),
		kong.Description(Description),
		kong.Resolvers(config.resolver(e.Lookup)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(mapDuration)),
		kong.Writers(e.Out, e.Err),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.Help(printHelp(e.listFlags)),
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
	)...)
	if err != nil {
		return nil, err
	}
	if unread == nil {
		unread = config.check(FlagsOf(parser.Model.Node))
	}
	if unread == nil {
		chosen := flagValue(args, e.Getenv, "--context")
		unread = config.choose(cmp.Or(chosen, config.text("context")), FlagsOf(parser.Model.Node))
	}
	traced, err := kong.Trace(parser, args)
	if err == nil {
		n := traced.Selected()
		helps := slices.ContainsFunc(traced.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "help" })
		doctor := CallText(n) == "limpet doctor" && unread != nil // it reports the error
		if slices.Contains(fileless, CallText(n)) || unread != nil && helps || doctor {
			*config = *noConfig()
			if doctor {
				config.Bad = unread
			}
			unread = nil
		}
		if unread == nil && n != nil && !n.Leaf() && traced.Error == nil {
			return nil, errors.Join(traced.PrintUsage(false), exitNow(ExitOK))
		}
	}
	if unread != nil {
		return nil, unread
	}
	if call, err = parser.Parse(args); err != nil {
		return nil, usageError(parser, config, err)
	}
	if err := config.checkContext(call); err != nil {
		return nil, err
	}
	takeGrafana(e.Getenv, config, call)
	e.Flags, e.headless = t.Common(), t.Headless()
	e.Config, e.Context = config, config.Context
	return call, nil
}

// Parse parses a call. Its Env prints nothing.
func Parse(streams Streams, newTree func() Tree, args ...string) (*Env, *kong.Context, error) {
	streams.Out, streams.Err = io.Discard, io.Discard
	other := &Env{Streams: streams, NewTree: newTree, Log: slog.New(slog.DiscardHandler)}
	call, err := other.parse(args)
	return other, call, err
}

// Reread parses the call again, with the config file as it is now.
func (e *Env) Reread() (*Env, *kong.Context, error) {
	again, call, err := Parse(e.Streams, e.NewTree, e.Invocation.args...)
	if err == nil && again.Config.Path == "" && e.Config.Path != "" {
		err = Usagef("limpet config path", "config file %s is gone", e.Config.Path)
	}
	return again, call, err
}

// flagValue returns the value of a flag by its names before the parse, from the arguments or the
// environment of its first name; "" means none.
func flagValue(args []string, env func(string) string, names ...string) string {
	found := env(Variable(names[0][2:]))
	for i, a := range args {
		if a == "--" {
			break
		}
		for _, name := range names {
			rest, ok := strings.CutPrefix(a, name)
			value, assigned := strings.CutPrefix(rest, "=")
			switch {
			case !ok:
			case rest == "" && i+1 < len(args):
				found = args[i+1]
			case assigned || len(name) == 2: // -ojson
				found = value
			}
		}
	}
	return found
}

// fileless are the commands that work without the config file, so that they run when that is
// invalid.
var fileless = []string{"limpet config path", "limpet config init", "limpet config validate", "limpet completion", "limpet man",
	"limpet version"}

// FlagsOf collects the flags of a node and of all commands below it by name. Flags of one name are
// alike for a config file.
func FlagsOf(n *kong.Node) map[string]*kong.Flag {
	out := map[string]*kong.Flag{}
	for _, child := range n.Children {
		maps.Copy(out, FlagsOf(child))
	}
	for _, f := range n.Flags {
		out[f.Name] = f
	}
	return out
}

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
