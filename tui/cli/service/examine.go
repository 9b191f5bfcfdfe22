package service

import (
	"context"
	"os"
	"strings"
)

// Examine returns the path of the installed unit of this user or of the host, "" where there is none, and what is
// wrong with it and the fix; "" when nothing is.
func Examine(ctx context.Context, user bool, env func(string) string) (path, fault, next string) {
	var place Location
	path, err := place.path(user, env)
	if err != nil {
		return "", "", ""
	}
	unit, err := os.ReadFile(path)
	switch {
	case os.IsNotExist(err):
		return "", "", ""
	case err != nil:
		return path, err.Error(), "ls -l " + path
	}
	manager := place.managerOf(user)
	if manager.available() != nil {
		manager = nil // perhaps the unit of an image
	}
	fault, next = examine(ctx, string(unit), user, manager)
	return path, fault, next
}

// examine judges the text of a unit, and asks systemd about it unless manager is nil.
func examine(ctx context.Context, unit string, user bool, manager *systemd) (fault, next string) {
	install, restart := "sudo limpet service install --now", "sudo systemctl restart "+unitName
	if user {
		install, restart = "limpet service install --user --now", "systemctl --user restart "+unitName
	}
	_, command, _ := strings.Cut(unit, "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	binary := firstWord(command)
	other, err := os.Stat(binary)
	self, _ := os.Executable()
	this, _ := os.Stat(self)
	switch {
	case err != nil:
		return "the unit starts " + binary + ", which is not there", install
	case !os.SameFile(this, other): // nor is one that is not found
		return "the unit starts " + binary + ", which is another program than this", install
	case manager == nil:
		return "", ""
	}
	out, err := manager.run(ctx, "show", unitName, "--property=ActiveState,MainPID,Result")
	if err != nil {
		return err.Error(), "systemctl status " + unitName
	}
	is := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		is[key] = value
	}
	running, _ := os.Readlink("/proc/" + is["MainPID"] + "/exe")
	switch {
	case strings.HasSuffix(running, " (deleted)"):
		return "the daemon that runs is older than its program", restart
	case is["ActiveState"] == "failed":
		return "the service has failed: " + is["Result"], "journalctl -u " + unitName + " -n 20"
	case is["ActiveState"] != "active":
		return "the service does not run: it is " + is["ActiveState"], install
	}
	return "", ""
}

// firstWord returns the program of a command line of a unit, the reverse of quoteUnit.
func firstWord(command string) string {
	word, _, _ := strings.Cut(command, " ")
	if quoted, ok := strings.CutPrefix(command, `"`); ok {
		word, _, _ = strings.Cut(quoted, `"`)
	}
	return strings.ReplaceAll(word, "%%", "%")
}
