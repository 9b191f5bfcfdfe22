// Package config has the commands of the config file.
package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/widget"
)

// Command has the commands of 'limpet config'.
type Command struct {
	Show     showCmd     `cmd:"" help:"Every setting, its value and its origin; secrets are masked."`
	Path     pathCmd     `cmd:"" help:"The config file in use, or the one that 'init' would write."`
	Init     initCmd     `cmd:"" writes:"" help:"Write a config file with every setting explained."`
	Validate validateCmd `cmd:"" help:"Validate a config file: unknown keys, invalid values, inconsistent settings."`
}

// Setting is one line of 'limpet config show'.
type Setting struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
	command.Origin
}

type showCmd struct{}

func (showCmd) Run(e *command.Env, call *kong.Context) error {
	var items []Setting
	shown := map[string]bool{"help": true}
	for _, flag := range call.Model.Node.Flags {
		if !shown[flag.Name] {
			shown[flag.Name] = true
			items = append(items, SettingOf(e, call, flag))
		}
	}
	// Settings of single commands are shown when they are set.
	flags := command.FlagsOf(call.Model.Node)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		written, inFile := e.Config.Values[name]
		value, inEnv := e.Lookup(command.Variable(name))
		switch {
		case shown[name]:
		case inEnv && value != "":
			items = append(items, Setting{name, mask(name, value), command.Origin{Kind: command.FromEnv, Name: command.Variable(name)}})
		case inFile:
			items = append(items, Setting{name, mask(name, command.FlagValue(flags[name], written)), e.Config.Where(name)})
		}
	}
	for _, name := range []string{command.GitRulesKey, command.GitVerifyKey, command.ContextsKey} {
		if value, ok := e.Config.Values[name]; ok {
			items = append(items, Setting{name, mask(name, value), e.Config.Where(name)})
		}
	}
	t := command.Table{Columns: []string{"NAME", "VALUE", "SOURCE"}}
	for _, s := range items {
		t.Add("", s.Name, s.Name, valueText(s.Value), s.String())
	}
	return e.PrintList(items, t)
}

// SettingOf returns the value and the origin of a flag of every command after the parse.
func SettingOf(e *command.Env, call *kong.Context, flag *kong.Flag) Setting {
	s := Setting{flag.Name, Shown(flag.Target), command.Origin{Kind: command.FromDefault}}
	if o, ok := e.Config.From[flag.Name]; ok {
		s.Origin = o
	}
	for _, p := range call.Path {
		if p.Flag != nil && p.Flag.Name == flag.Name && !p.Resolved {
			s.Origin = command.Origin{Kind: command.FromFlag, Name: "--" + flag.Name}
		}
	}
	if s.Kind == command.FromDefault {
		switch s.Name { // by the conventions of XDG and systemd
		case "config":
			if e.Config.Path != "" {
				s.Value = e.Config.Path
			}
		case "state":
			if path, place, err := e.UsualState(); err == nil {
				s.Value, s.Origin = path, command.Origin{Kind: command.FromDefault, Name: "default, from $" + place}
			}
		case "credentials-dir":
			if dir := e.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
				s.Value, s.Origin = dir, command.Origin{Kind: command.FromEnv, Name: "CREDENTIALS_DIRECTORY"}
			}
		}
	}
	s.Value = mask(flag.Name, s.Value)
	return s
}

// masked replaces a secret.
const masked = "********"

func mask(name string, v any) any {
	switch value := v.(type) {
	case string:
		if name == "token" && value != "" {
			return masked
		}
		if u, err := url.Parse(value); err == nil && u.Host != "" && (name == "notify" || name == "heartbeat") {
			return u.Scheme + "://" + u.Host + "/" + masked // its path is all that a sender needs
		}
		return text.Redact(value)
	case []string:
		out := make([]string, len(value))
		for i, part := range value {
			out[i] = mask(name, part).(string)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, part := range value {
			out[i] = mask(name, part)
		}
		return out
	case map[string]any: // a rule of git-credentials, or a context
		out := map[string]any{}
		for key, part := range value {
			out[key] = mask(key, part)
			if secrets, ok := part.(map[string]any); ok && key != "files" {
				hidden := map[string]any{}
				for name := range secrets {
					hidden[name] = masked
				}
				out[key] = hidden
			}
		}
		return out
	}
	return v
}

// Shown returns the value of a flag for JSON and YAML: durations as text.
func Shown(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return value.String()
	case command.Size:
		return int64(value)
	case []string:
		return command.List(value)
	}
	return v.Interface()
}

