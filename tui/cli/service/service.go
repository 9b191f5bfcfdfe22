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

	"limpet/tui/cli/command"
)

// Command has the commands of 'limpet service'.
type Command struct {
	Print     printCmd     `cmd:"" help:"Print the systemd unit of the daemon, made from the settings of this call."`
	Install   installCmd   `cmd:"" writes:"" help:"Write the unit after showing the changes, and enable it."`
	Uninstall uninstallCmd `cmd:"" writes:"" help:"Stop the daemon and remove the unit; the state is kept."`
	Status    statusCmd    `cmd:"" help:"Show whether the unit is installed, runs, and starts this program."`
}

// Location selects the directory of the unit.
type Location struct {
	UnitDir string `name:"unit-dir" help:"Directory of the unit files, such as that of an image; systemd is not called then." placeholder:"DIR"`
}

// unitName is the name of the unit file.
const unitName = "limpet.service"

// unitMark begins a unit that limpet may replace and remove.
const unitMark = "# Made by 'limpet service install'"

// Path returns the path of the unit file.
func (p Location) Path(user bool, env func(string) string) (string, error) {
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

// Manager returns systemd; nil when it is not to be notified.
func (p Location) Manager(user bool) *systemd {
	if p.UnitDir != "" {
		return nil
	}
	return &systemd{user: user, booted: "/run/systemd/system", ctl: "systemctl"}
}

// There returns an error where systemd does not run.
func (s *systemd) There() error {
	if s == nil {
		return nil
	}
	if info, err := os.Stat(s.booted); err != nil || !info.IsDir() {
		return command.Errorf(command.ExitError, "limpet --daemon    # to be started by what this host has instead; the unit: limpet service print", "this host does not run systemd")
	}
	if _, err := exec.LookPath(s.ctl); err != nil {
		return command.Errorf(command.ExitError, "limpet service print    # the unit, to be installed by hand",
			"systemctl is not there: %w", err)
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

// run makes a call and returns its output.
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

// installed is the output of 'limpet service install' and 'uninstall' with -o json.
type installed struct {
	Unit    string   `json:"unit"`
	Changed bool     `json:"changed"`
	Diff    string   `json:"diff"`
	Ran     []string `json:"ran"` // with --dry-run: what would run
	DryRun  bool     `json:"dryRun"`
}

func (c installCmd) Run(ctx context.Context, e *command.Env, call *kong.Context) error {
	u, err := newUnit(e, call, c.unitOptions)
	if err != nil {
		return err
	}
	path, err := c.Path(c.User, e.Getenv)
	if err != nil {
		return err
	}
	manager := c.Manager(c.User)
	if err := manager.There(); err != nil {
		return err
	}
	if err := u.checkVisible(manager); err != nil {
		return err
	}
	old, err := ownUnit(path)
	if err != nil {
		return err
	}
	text := u.text()
	out := installed{Unit: path, Changed: old != text, Diff: diffLines(old, text), DryRun: c.DryRun, Ran: []string{}}
	if !e.Flags.Data() && e.Flags.Output != "name" {
		out.show(e.Out)
	}
	if out.Changed && !c.DryRun {
		if err := writeUnit(path, text); err != nil {
			return err
		}
	}
	if manager != nil {
		for _, args := range steps(out.Changed, c.Now) {
			out.Ran = append(out.Ran, strings.Join(manager.call(args...), " "))
			if c.DryRun {
				continue
			}
			if _, err := manager.run(ctx, args...); err != nil {
				return err
			}
		}
	}
	return e.PrintOne(out, path, func(w io.Writer) {
		for _, line := range out.Ran {
			fmt.Fprintf(w, "%s %s\n", map[bool]string{true: "would run:", false: "ran:"}[c.DryRun], line)
		}
		if !c.Now && !c.DryRun && manager != nil {
			fmt.Fprintf(w, "start it with: limpet service install --now%s\n", map[bool]string{true: " --user"}[c.User])
		}
		if !c.User && manager != nil {
			fmt.Fprintf(w, "look at it with: sudo limpet --state %s/%s\n", stateHome, command.StateName)
		}
	})
}

// steps are the calls of systemctl that activate a unit.
func steps(changed, now bool) (out [][]string) {
	if changed {
		out = append(out, []string{"daemon-reload"})
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

// checkVisible rejects what could not work: a program in a directory that the service does not see, and a caller
// without the rights.
func (u unit) checkVisible(manager *systemd) error {
	if manager == nil || u.user {
		return nil
	}
	for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(u.binary, hidden) {
			return command.Usagef("sudo install -m 755 "+command.ShellWord(u.binary)+" /usr/local/bin/limpet && sudo /usr/local/bin/limpet service install", "the service does not see %s, where this program is", hidden)
		}
	}
	if os.Geteuid() != 0 {
		return command.Errorf(command.ExitError, "sudo limpet service install    # or, for this user alone: limpet service install --user", "the service of the host is installed by root")
	}
	return nil
}

// ownUnit reads the existing unit, "" when there is none. It rejects one that limpet has not written.
func ownUnit(path string) (string, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the unit: %w", err)
	case !strings.HasPrefix(string(data), unitMark):
		return "", command.Usagef("mv "+command.ShellWord(path)+" "+command.ShellWord(path+".old"),
			"%s was not made by limpet and is left alone", path)
	}
	return string(data), nil
}

// writeUnit writes a unit that everybody may read, as usual for units.
func writeUnit(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directory of the unit: %w", err)
	}
	_, err := command.WriteAtomicAs(path, 0o644, func(w io.Writer) (int64, error) {
		n, err := io.WriteString(w, text)
		return int64(n), err
	})
	if err != nil {
		return fmt.Errorf("write the unit: %w", err)
	}
	return nil
}

func (i installed) show(w io.Writer) {
	if !i.Changed {
		fmt.Fprintf(w, "%s is as it should be\n", i.Unit)
		return
	}
	fmt.Fprintf(w, "%s:\n%s", i.Unit, i.Diff)
}

type uninstallCmd struct {
	Location
	User   bool `help:"The service of this user, instead of the host's."`
	DryRun bool `name:"dry-run" help:"Show what would be done without doing it."`
}

func (c uninstallCmd) Run(ctx context.Context, e *command.Env) error {
	path, err := c.Path(c.User, e.Getenv)
	if err != nil {
		return err
	}
	manager := c.Manager(c.User)
	if err := manager.There(); err != nil {
		return err
	}
	old, err := ownUnit(path)
	if err != nil {
		return err
	}
	out := installed{Unit: path, Changed: old != "", Diff: diffLines(old, ""), DryRun: c.DryRun, Ran: []string{}}
	step := func(args ...string) error {
		if manager == nil {
			return nil
		}
		out.Ran = append(out.Ran, strings.Join(manager.call(args...), " "))
		if c.DryRun {
			return nil
		}
		_, err := manager.run(ctx, args...)
		return err
	}
	if out.Changed {
		if err := step("disable", "--now", unitName); err != nil {
			return err
		}
		if !c.DryRun {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove the unit: %w", err)
			}
		}
		if err := step("daemon-reload"); err != nil {
			return err
		}
	}
	return e.PrintOne(out, path, func(w io.Writer) {
		switch {
		case !out.Changed:
			fmt.Fprintf(w, "%s is not there\n", path)
			return
		case c.DryRun:
			fmt.Fprintf(w, "would remove %s\n", path)
		default:
			fmt.Fprintf(w, "%s is removed; the state stays\n", path)
		}
		for _, line := range out.Ran {
			fmt.Fprintf(w, "%s %s\n", map[bool]string{true: "would run:", false: "ran:"}[c.DryRun], line)
		}
	})
}
