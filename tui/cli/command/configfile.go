package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/fileid"
	"limpet/sync/text"
)

// ConfigFile is a parsed config file: flag names to values, and the lists of listKeys. It decides
// where tokens go, so an invalid one is an error and is never skipped.
type ConfigFile struct {
	Path   string
	Values map[string]any
	nodes  map[string][2]*yamlv3.Node // the keys and values, with their lines
	// From maps flags that were not on the command line to the origin of their value. The parse fills
	// it.
	From map[string]Origin
	// Bad is why the file is ignored; only the doctor ignores one.
	Bad error
	INI bool // it has the form of Grafana's operator.ini
	// Ignored are the keys of that form that have no meaning here.
	Ignored  []string
	Contexts []Context
	Context  *Context // of the call; nil = none
}

// Origin is the origin of a flag's value.
type Origin struct {
	Kind string `json:"source"`         // one of the constants below
	Name string `json:"from,omitempty"` // the flag, the variable or the file
	Line int    `json:"line,omitempty"` // in the file
}

const (
	FromFlag    = "flag"
	FromEnv     = "environment"
	fromFile    = "file"
	FromDefault = "default"
)

// String formats the origin for a person.
func (o Origin) String() string {
	switch {
	case o.Kind == fromFile && o.Line > 0:
		return fmt.Sprintf("config file %s:%d", o.Name, o.Line)
	case o.Kind == fromFile:
		return "config file " + o.Name
	}
	return cmp.Or(o.Name, o.Kind)
}

const (
	// GitRulesKey holds credentials for Git by URL pattern. It has no flag, since its values are
	// secrets.
	GitRulesKey = "git-credentials"
	// GitVerifyKey holds the signature policies of Repositories, whatever those ask for. It has no
	// flag: leaving one out must not disable a policy.
	GitVerifyKey = "git-verify"
)

// ConfigPaths lists the places of the config file; the first that exists is used. The working
// directory is deliberately not among them: a file that came with a checkout must not decide where
// tokens go.
func ConfigPaths(env func(string) string) []string {
	var out []string
	if dir := env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		out = append(out, filepath.Join(dir, "limpet", "config.yaml"))
	} else if home := env("HOME"); filepath.IsAbs(home) {
		out = append(out, filepath.Join(home, ".config", "limpet", "config.yaml"))
	}
	return append(out, "/etc/limpet/config.yaml")
}

// FindConfig returns the config file: the named one, else the first of ConfigPaths that exists,
// else the first.
func FindConfig(explicit string, env func(string) string) (path string, there bool) {
	places := ConfigPaths(env)
	if explicit != "" {
		places = []string{explicit}
	}
	for _, place := range places {
		if _, err := os.Lstat(place); !errors.Is(err, fs.ErrNotExist) {
			return place, true
		}
	}
	return places[0], false
}

// ReadConfig reads the config file. Only a named one must exist.
func ReadConfig(explicit string, env func(string) string) (*ConfigFile, error) {
	path, there := FindConfig(explicit, env)
	if !there && explicit == "" {
		return noConfig(), nil
	}
	data, err := fileid.Read(path, fileid.MaxSettings)
	if err != nil {
		return nil, Usagef("limpet config path    # the one that is looked for", "read config file: %w", err)
	}
	return parseConfig(path, data)
}

// noConfig is an empty config file.
func noConfig() *ConfigFile {
	return &ConfigFile{Values: map[string]any{}, From: map[string]Origin{}, nodes: map[string][2]*yamlv3.Node{}}
}

func parseConfig(path string, data []byte) (*ConfigFile, error) {
	c := noConfig()
	c.Path = path
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if c.INI = isINI(path, data); c.INI {
		if err := c.parseINI(data); err != nil {
			return nil, err
		}
		return c, c.checkMode()
	}
	written := map[string]any{}
	document, err := api.DocumentJSON(data)
	if err == nil {
		err = json.Unmarshal(document, &written)
	}
	if err != nil && isTOML(path, data) {
		return nil, Usagef("limpet config init    # writes an example",
			"config file %s: this looks like TOML; a config file is YAML (key: value), or an ini file of Grafana's operator", path)
	}
	if err != nil {
		return nil, Usagef("limpet config validate "+text.ShellWord(path), "config file %s: %w", path, err)
	}
	for key, value := range written { // Grafana writes max_sync_workers for --max-sync-workers
		name := strings.ReplaceAll(key, "_", "-")
		if _, twice := c.Values[name]; twice {
			return nil, Usagef("limpet config validate "+text.ShellWord(path), "config file %s: %s is there in two spellings", path, name)
		}
		c.Values[name] = value
	}
	var root yamlv3.Node
	if yamlv3.Unmarshal(data, &root) == nil && len(root.Content) > 0 {
		c.setNodes(root.Content[0])
	}
	return c, c.checkMode()
}

