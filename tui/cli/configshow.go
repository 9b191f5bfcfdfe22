package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
)

type configCmd struct {
	Show     configShowCmd     `cmd:"" help:"Every setting, its value, and where it comes from; secrets are masked."`
	Path     configPathCmd     `cmd:"" help:"The config file in use, or the one that 'init' would write."`
	Init     configInitCmd     `cmd:"" writes:"" help:"Write a config file with every setting explained."`
	Validate configValidateCmd `cmd:"" help:"Judge a config file: unknown keys, bad values, settings that do not go together."`
}

// setting is one line of 'limpet config show'.
type setting struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
	origin
}

type configShowCmd struct{}

func (configShowCmd) Run(r *run, call *kong.Context) error {
	var items []setting
	for _, flag := range call.Model.Node.Flags {
		if flag.Name != "help" {
			items = append(items, r.setting(call, flag))
		}
	}
	// The settings of single commands are told where somebody has made them.
	root := len(items)
	for name, flag := range flagsOf(call.Model.Node) {
		key, inFile := r.config.key(name)
		value, inEnv := r.Lookup(variable(name))
		switch {
		case name == "help" || hasFlag(call.Model.Node, name):
		case inEnv && value != "":
			items = append(items, setting{name, mask(name, value), origin{Kind: fromEnv, Name: variable(name)}})
		case inFile:
			items = append(items, setting{name, mask(name, written(flag, r.config.Values[key])), r.config.where(key)})
		}
	}
	rest := items[root:]
	sort.Slice(rest, func(i, j int) bool { return rest[i].Name < rest[j].Name })
	for _, name := range []string{gitRulesKey, gitVerifyKey} {
		if key, ok := r.config.key(name); ok {
			items = append(items, setting{name, mask(name, r.config.Values[key]), r.config.where(key)})
		}
	}
	t := table{Columns: []string{"NAME", "VALUE", "SOURCE"}}
	for _, s := range items {
		t.add("", s.Name, s.Name, valueText(s.Value), s.String())
	}
	return r.printList(items, t)
}

// setting reads the value of a flag of every command after the parse.
func (r *run) setting(call *kong.Context, flag *kong.Flag) setting {
	s := setting{flag.Name, shown(flag.Target), origin{Kind: fromDefault}}
	if o, ok := r.config.from[flag.Name]; ok {
		s.origin = o
	}
	for _, p := range call.Path {
		if p.Flag != nil && p.Flag.Name == flag.Name && !p.Resolved {
			s.origin = origin{Kind: fromFlag, Name: "--" + flag.Name}
		}
	}
	if s.Kind == fromDefault {
		r.otherwise(&s)
	}
	s.Value = mask(flag.Name, s.Value)
	return s
}

// otherwise fills in where a setting comes from when it was not made: the places
// of the XDG and systemd conventions.
func (r *run) otherwise(s *setting) {
	switch s.Name {
	case "config":
		if r.config.Path != "" {
			s.Value = r.config.Path
		}
	case "state":
		if path, place, err := r.usualState(); err == nil {
			s.Value, s.origin = path, origin{Kind: fromDefault, Name: "default, from $" + place}
		}
	case "credentials-dir":
		if dir := r.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
			s.Value, s.origin = dir, origin{Kind: fromEnv, Name: "CREDENTIALS_DIRECTORY"}
		}
	}
}

// masked stands where a secret would.
const masked = "********"

// mask hides what must not be shown of the value of a setting.
func mask(name string, v any) any {
	switch value := v.(type) {
	case string:
		if name == "token" && value != "" {
			return masked
		}
		return text.Redact(value)
	case []any:
		out := make([]any, len(value))
		for i, part := range value {
			out[i] = mask(name, part)
		}
		return out
	case map[string]any: // a rule of git-credentials: what is below "values" is secret
		out := map[string]any{}
		for key, part := range value {
			if secrets, ok := part.(map[string]any); ok && key != "files" {
				hidden := map[string]any{}
				for name := range secrets {
					hidden[name] = masked
				}
				out[key] = hidden
				continue
			}
			out[key] = mask(name, part)
		}
		return out
	}
	return v
}

// shown is the value of a flag for JSON and YAML: durations as people write them.
func shown(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return value.String()
	case size:
		return int64(value)
	case []string:
		return append([]string{}, value...)
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

type configPathCmd struct{}

func (configPathCmd) Run(r *run) error {
	path, there := r.configPath()
	out := struct {
		Path   string   `json:"path"`
		Exists bool     `json:"exists"`
		Places []string `json:"places"` // where it is looked for, the first found wins
	}{path, there, configPaths(r.Getenv)}
	if !there {
		r.note("it is not there; write it with: limpet config init")
	}
	return r.printOne(out, path, func(w io.Writer) { fmt.Fprintln(w, path) })
}

// configPath finds the config file in use, or the place where it would be.
func (r *run) configPath() (path string, there bool) {
	places := configPaths(r.Getenv)
	if r.g.Config != "" {
		places = []string{r.g.Config}
	}
	for _, place := range places {
		if _, err := os.Lstat(place); !errors.Is(err, fs.ErrNotExist) { // as readConfig sees it
			return place, true
		}
	}
	return places[0], false
}
