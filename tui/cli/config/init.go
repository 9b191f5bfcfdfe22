package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/widget"
)

type initCmd struct {
	File  string `arg:"" optional:"" help:"File to write. Default: the first place of a config file." type:"path"`
	Force bool   `help:"Replace an existing file."`
}

func (c initCmd) Run(e *command.Env, call *kong.Context) error {
	path := cmp.Or(c.File, e.Flags.Config, command.ConfigPaths(e.Getenv)[0])
	if _, err := os.Lstat(path); err == nil && !c.Force {
		return command.Usagef(e.Invocation.Again("--force", "")+"    # or see it: limpet config show", "config file %s already exists",
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
`

// exampleConfig is a config file with every setting as a comment, its meaning and an example.
func exampleConfig(root *kong.Node) string {
	var b strings.Builder
	b.WriteString(configHead)
	group := ""
	for _, flag := range root.Flags {
		switch flag.Name {
		case "help", "config", "token", "timeout", "drain", "quiet", "yes", "json":
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
		"ADDRESS": "127.0.0.1:9441", "CIDR": "10.0.0.0/8",
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
