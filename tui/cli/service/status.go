package service

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"limpet/tui/cli/command"
)

type statusCmd struct {
	Location
	User bool `help:"The service of this user, instead of the host's."`
}

// State describes an installed unit.
type State struct {
	Unit      string `json:"unit"`
	Installed bool   `json:"installed"`
	Enabled   string `json:"enabled,omitempty"` // as systemctl says it; "" = systemd was not asked
	Active    string `json:"active,omitempty"`
	Result    string `json:"result,omitempty"` // of its last run
	PID       string `json:"pid,omitempty"`
	Binary    string `json:"binary,omitempty"` // the program that the unit starts
	Same      bool   `json:"sameBinary"`       // it is this program
	Old       bool   `json:"oldProcess"`       // the running program was replaced on disk
}

func (c statusCmd) Run(ctx context.Context, e *command.Env) error {
	path, manager, err := c.find(e, c.User)
	if err != nil {
		return err
	}
	s, err := stateOf(ctx, path, manager)
	if err != nil {
		return err
	}
	err = e.PrintOne(s, s.Unit, func(w io.Writer) {
		var f command.Fields
		f.Add("unit", s.Unit)
		f.Add("installed", map[bool]string{true: "yes", false: "no"}[s.Installed])
		if s.Active != "" {
			f.Add("state", fmt.Sprintf("%s, %s at boot", s.Active, s.Enabled))
		}
		if s.Binary != "" {
			f.Add("program", s.Binary+map[bool]string{true: ", which is this one", false: ", which is another than this one"}[s.Same])
		}
		f.Write(w)
	})
	if fault, next := s.Fault(c.User); err == nil && fault != "" {
		return command.Errorf(command.ExitError, next, "%s", fault)
	}
	return err
}

// Fault returns what is wrong with a service, and the fix; "" when nothing is.
func (s State) Fault(user bool) (fault, next string) {
	install := "sudo limpet service install --now"
	restart := "sudo systemctl restart " + unitName
	if user {
		install, restart = "limpet service install --user --now", "systemctl --user restart "+unitName
	}
	switch {
	case !s.Installed:
		return "the service is not installed", install
	case s.Binary != "" && !exists(s.Binary):
		return "the unit starts " + s.Binary + ", which is not there", install
	case !s.Same:
		return "the unit starts " + s.Binary + ", which is another version than this", install
	case s.Old:
		return "the daemon that runs is older than its program", restart
	case s.Active == "failed":
		return "the service has failed: " + s.Result, "journalctl -u " + unitName + " -n 20"
	case s.Active != "" && s.Active != "active":
		return "the service does not run: it is " + s.Active, install
	}
	return "", ""
}

// Installed returns the state of the installed unit of this user or of the host, nil when there is none.
func Installed(ctx context.Context, user bool, env func(string) string) (*State, error) {
	var place Location
	path, err := place.path(user, env)
	if err != nil || !exists(path) {
		return nil, nil
	}
	manager := place.managerOf(user)
	if manager.available() != nil {
		manager = nil // perhaps the unit of an image
	}
	s, err := stateOf(ctx, path, manager)
	return &s, err
}

// stateOf examines a unit file and asks systemd about it unless manager is nil.
func stateOf(ctx context.Context, path string, manager *systemd) (State, error) {
	s := State{Unit: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read the unit: %w", err)
	}
	s.Installed = true
	for line := range strings.Lines(string(data)) {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			s.Binary = firstWord(strings.TrimSpace(command))
		}
	}
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	this, thisErr := sum(self)
	other, otherErr := sum(s.Binary)
	s.Same = thisErr == nil && otherErr == nil && this == other
	if manager == nil {
		return s, nil
	}
	out, err := manager.run(ctx, "show", unitName, "--property=ActiveState,UnitFileState,MainPID,Result")
	if err != nil {
		return s, err
	}
	fields := map[string]*string{"ActiveState": &s.Active, "UnitFileState": &s.Enabled, "Result": &s.Result, "MainPID": &s.PID}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if field := fields[key]; field != nil {
			*field = value
		}
	}
	target, _ := os.Readlink("/proc/" + s.PID + "/exe")
	s.Old = strings.HasSuffix(target, " (deleted)")
	return s, nil
}

// firstWord returns the program of a command line of a unit, the reverse of quoteUnit.
func firstWord(command string) string {
	word, _, _ := strings.Cut(command, " ")
	if quoted, ok := strings.CutPrefix(command, `"`); ok {
		word, _, _ = strings.Cut(quoted, `"`)
	}
	return strings.ReplaceAll(word, "%%", "%")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sum returns the checksum of a file.
func sum(path string) (out [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return [sha256.Size]byte(h.Sum(nil)), err
}