func valueText(v any) string {
	switch value := v.(type) {
	case nil:
		return "-"
	case []string:
		return text.OrDash(strings.Join(value, ","))
	case []any:
		var parts []string
		for _, part := range value {
			parts = append(parts, valueText(part))
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		if name, ok := value["name"]; ok { // of a context
			return fmt.Sprint(name)
		}
		return fmt.Sprint(value["url"])
	}
	return text.OrDash(fmt.Sprint(v))
}

type pathCmd struct{}

func (pathCmd) Run(e *command.Env) error {
	path, there := command.FindConfig(e.Flags.Config, e.Getenv)
	out := struct {
		Path   string   `json:"path"`
		Exists bool     `json:"exists"`
		Places []string `json:"places"` // the places where it is looked for, in order
	}{path, there, command.ConfigPaths(e.Getenv)}
	if !there {
		e.Notef("it is not there; write it with: limpet config init")
	}
	return e.PrintDone(out, path, "%s", path)
}

type validateCmd struct {
	File string `arg:"" optional:"" help:"File to validate. Default: the one in use." type:"path"`
}

// verdict is the output of 'limpet config validate -o json'.
type verdict struct {
	File     string          `json:"file"` // "" = there is none
	OK       bool            `json:"ok"`
	Problems []command.Fault `json:"problems"`
}

func (c validateCmd) Run(ctx context.Context, e *command.Env, call *kong.Context) error {
	path := cmp.Or(c.File, e.Flags.Config)
	v := verdict{Problems: []command.Fault{}}
	file, err := command.ReadConfig(path, e.Getenv)
	if err != nil {
		v.File, _ = command.FindConfig(path, e.Getenv)
	} else {
		v.File, v.Problems = file.Path, command.List(file.Faults(command.FlagsOf(call.Model.Node)))
		if len(v.Problems) == 0 && file.Path != "" {
			err = judge(e, file.Path)
		}
	}
	if err != nil {
		_, next := command.Classify(err)
		v.Problems = append(v.Problems, command.Fault{Problem: err.Error(), Next: cmp.Or(next, "limpet --help")})
	}
	v.OK = len(v.Problems) == 0
	if err := e.PrintOne(v, v.File, func(w io.Writer) { v.write(w) }); err != nil || v.OK {
		return err
	}
	return command.Usagef(v.Problems[0].Next, "%s in config file %s", text.Plural(len(v.Problems), "problem"), v.File)
}

func (v verdict) write(w io.Writer) {
	switch {
	case v.File == "":
		fmt.Fprintln(w, "there is no config file, and none is needed")
	case v.OK:
		fmt.Fprintln(w, v.File+" is good")
	}
	for _, f := range v.Problems {
		at := v.File
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", v.File, f.Line)
		}
		if f.Key != "" && !strings.Contains(f.Problem, f.Key) {
			at += ": " + f.Key
		}
		fmt.Fprintf(w, "%s: %s\n", at, text.Clean(f.Problem))
	}
}

// judge builds the configuration of an agent from a file alone, without the environment: it
// validates relations between settings. Nothing is opened.
func judge(e *command.Env, path string) error {
	alone := e.Streams
	alone.Lookup = func(name string) (string, bool) {
		if strings.HasPrefix(name, "LIMPET_") || strings.HasPrefix(name, "GRAFANA_") {
			return "", false
		}
		return e.Lookup(name)
	}
	other, _, err := command.Parse(alone, e.NewTree, "--config", path, "status")
	if err != nil {
		return err
	}
	_, err = other.AgentConfig(nil, os.DevNull, other.Log)
	return err
}

type initCmd struct {
	File  string `arg:"" optional:"" help:"File to write. Default: the first place of a config file." type:"path"`
	Force bool   `help:"Replace an existing file."`
}

