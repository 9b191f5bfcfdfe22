package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"limpet/sync/text"

	"github.com/alecthomas/kong"
)

type configValidateCmd struct {
	File string `arg:"" optional:"" help:"File to judge. Default: the one in use." type:"path"`
}

// configVerdict is what 'limpet config validate -o json' prints.
type configVerdict struct {
	File     string  `json:"file"` // "" = there is none
	OK       bool    `json:"ok"`
	Problems []fault `json:"problems"`
}

func (c configValidateCmd) Run(ctx context.Context, r *run, call *kong.Context) error {
	path := c.File
	if path == "" {
		path = r.g.Config
	}
	v := configVerdict{Problems: []fault{}}
	file, err := readConfig(path, r.Getenv)
	if err == nil {
		v.File = file.Path
		flags := flagsOf(call.Model.Node)
		v.Problems = append(v.Problems, file.faults(flags)...)
		if len(v.Problems) == 0 {
			v.Problems = append(v.Problems, file.values(flags)...)
		}
		if len(v.Problems) == 0 && file.Path != "" {
			err = r.judge(file.Path)
		}
	} else if v.File = path; path == "" {
		v.File, _ = r.configPath()
	}
	if err != nil {
		v.Problems = append(v.Problems, faultOf(err))
	}
	v.OK = len(v.Problems) == 0
	if err := r.printOne(v, v.File, func(w io.Writer) { v.write(w) }); err != nil || v.OK {
		return err
	}
	return usage(v.Problems[0].Next, "%s in config file %s", text.Plural(len(v.Problems), "problem"), v.File)
}

func (v configVerdict) write(w io.Writer) {
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

// judge makes of a file alone, without the environment, what an agent would be
// made of: relations between settings come out there. Nothing is opened.
func (r *run) judge(path string) error {
	alone := r.World
	alone.Lookup = func(name string) (string, bool) {
		if strings.HasPrefix(name, "LIMPET_") || strings.HasPrefix(name, "GRAFANA_") {
			return "", false
		}
		return r.Lookup(name)
	}
	other, _, err := r.parsed(alone, "--config", path, "status")
	if err != nil {
		return err
	}
	_, err = other.agentConfig(nil, os.DevNull, other.log)
	return err
}
