package cli

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// fault is one thing that is wrong in a config file.
type fault struct {
	Key     string `json:"key"` // "" = the file as a whole
	Line    int    `json:"line"`
	Problem string `json:"problem"`
	Next    string `json:"next"` // the next command
}

// check refuses what no call can take: a key that is no flag, with the nearest one
// that exists, a key that stands there twice, and a value of a form that no flag has.
func (c *configFile) check(flags map[string]*kong.Flag) error {
	return c.refused(c.faults(flags))
}

// faults lists what check refuses, in the order of the lines.
func (c *configFile) faults(flags map[string]*kong.Flag) []fault {
	known := append(slices.Sorted(maps.Keys(flags)), gitRulesKey, gitVerifyKey)
	var out []fault
	for _, key := range slices.Sorted(maps.Keys(c.Values)) {
		f := fault{Key: key, Line: c.lines[key], Next: "limpet --help    # a key is the name of a flag"}
		name := strings.ReplaceAll(key, "_", "-")
		flag := flags[name]
		_, list := c.Values[key].([]any)
		_, mapping := c.Values[key].(map[string]any)
		first, _ := c.key(name)
		switch {
		case (name == gitRulesKey || name == gitVerifyKey) && first == key: // has a form of its own, and a judge
			out = append(out, c.listFaults(name)...)
			continue
		case flag == nil:
			f.Problem = fmt.Sprintf("unknown key %q", key)
			if near := nearest(key, known); near != "" {
				f.Problem += fmt.Sprintf(", did you mean %q?", near)
			}
		case first != key:
			f.Problem, f.Next = fmt.Sprintf("%s stands there as %s too", key, first), "limpet config show    # says which one is taken"
		case c.Values[key] == nil:
			f.Problem, f.Next = key+" has no value; take the line out for the default", "limpet config show"
		case mapping, list && !flag.IsSlice():
			f.Problem = key + " takes one value"
		default:
			continue
		}
		out = append(out, f)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Line < out[j].Line })
	return out
}

// values judges each value of the file as its flag would.
func (c *configFile) values(flags map[string]*kong.Flag) (out []fault) {
	for _, key := range slices.Sorted(maps.Keys(c.Values)) {
		flag := flags[strings.ReplaceAll(key, "_", "-")]
		if flag == nil {
			continue
		}
		target := reflect.New(flag.Target.Type()).Elem()
		err := flag.Parse(kong.Scan().PushTyped(written(flag, c.Values[key]), kong.FlagValueToken), target)
		if words := flag.EnumSlice(); err == nil && flag.Enum != "" && !slices.Contains(words, fmt.Sprint(target.Interface())) {
			err = fmt.Errorf("must be one of %q but got %q", words, fmt.Sprint(target.Interface()))
		}
		if err != nil {
			out = append(out, fault{key, c.lines[key], strings.TrimPrefix(err.Error(), "--"+flag.Name+": "), "limpet --help    # says what --" + flag.Name + " takes"})
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Line < out[j].Line })
	return out
}

// faultOf is the refusal of a whole file.
func faultOf(err error) fault {
	f := fault{Problem: err.Error(), Next: "limpet --help"}
	var own *Failure
	if errors.As(err, &own) && own.Hint != "" {
		f.Next = own.Hint
	}
	return f
}