// setNodes notes where the keys of a mapping are.
func (c *ConfigFile) setNodes(mapping *yamlv3.Node) {
	for pair := range slices.Chunk(mapping.Content, 2) {
		c.nodes[strings.ReplaceAll(pair[0].Value, "_", "-")] = [2]*yamlv3.Node(pair)
	}
}

// checkMode rejects a file that holds secrets and can be read by others, and one that can be
// written by others.
func (c *ConfigFile) checkMode() error {
	for key, secret := range map[string]bool{
		"token": c.Values["token"] != nil, GitRulesKey: c.Values[GitRulesKey] != nil, "a token in " + ContextsKey: c.hasContextToken(),
	} {
		if !secret {
			continue
		}
		if _, err := auth.ReadPrivate(c.Path); err != nil {
			return Usagef("chmod 600 "+text.ShellWord(c.Path), "config file %s holds %s: %w", c.Path, key, err)
		}
	}
	info, err := os.Stat(c.Path)
	if err != nil {
		return nil // it was read and has been removed since
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	foreign := known && owner.Uid != 0 && int(owner.Uid) != os.Geteuid()
	_, policies := c.Values[GitVerifyKey]
	if mode := info.Mode().Perm(); mode&0o002 != 0 || mode&0o020 != 0 && (foreign || policies) {
		return Usagef("chmod go-w "+text.ShellWord(c.Path), "config file %s can be written by others (mode %04o), and it says where tokens go",
			c.Path, mode)
	}
	return nil
}

// Where returns the origin of a value of the file.
func (c *ConfigFile) Where(key string) Origin {
	o := Origin{Kind: fromFile, Name: c.Path}
	if pair, ok := c.nodes[key]; ok {
		o.Line = pair[0].Line
	}
	return o
}

// resolver gives kong the value of a flag that was not on the command line: from the environment,
// else from the file. Kong itself would prefer the file.
func (c *ConfigFile) resolver(lookup func(string) (string, bool)) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if flag.Name == "help" {
			return nil, nil
		}
		if value, decides := c.setting(flag); decides {
			if value == nil {
				return nil, nil
			}
			c.From[flag.Name] = Origin{Kind: fromFile, Name: c.Path, Line: c.Context.line}
			return FlagValue(flag, value), nil
		}
		// An empty variable is a value for text only: --telemetry-listen "" is off, but no number is
		// empty.
		if v, set := lookup(Variable(flag.Name)); set && (v != "" || flag.Target.Kind() == reflect.String) {
			c.From[flag.Name] = Origin{Kind: FromEnv, Name: Variable(flag.Name)}
			return v, nil
		}
		if value, ok := c.Values[flag.Name]; ok {
			c.From[flag.Name] = c.Where(flag.Name)
			return FlagValue(flag, value), nil
		}
		return nil, nil
	})
}

// withOrigin adds the origin of the value to an error about a flag that was not on the command
// line.
func (c *ConfigFile) withOrigin(err error) error {
	flag, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "--"), " ")
	if from, ok := c.From[strings.TrimSuffix(flag, ":")]; ok {
		return fmt.Errorf("%w (from %s)", err, from)
	}
	return err
}

