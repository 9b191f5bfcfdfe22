package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"limpet/sync/auth"
	"limpet/sync/text"
)

// ConfigFile is a parsed config file: flag names to values. Keys are flag names; "git-credentials" and "git-
// verify" hold lists.
type ConfigFile struct {
	Path   string
	Values map[string]any
	root   *yamlv3.Node // the mapping of the file, for lines; nil = empty
	// from maps flags that were not on the command line to the origin of their value. The parse fills it.
	From map[string]Origin
	// bad is why the file is ignored; only the doctor ignores one.
	Bad error
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
	case o.Name != "":
		return o.Name
	}
	return o.Kind
}

// GitRulesKey holds credentials for Git by URL pattern. It has no flag, since its values are secrets.
const GitRulesKey = "git-credentials"

// ConfigPaths lists the places of the config file; the first that exists is used. The working directory is
// deliberately not among them: a file that came with a checkout must not decide where tokens go.
func ConfigPaths(env func(string) string) []string {
	var out []string
	if dir := env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		out = append(out, filepath.Join(dir, "limpet", "config.yaml"))
	} else if home := env("HOME"); filepath.IsAbs(home) {
		out = append(out, filepath.Join(home, ".config", "limpet", "config.yaml"))
	}
	return append(out, "/etc/limpet/config.yaml")
}

// ReadConfig reads the named file, else the first of ConfigPaths, else nothing. A named file must exist.
func ReadConfig(explicit string, env func(string) string) (*ConfigFile, error) {
	paths := ConfigPaths(env)
	if explicit != "" {
		paths = []string{explicit}
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && explicit == "" && !isLink(path) {
			continue
		}
		if err != nil {
			return nil, readConfigError(path, err)
		}
		return parseConfig(path, data)
	}
	return noConfig(), nil
}

// noConfig is an empty config file.
func noConfig() *ConfigFile {
	return &ConfigFile{Values: map[string]any{}, From: map[string]Origin{}}
}

func parseConfig(path string, data []byte) (*ConfigFile, error) {
	c := noConfig()
	c.Path = path
	if err := yaml.UnmarshalStrict(data, &c.Values); err != nil {
		return nil, Usagef("limpet config validate "+ShellWord(path), "config file %s: %w", path, err)
	}
	var document yamlv3.Node
	if yamlv3.Unmarshal(data, &document) == nil && len(document.Content) > 0 {
		c.root = document.Content[0]
	}
	if err := checkConfigMode(path); err != nil {
		return nil, err
	}
	for _, key := range []string{"token", GitRulesKey} {
		if _, secret := c.Key(key); !secret {
			continue
		}
		if _, err := auth.ReadPrivate(path); err != nil {
			return nil, Usagef(chmodPrivate(path), "config file %s holds %s: %w", path, key, err)
		}
	}
	if _, there := c.Key(GitVerifyKey); there {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o022 != 0 {
			return nil, Usagef("chmod go-w "+ShellWord(path), "config file %s holds %s and can be written by others (mode %o)", path,
				GitVerifyKey, info.Mode().Perm())
		}
	}
	return c, nil
}

// member returns the nodes of a key of a YAML mapping and of its value, nil when it has none.
func member(mapping *yamlv3.Node, name string) (key, value *yamlv3.Node) {
	for i := 0; mapping != nil && mapping.Kind == yamlv3.MappingNode && i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

// line returns the line of a key of the file, counted from 1, 0 for none.
func (c *ConfigFile) line(key string) int {
	if node, _ := member(c.root, key); node != nil {
		return node.Line
	}
	return 0
}

// fieldLine returns the line of a key of an entry of a list.
func (c *ConfigFile) fieldLine(list string, entry int, field string) int {
	_, entries := member(c.root, list)
	if entries == nil || entries.Kind != yamlv3.SequenceNode || entry >= len(entries.Content) {
		return c.line(list)
	}
	if key, _ := member(entries.Content[entry], field); key != nil {
		return key.Line
	}
	return entries.Content[entry].Line
}

// Where returns the origin of a value of the file.
func (c *ConfigFile) Where(key string) Origin {
	return Origin{Kind: fromFile, Name: c.Path, Line: c.line(key)}
}

// resolver gives kong the value of a flag that was not on the command line: from the environment, else from
// the file. Kong itself would prefer the file.
func (c *ConfigFile) resolver(lookup func(string) (string, bool)) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if flag.Name == "help" {
			return nil, nil
		}
		// An empty variable is a value for text only: --telemetry-listen "" is off, but no number is empty.
		if v, set := lookup(Variable(flag.Name)); set && (v != "" || flag.Target.Kind() == reflect.String) {
			c.From[flag.Name] = Origin{Kind: FromEnv, Name: Variable(flag.Name)}
			return v, nil
		}
		if key, ok := c.Key(flag.Name); ok {
			c.From[flag.Name] = c.Where(key)
			return Written(flag, c.Values[key]), nil
		}
		return nil, nil
	})
}

// Key finds the key of a flag in the file; its dashes may be written as underscores.
func (c *ConfigFile) Key(flag string) (string, bool) {
	for _, key := range []string{flag, strings.ReplaceAll(flag, "-", "_")} {
		if _, ok := c.Values[key]; ok {
			return key, true
		}
	}
	return "", false
}

// blame adds the origin of the value to an error about a flag that was not on the command line.
func (c *ConfigFile) blame(err error) error {
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

// Written converts a YAML value to what kong's mappers take: text as on the command line, or a list of that.
func Written(flag *kong.Flag, v any) any {
	switch v := v.(type) {
	case []any:
		parts := make([]any, len(v))
		for i, part := range v {
			parts[i] = Written(flag, part)
		}
		return parts
	case bool:
		// YAML reads on and off as true and false.
		if words := flag.EnumSlice(); slices.Contains(words, "on") && v {
			return "on"
		} else if slices.Contains(words, "off") && !v {
			return "off"
		}
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// Nearest returns the most similar candidate: one with word as its prefix, else one within an edit distance of
// a third of its length. "" means none.
func Nearest(word string, candidates []string) string {
	best, bestDist := "", len(word)/3+1
	for _, c := range candidates {
		if len(word) >= 3 && strings.HasPrefix(c, word) {
			return c
		}
		if d := text.Distance(word, c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}
