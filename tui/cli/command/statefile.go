package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"limpet/state"
	"limpet/sync/text"
)

// OpenStore is OpenReported for callers that need no report.
func (e *Env) OpenStore(ctx context.Context, path, socket string) (*state.Store, error) {
	store, _, err := e.OpenReported(ctx, path, socket)
	return store, err
}

// OpenReported opens the state file for this process alone, and returns what was done to it. Socket
// is where this process will listen, "" for none. With --read-only nothing is done to it.
func (e *Env) OpenReported(ctx context.Context, path, socket string) (*state.Store, state.Report, error) {
	store, report, err := state.Open(ctx, state.Options{Path: path, Version: Version, Socket: socket, Logger: e.Log,
		MaxSize: int64(e.Flags.StateMaxSize), ReadOnly: e.Flags.ReadOnly})
	if e.Flags.ReadOnly && errors.Is(err, state.ErrCorrupt) {
		err = Errorf(ExitStore, "limpet store check    # without --read-only: it builds a new file from the sound records", "%w", err)
	}
	if err != nil {
		if _, known := StoreHint(err); !known && ctx.Err() == nil {
			err = Errorf(ExitStore, "give another --state FILE", "%w", err)
		}
		return nil, report, err
	}
	if report.Quarantined != "" {
		e.Log.Warn("state file was damaged; it was put aside and a new one built", "file", path, "damage", report.Damage, "kept_as",
			report.Quarantined, "records_carried", report.Carried, "records_lost", report.Lost, "next", e.Invocation.Complete(RebuiltNext))
	}
	return store, report, nil
}

// RebuiltNext is the next command after a damaged state file was rebuilt.
const RebuiltNext = "limpet repo list"

// RebuiltText describes how a damaged state file was rebuilt; "" means it was sound.
func RebuiltText(rep state.Report) string {
	if rep.Quarantined == "" {
		return ""
	}
	return fmt.Sprintf("it was damaged (%s) and is put aside as %s; carried over: %s, known to be lost: %d", rep.Damage,
		rep.Quarantined, text.Plural(rep.Carried, "record"), rep.Lost)
}

// StatePath returns the state file: the flag, else the place by the XDG and systemd conventions.
// Links are resolved, so that each process finds the same socket beside it.
func (e *Env) StatePath() (string, error) {
	c := e.Context
	if c != nil && c.Kind == ContextSSH {
		return "", Usagef("ssh "+text.ShellWord(c.Target)+"    # and run it there",
			"the context %s is another host: this command works with the files of its own", c.Name)
	}
	given := e.Flags.State
	if c != nil {
		given, _ = c.values["state"].(string)
	}
	path, err := filepath.Abs(given)
	if given == "" {
		path, _, err = e.UsualState()
		if c != nil { // agents of two servers have a file each
			path = strings.TrimSuffix(path, ".db") + "-" + c.Name + ".db"
		}
	}
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", Usagef("limpet --state "+text.ShellWord(filepath.Join(path, StateName)), "--state %s is a directory; it has to name a file",
			path)
	}
	return path, nil
}

// StateName is the name of the state file without --state.
const StateName = "limpet.db"

// UsualState returns the state file without --state, and the variable that its place comes from.
func (e *Env) UsualState() (path, from string, err error) {
	// The XDG convention ignores relative directories.
	for _, place := range []struct{ env, below string }{
		{"STATE_DIRECTORY", ""}, {"XDG_STATE_HOME", "limpet"}, {"HOME", ".local/state/limpet"},
	} {
		if dir := e.Getenv(place.env); filepath.IsAbs(dir) {
			return filepath.Join(dir, place.below, StateName), place.env, nil
		}
	}
	return "", "", Usagef("limpet --state /var/lib/limpet/limpet.db",
		"no place for the state file: none of STATE_DIRECTORY, XDG_STATE_HOME and HOME names a directory")
}