func (c initCmd) Run(e *command.Env, call *kong.Context) error {
	path := cmp.Or(c.File, e.Flags.Config, command.ConfigPaths(e.Getenv)[0])
	if _, err := os.Lstat(path); err == nil && !c.Force {
		return command.Usagef(e.Invocation.WithFlag("--force", "")+"    # or see it: limpet config show", "config file %s already exists",
			path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return command.Usagef("limpet config init FILE", "make the directory of the config file: %w", err)
	}
	if err := command.Writable(path, "limpet config init"); err != nil {
		return err
	}
	if err := command.WriteText(path, 0o600, exampleConfig(call.Model.Node)); err != nil {
		return command.Errorf(command.ExitError, "limpet config init FILE    # another place", "write config file: %w", err)
	}
	show := "config show"
	if c.File != "" {
		show += " --config " + text.ShellWord(path)
	}
	return e.PrintDone(map[string]string{"path": path}, path, "wrote %s (all settings commented out); try: %s", path,
		e.CommandFor("", show))
}

const configHead = `# Settings of limpet. A key is the name of a flag; a flag beats the variable
# LIMPET_<NAME>, the variable beats this file, this file beats the default.
# Uncomment what you want to set, and check the file with
#
#   limpet config validate
#
# A file that holds a token or git-credentials must be readable by its owner alone.
`

const configTail = `
# ---- Credentials for Git -------------------------------------------------------
#
# By the longest pattern that fits; "files" are read when they are needed.
#git-credentials:
#- url: https://github.com/acme
#  values: {username: git}
#  files: {token: /etc/limpet/acme.token}

# ---- Other sites, for --context and limpet fleet -------------------------------
#
#contexts:
#- {name: site-7, ssh: site-7.example.com}
`

// exampleConfig is a config file with every setting as a comment, its meaning and an example.
func exampleConfig(root *kong.Node) string {
	var b strings.Builder
	b.WriteString(configHead)
	group := ""
	for _, flag := range root.Flags {
		switch flag.Name {
		case "help", "config", "context", "token", "timeout", "drain", "quiet", "yes", "json":
			// These are for one call; a token has a file of its own.
			continue
		}
		if key := command.GroupOf(flag); key != group {
			group = key
			fmt.Fprintf(&b, "\n# ---- %s %s\n", group, strings.Repeat("-", 74-len(group)))
		}
		help := strings.Join(widget.Wrap(strings.ReplaceAll(flag.Help, "$$", "$"), 78), "\n# ")
		fmt.Fprintf(&b, "\n# %s\n#%s: %s\n", help, flag.Name, exampleValue(flag))
	}
	b.WriteString(configTail)
	return b.String()
}

// exampleValue is an example of a flag's value in YAML: its default, else one for its placeholder.
func exampleValue(flag *kong.Flag) string {
	value := cmp.Or(flag.Default, map[string]string{
		"URL": "https://grafana.example.com", "FILE": "/etc/limpet/" + strings.TrimSuffix(flag.Name, "-file"),
		"DIR": "/etc/limpet/" + flag.Name, "PROGRAM": "/usr/local/bin/reload",
		"SELECTOR": "site=east", "ACTION": "pull", "GROUP/KIND": "playlist.grafana.app/Playlist",
		"ADDRESS": "127.0.0.1:9441", "CIDR": "10.0.0.0/8", "NAME": "site", "ID": "edge",
		"HOST=MIRROR": "ghcr.io=mirror.example.com/ghcr",
	}[flag.PlaceHolder])
	words := flag.EnumSlice()
	switch {
	case flag.Name == "state":
		value = "/var/lib/limpet/limpet.db"
	case value != "":
	case flag.Enum != "":
		value = words[len(words)-1]
	case flag.IsBool():
		value = "false"
	default:
		value = "0"
	}
	if flag.IsSlice() {
		return "[" + Quoted(value) + "]"
	}
	return Quoted(value)
}

var plainYAML = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/._-]*(:[A-Za-z0-9/._-]+)*$`)

// Quoted returns text as a YAML scalar that is read as text.
func Quoted(text string) string {
	if plainYAML.MatchString(text) && text != "on" && text != "off" {
		return text
	}
	return strconv.Quote(text)
}
