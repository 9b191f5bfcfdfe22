package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
	"limpet/tui/cli/command"
)

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