// Variable returns the environment variable of a flag.
func Variable(flag string) string {
	return "LIMPET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FlagValue converts a YAML value to what kong's mappers take: text as on the command line, or a
// list of that.
func FlagValue(flag *kong.Flag, v any) any {
	switch v := v.(type) {
	case []any:
		parts := make([]any, len(v))
		for i, part := range v {
			parts[i] = FlagValue(flag, part)
		}
		return parts
	case bool:
		// YAML reads on and off as true and false.
		if word := map[bool]string{true: "on", false: "off"}[v]; slices.Contains(flag.EnumSlice(), word) {
			return word
		}
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// Fault is one problem in a config file.
type Fault struct {
	Key     string `json:"key"` // "" = the file as a whole
	Line    int    `json:"line"`
	Problem string `json:"problem"`
	Next    string `json:"next"` // the next command to run
}

// check rejects what no command accepts.
func (c *ConfigFile) check(flags map[string]*kong.Flag) error {
	for _, f := range c.Faults(flags) {
		return Usagef(f.Next, "%s: %s", Origin{Kind: fromFile, Name: c.Path, Line: f.Line}, f.Problem)
	}
	return nil
}

// Faults lists what is wrong with the keys, the values and the contexts, in the order of the lines.
func (c *ConfigFile) Faults(flags map[string]*kong.Flag) []Fault {
	lists := []string{GitRulesKey, GitVerifyKey, ContextsKey} // see listOf and readContexts
	out := c.valueFaults(flags, lists...)
	_, wrong := c.readContexts(flags)
	out = append(out, wrong...)
	slices.SortFunc(out, func(a, b Fault) int { return cmp.Or(a.Line-b.Line, strings.Compare(a.Key, b.Key)) })
	return out
}

// valueFaults lists the keys that are neither flags nor lists, and the values of the wrong form.
func (c *ConfigFile) valueFaults(flags map[string]*kong.Flag, lists ...string) (out []Fault) {
	for key, value := range c.Values {
		problem := ""
		flag := flags[key]
		_, list := value.([]any)
		_, mapping := value.(map[string]any)
		switch {
		case slices.Contains(lists, key):
		case flag == nil:
			problem = fmt.Sprintf("unknown key %q%s", key, Suggestion(key, append(slices.Sorted(maps.Keys(flags)), lists...)))
		case value == nil:
			problem = key + " has no value; take the line out for the default"
		case mapping, list && !flag.IsSlice():
			problem = key + " takes one value"
		}
		if problem != "" {
			out = append(out, Fault{key, c.Where(key).Line, problem, "limpet help flags    # a key is the name of a flag"})
		}
	}
	return out
}

// listOf reads a list of the config file and checks each entry.
func listOf[T interface{ Check() error }](c *ConfigFile, key string) (entries []T, err error) {
	if _, ok := c.Values[key]; !ok {
		return nil, nil
	}
	at := c.Where(key)
	data, err := yaml.Marshal(c.Values[key])
	if err == nil {
		at.Line, err = unknownMember(c.nodes[key][1], reflect.TypeFor[T](), at.Line)
	}
	if err == nil {
		err = yaml.UnmarshalStrict(data, &entries)
	}
	for _, entry := range entries {
		err = cmp.Or(err, entry.Check())
	}
	if err != nil {
		return nil, Usagef("limpet config validate "+text.ShellWord(c.Path), "%s: %s: %w", at, key, err)
	}
	return entries, nil
}

// unknownMember finds the first member of the entries of a list that their type does not have, and
// its line; else it returns the line that it was given.
func unknownMember(list *yamlv3.Node, of reflect.Type, line int) (int, error) {
	var known []string
	for _, field := range reflect.VisibleFields(of) {
		known = append(known, strings.ToLower(field.Name))
	}
	for _, entry := range list.Content {
		for pair := range slices.Chunk(entry.Content, 2) {
			if name := pair[0].Value; entry.Kind == yamlv3.MappingNode && !slices.Contains(known, strings.ToLower(name)) {
				return pair[0].Line, fmt.Errorf("unknown key %q%s", name, Suggestion(name, known))
			}
		}
	}
	return line, nil
}

// GitRules reads credentials by URL pattern from the config file and rejects rules that could never
// apply.
func (e *Env) GitRules() ([]auth.Rule, error) { return listOf[auth.Rule](e.Config, GitRulesKey) }

// GitVerify reads the signature policies from the config file and rejects those that could not be
// met or require nothing.
func (e *Env) GitVerify() ([]auth.VerificationPolicy, error) {
	return listOf[auth.VerificationPolicy](e.Config, GitVerifyKey)
}

// Suggestion returns the question with the candidate that is similar to an unknown word; "" without
// one.
func Suggestion(word string, candidates []string) string {
	if near := text.Nearest(word, candidates); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}
