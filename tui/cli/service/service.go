// Package service has the commands of the systemd unit of the daemon.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/snapshot/diff"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Command has the commands of 'limpet service'.
type Command struct {
	Print     printCmd     `cmd:"" help:"Print the systemd unit of the daemon, made from the settings of this call."`
	Install   installCmd   `cmd:"" writes:"" help:"Write the unit after showing the changes, and enable it."`
	Uninstall uninstallCmd `cmd:"" writes:"" help:"Stop the daemon and remove the unit; the state is kept."`
}

// Location selects the directory of the unit.
type Location struct {
	UnitDir string `name:"unit-dir" help:"Directory of the unit files, as of an image; systemd is not called." placeholder:"DIR"`
}

// unitName is the name of the unit file.
const unitName = "limpet.service"

// unitMark begins a unit that limpet may replace and remove.
const unitMark = "# Made by 'limpet service install'"

// path returns the path of the unit file.
func (p Location) path(user bool, env func(string) string) (string, error) {
	switch {
	case p.UnitDir != "":
		return filepath.Join(p.UnitDir, unitName), nil
	case !user:
		return "/etc/systemd/system/" + unitName, nil
	case filepath.IsAbs(env("XDG_CONFIG_HOME")):
		return filepath.Join(env("XDG_CONFIG_HOME"), "systemd/user", unitName), nil
	case filepath.IsAbs(env("HOME")):
		return filepath.Join(env("HOME"), ".config/systemd/user", unitName), nil
	}
	return "", command.Usagef("limpet service install", "no place for the unit of a user: HOME is not set")
}

// systemd is the service manager of this host.
type systemd struct {
	user   bool
	booted string // exists where systemd runs
	ctl    string // systemctl
}

// managerOf returns systemd; nil when it is not to be notified.
func (p Location) managerOf(user bool) *systemd {
	if p.UnitDir != "" {
		return nil
	}
	return &systemd{user: user, booted: "/run/systemd/system", ctl: "systemctl"}
}

// find returns the path of the unit and its service manager. It fails where systemd has to run and
// does not; a dry run calls nothing of it.
func (p Location) find(e *command.Env, user, dryRun bool) (path string, manager *systemd, err error) {
	if path, err = p.path(user, e.Getenv); err == nil {
		manager = p.managerOf(user)
	}
	if err == nil && !dryRun {
		err = manager.available()
	}
	return path, manager, err
}

// available returns an error where systemd does not run.
func (s *systemd) available() error {
	if s == nil {
		return nil
	}
	info, err := os.Stat(s.booted)
	if err == nil && info.IsDir() {
		_, err = exec.LookPath(s.ctl)
	}
	if err != nil {
		return command.Errorf(command.ExitError,
			"limpet --daemon    # to be started by what this host has instead; the unit: limpet service print",
			"this host does not run systemd: %w", err)
	}
	return nil
}

// call is a call of systemctl as on a command line.
func (s *systemd) call(args ...string) []string {
	words := []string{s.ctl}
	if s.user {
		words = append(words, "--user")
	}
	return append(words, args...)
}

