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
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
	"limpet/tui/cli/command"
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
			items = append(items, Setting{name, mask(name, command.Written(flags[name], written)), e.Config.Where(name)})
		}
	}
	for _, name := range []string{command.GitRulesKey, command.GitVerifyKey} {
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
			return u.Scheme + "://" + u.Host + "/" + masked // whoever knows its path can send to it
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
	case map[string]any: // a rule of git-credentials
		out := map[string]any{}
		for key, part := range value {
			out[key] = mask(name, part)
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

// judge builds the configuration of an agent from a file alone, without the environment: it validates
// relations between settings. Nothing is opened.
func judge(e *command.Env, path string) error {
	alone := e.World
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
