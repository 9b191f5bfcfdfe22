package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
	"sigs.k8s.io/yaml"

	"limpet/sync/view"
)

// configFile is a config file that was read: flag names to values. Keys are
// flag names; "git-credentials" alone holds a list of its own.
type configFile struct {
	Path   string
	Values map[string]any
	// from says where the value of a flag that was not on the command line came
	// from. It is filled by the parse.
	from map[string]string
}

// gitRulesKey holds credentials for Git by URL pattern. It has no flag, since
// its values are secrets.
const gitRulesKey = "git-credentials"

// configPaths lists the places of the config file, the first found wins. The
// working directory is not among them on purpose: a file that came with a
// checkout must not decide where tokens go.
func configPaths(env func(string) string) []string {
	var out []string
	if dir := env("XDG_CONFIG_HOME"); dir != "" {
		out = append(out, filepath.Join(dir, "limpet", "config.yaml"))
	} else if home := env("HOME"); home != "" {
		out = append(out, filepath.Join(home, ".config", "limpet", "config.yaml"))
	}
	return append(out, "/etc/limpet/config.yaml")
}

// readConfig reads the file that explicit names, else the first of
// configPaths, else nothing. A named file must exist.
func readConfig(explicit string, env func(string) string) (*configFile, error) {
	paths := configPaths(env)
	if explicit != "" {
		paths = []string{explicit}
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && explicit == "" {
			continue
		}
		if err != nil {
			return nil, usage("", "read config file: %w", err)
		}
		return parseConfig(path, data)
	}
	return &configFile{Values: map[string]any{}, from: map[string]string{}}, nil
}

func parseConfig(path string, data []byte) (*configFile, error) {
	c := &configFile{Path: path, Values: map[string]any{}, from: map[string]string{}}
	if err := yaml.UnmarshalStrict(data, &c.Values); err != nil {
		return nil, usage("", "config file %s: %w", path, err)
	}
	for _, key := range []string{"token", gitRulesKey} {
		if _, secret := c.Values[key]; !secret {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			return nil, usage("chmod 600 "+path, "config file %s holds %s and can be read by others (mode %o)", path, key, info.Mode().Perm())
		}
	}
	return c, nil
}

// check refuses keys that no flag has, with the nearest one that exists.
func (c *configFile) check(known []string) error {
	names := map[string]bool{gitRulesKey: true}
	for _, k := range known {
		names[k] = true
	}
	keys := make([]string, 0, len(c.Values))
	for k := range c.Values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if names[strings.ReplaceAll(k, "_", "-")] {
			continue
		}
		msg := fmt.Sprintf("config file %s: unknown key %q", c.Path, k)
		if near := nearest(k, append(known, gitRulesKey)); near != "" {
			msg += fmt.Sprintf(", did you mean %q?", near)
		}
		return usage("limpet --help    # a key is the name of a flag", "%s", msg)
	}
	return nil
}

// resolver gives kong the value of a flag that was not on the command line: from
// the environment, else from the file. Kong's own look at the environment comes
// after the file, which is the wrong way round.
func (c *configFile) resolver(lookup func(string) (string, bool)) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if flag.Name == "help" {
			return nil, nil
		}
		// An empty variable is a value for a text only: --telemetry-listen "" is
		// off, but no number is empty.
		if v, set := lookup(variable(flag.Name)); set && (v != "" || flag.Target.Kind() == reflect.String) {
			c.from[flag.Name] = variable(flag.Name)
			return v, nil
		}
		for _, key := range []string{flag.Name, strings.ReplaceAll(flag.Name, "-", "_")} {
			if v, ok := c.Values[key]; ok {
				c.from[flag.Name] = "config file " + c.Path
				return scalar(v), nil
			}
		}
		return nil, nil
	})
}

// blame adds to the complaint about a flag where its value came from, when that
// was not the command line.
func (c *configFile) blame(err error) error {
	flag, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "--"), " ")
	if from := c.from[strings.TrimSuffix(flag, ":")]; from != "" {
		return fmt.Errorf("%w (from %s)", err, from)
	}
	return err
}

// variable is the name of the environment variable of a flag.
func variable(flag string) string {
	return "LIMPET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// scalar turns a YAML value into what kong's mappers take: text, or a list of
// text.
func scalar(v any) any {
	if list, ok := v.([]any); ok {
		parts := make([]string, len(list))
		for i, p := range list {
			parts[i] = fmt.Sprint(p)
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v)
}

// nearest returns the candidate that word was probably meant to be: one that
// begins with it, else the one few edits away, as far as a third of its length.
// "" when there is none.
func nearest(word string, candidates []string) string {
	best, bestDist := "", len(word)/3+1
	for _, c := range candidates {
		if len(word) >= 3 && strings.HasPrefix(c, word) {
			return c
		}
		if d := view.Distance(word, c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}