func (s *systemd) run(ctx context.Context, args ...string) (string, error) {
	words := s.call(args...)
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", command.Errorf(command.ExitError, "journalctl -u "+unitName+" -n 20", "%s: %w: %s", strings.Join(words, " "), err,
			strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

type printCmd struct{ unitOptions }

func (c printCmd) Run(e *command.Env, call *kong.Context) error {
	u, err := newUnit(e, call, c.unitOptions)
	if err != nil {
		return err
	}
	text := u.text()
	return e.PrintOne(map[string]string{"name": unitName, "text": text}, unitName, func(w io.Writer) { io.WriteString(w, text) })
}

type installCmd struct {
	unitOptions
	Location
	DryRun bool `name:"dry-run" help:"Show what would be done without doing it."`
	Now    bool `help:"Start the daemon too, or restart it when the unit has changed."`
}

func (c installCmd) Run(ctx context.Context, e *command.Env, call *kong.Context) error {
	u, err := newUnit(e, call, c.unitOptions)
	if err != nil {
		return err
	}
	path, manager, err := c.find(e, c.User, c.DryRun)
	if err != nil {
		return err
	}
	if err := u.checkVisible(manager); err != nil {
		return err
	}
	out, err := newChange(path, u.text(), c.DryRun)
	if err != nil {
		return err
	}
	if !e.Flags.Data() && e.Flags.Output != "name" {
		if out.Changed {
			fmt.Fprintf(e.Out, "%s:\n%s", path, out.Diff)
		} else {
			fmt.Fprintf(e.Out, "%s is as it should be\n", path)
		}
	}
	if err := out.apply(ctx, manager, installSteps(out.Changed, c.Now)); err != nil {
		return err
	}
	return e.PrintOne(out, path, func(w io.Writer) {
		out.writeRan(w)
		if !c.Now && !c.DryRun && manager != nil {
			fmt.Fprintf(w, "start it with: limpet service install --now%s\n", map[bool]string{true: " --user"}[c.User])
		}
		if !c.User && manager != nil {
			fmt.Fprintf(w, "look at it with: sudo limpet --state %s/%s\n", stateHome, command.StateName)
		}
	})
}

type uninstallCmd struct {
	Location
	User   bool `help:"The service of this user, instead of the host's."`
	DryRun bool `name:"dry-run" help:"Show what would be done without doing it."`
}

func (c uninstallCmd) Run(ctx context.Context, e *command.Env) error {
	path, manager, err := c.find(e, c.User, c.DryRun)
	if err != nil {
		return err
	}
	out, err := newChange(path, "", c.DryRun)
	if err != nil {
		return err
	}
	if out.Changed {
		err = out.apply(ctx, manager, [][]string{{"disable", "--now", unitName}, fileStep, {"daemon-reload"}})
	}
	if err != nil {
		return err
	}
	return e.PrintOne(out, path, func(w io.Writer) {
		switch {
		case !out.Changed:
			fmt.Fprintf(w, "%s is not there\n", path)
		case c.DryRun:
			fmt.Fprintf(w, "would remove %s\n", path)
		default:
			fmt.Fprintf(w, "%s is removed; the state stays\n", path)
		}
		out.writeRan(w)
	})
}

// fileStep stands for the change of the file among the calls of systemctl.
var fileStep []string

// installSteps are the calls of systemctl that activate a unit.
func installSteps(changed, now bool) (out [][]string) {
	if changed {
		out = append(out, fileStep, []string{"daemon-reload"})
	}
	out = append(out, []string{"enable", unitName})
	switch {
	case now && changed:
		out = append(out, []string{"restart", unitName})
	case now:
		out = append(out, []string{"start", unitName})
	}
	return out
}

// checkVisible rejects what could not work: a program in a directory that the service does not see,
// and a caller without the rights.
func (u unit) checkVisible(manager *systemd) error {
	if manager == nil || u.user {
		return nil
	}
	if hidden := u.hides(u.binary); hidden != "" {
		return command.Usagef("sudo install -m 755 "+text.ShellWord(u.binary)+
			" /usr/local/bin/limpet && sudo /usr/local/bin/limpet service install",
			"the service does not see %s, where this program is", hidden)
	}
	if os.Geteuid() != 0 {
		return command.Errorf(command.ExitError, "sudo limpet service install    # or, for this user alone: limpet service install --user",
			"the service of the host is installed by root")
	}
	return nil
}

// change is what 'limpet service install' and 'uninstall' do, and their output with -o json.
type change struct {
	Unit    string   `json:"unit"`
	Changed bool     `json:"changed"`
	Diff    string   `json:"diff"`
	Ran     []string `json:"ran"` // with --dry-run: what would run
	DryRun  bool     `json:"dryRun"`
	text    string   // of the new unit; "" = none
}

// newChange compares the unit at path with its new content. It rejects one that limpet has not
// written.
func newChange(path, content string, dryRun bool) (*change, error) {
	old, err := os.ReadFile(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the unit: %w", err)
	case err == nil && !strings.HasPrefix(string(old), unitMark):
		return nil, command.Usagef("mv "+text.ShellWord(path)+" "+text.ShellWord(path+".old"),
			"%s was not made by limpet and is left alone", path)
	}
	lines := ""
	for _, line := range diff.Texts(old, []byte(content)).Lines {
		if line.Op != "@" {
			line.Text = line.Op + " " + line.Text
		}
		lines += line.Text + "\n"
	}
	return &change{Unit: path, Changed: string(old) != content, Diff: lines, DryRun: dryRun, Ran: []string{}, text: content}, nil
}

// apply makes the change and the calls of systemctl, in the order of the steps.
func (c *change) apply(ctx context.Context, manager *systemd, steps [][]string) (err error) {
	for _, args := range steps {
		switch {
		case args == nil && !c.DryRun:
			err = c.writeFile()
		case args != nil && manager != nil:
			c.Ran = append(c.Ran, strings.Join(manager.call(args...), " "))
			if !c.DryRun {
				_, err = manager.run(ctx, args...)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes the unit, which everybody may read, as usual for units, or removes it.
func (c *change) writeFile() error {
	if c.text == "" {
		return os.Remove(c.Unit)
	}
	if err := os.MkdirAll(filepath.Dir(c.Unit), 0o755); err != nil {
		return err
	}
	return command.WriteText(c.Unit, 0o644, c.text)
}

func (c *change) writeRan(w io.Writer) {
	verb := "ran:"
	if c.DryRun {
		verb = "would run:"
	}
	for _, line := range c.Ran {
		fmt.Fprintln(w, verb, line)
	}
}
