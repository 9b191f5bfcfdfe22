package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/tui/cli/command"
)

// TestDoctorFixes: what is safe to put right is, once, and is told before and after;
// without --fix nothing changes.
func TestDoctorFixes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/x.git", "--disabled")
	s.Must(t, 0, "apply", "-f", s.Secret(t)) // makes the key
	token := fileOf(t, 0o644, s.Dir, "creds", "default.boards", "token")
	socket := agent.SocketPath(s.Env["LIMPET_STATE"])
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	modes := map[string]os.FileMode{s.Dir: 0o722, s.Env["LIMPET_STATE"] + ".key": 0o644, token: 0o644}
	for path, mode := range modes {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--credentials-dir", filepath.Join(s.Dir, "creds")}
	s.Call(append(args, "doctor")...)
	for path, mode := range modes {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("without --fix %s has become %v %v", path, info.Mode(), err)
		}
	}
	s.Must(t, command.ExitUsage, "doctor", "--fix", "--read-only")
	_, out, errs := s.Call(append(args, "doctor", "--fix")...)
	for path, mode := range map[string]os.FileMode{s.Dir: 0o700, s.Env["LIMPET_STATE"] + ".key": 0o600, token: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s is %v %v", path, info.Mode(), err)
		}
		if !strings.Contains(errs, "fix: "+path+": was mode 0") {
			t.Errorf("no word of %s:\n%s", path, errs)
		}
	}
	if _, err := os.Lstat(socket); err == nil ||
		!strings.Contains(errs, "fix: "+socket+": was the socket of a process that is gone; now removed\n") {
		t.Errorf("the socket: %v\n%s", err, errs)
	}
	if strings.Contains(out, "open to others") {
		t.Errorf("what was put right is told as wrong:\n%s", out)
	}
	if _, _, again := s.Call(append(args, "doctor", "--fix")...); strings.Contains(again, "fix: ") {
		t.Errorf("twice: %s", again)
	}
	if err := os.Chmod(token, 0o644); err != nil {
		t.Fatal(err)
	}
	_, out, _ = s.Call(append(args, "doctor", "--fix", "-o", "json", "--json", "fixes")...)
	var found struct{ Fixes []fix }
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Fixes) != 1 ||
		found.Fixes[0] != (fix{token, "mode 0644", "mode 0600"}) {
		t.Errorf("%v: %s", err, out)
	}
	if data, err := os.ReadFile(token); err != nil || string(data) != "hunter2" {
		t.Errorf("the token: %q %v", data, err)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, ".limpet-doctor-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestDoctorLeavesTheSocketOfWhoBegins: who holds the state file may be about to listen.
func TestDoctorLeavesTheSocketOfWhoBegins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	socket := agent.SocketPath(s.Env["LIMPET_STATE"])
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	s.Store(t, func(*state.Store) {
		if _, _, errs := s.Call("doctor", "--fix"); strings.Contains(errs, "fix: ") {
			t.Errorf("it has mended: %s", errs)
		}
	})
	if _, err := os.Lstat(socket); err != nil {
		t.Error(err)
	}
}

// TestDoctorLeavesAPersonsFile: a text in place of the state file is no state file, whatever its rights are, and keeps them.
func TestDoctorLeavesAPersonsFile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	notes := fileOf(t, 0o644, s.Dir, "notes.txt")
	for _, flag := range []string{"--fix=false", "--fix"} {
		_, _, errs := s.Call("--state", notes, "doctor", flag)
		if !strings.Contains(errs, state.ErrForeign.Error()) || strings.Contains(errs, "chmod") || !strings.Contains(errs, "--state FILE") {
			t.Errorf("%s: %s", flag, errs)
		}
	}
	if info, err := os.Stat(notes); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestDoctorLeavesWhatIsMeant: a socket that somebody listens on, a directory that is everybody's on purpose, the group
// of a directory, and the copies that Kubernetes keeps below "..data" and shows by links.
func TestDoctorLeavesWhatIsMeant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared, group, socket := filepath.Join(dir, "tmp"), filepath.Join(dir, "group"), filepath.Join(dir, "s")
	fileOf(t, 0o644, dir, "default.boards", "..2026")
	ln, err := net.Listen("unix", socket)
	if err := errors.Join(err, os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777|os.ModeSticky), os.Mkdir(group, 0o700),
		os.Chmod(group, 0o775|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := fixer("CREDENTIALS_DIRECTORY", filepath.Join(dir, "default.boards"))
	p.fixSocket(socket)
	p.fixSocket(filepath.Join(dir, "default.boards", "..2026")) // no socket
	p.fixPermissions(place{shared, 0o022})
	if p.checkCredentials(t.Context()); p.fixes != nil {
		t.Errorf("%+v", p.fixes)
	}
	p.fixPermissions(place{group, 0o022})
	if info, err := os.Stat(group); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o755 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestDoctorLeavesPublicKeys: they are no secret, and whoever runs the agent must be able
// to read them. What others may write to is put right.
func TestDoctorLeavesPublicKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, modes := range map[string][2]os.FileMode{
		"default.boards/allowed_signers": {0o644, 0o644}, "default.boards/ann.sshpub": {0o444, 0o444}, "default_allowed_signers": {0o640, 0o640},
		"default.boards/bob.asc": {0o666, 0o644}, "site_allowed_signers": {0o664, 0o644},
		"default.boards/token": {0o644, 0o600}, "default.boards/.asc": {0o604, 0o600},
	} {
		path := fileOf(t, modes[0], dir, name)
		t.Cleanup(func() {
			if info, err := os.Stat(path); err != nil || info.Mode() != modes[1] {
				t.Errorf("%s: %v has become %v, want %v, %v", name, modes[0], info.Mode(), modes[1], err)
			}
		})
	}
	p := fixer("CREDENTIALS_DIRECTORY", dir)
	if c := p.checkCredentials(t.Context()); c.Result != checkOK || len(p.fixes) != 4 {
		t.Errorf("%+v %+v", c, p.fixes)
	}
}

// fixer is an examination with --fix and the environment of pairs of names and values.
func fixer(env ...string) *examination {
	lookup := func(name string) (string, bool) {
		if i := slices.Index(env, name); i >= 0 {
			return env[i+1], true
		}
		return "", false
	}
	return &examination{fix: true, Env: &command.Env{Flags: new(command.Flags), Streams: command.Streams{Err: io.Discard, Lookup: lookup}}}
}

// fileOf writes a file with a mode, and the directories above it.
func fileOf(t *testing.T, mode os.FileMode, elem ...string) (path string) {
	t.Helper()
	path = filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// linked makes a link, and the directories above it.
func linked(t *testing.T, to string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// TestDoctorLeavesWhatLinksLeadTo: a key and credentials that are elsewhere are told of and
// left as they are.
func TestDoctorLeavesWhatLinksLeadTo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Must(t, 0, "apply", "-f", s.Secret(t)) // makes the key
	elsewhere, creds, key := t.TempDir(), filepath.Join(s.Dir, "creds"), s.Env["LIMPET_STATE"]+".key"
	if err := os.Rename(key, filepath.Join(elsewhere, "key")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(elsewhere, "key"), 0o644); err != nil {
		t.Fatal(err)
	}
	linked(t, filepath.Join(elsewhere, "key"), key)
	linked(t, fileOf(t, 0o644, elsewhere, "token"), creds, "default.boards", "token")
	linked(t, filepath.Dir(fileOf(t, 0o644, elsewhere, "default.far", "token")), creds, "default.far")
	linked(t, "../default.near/open", creds, "default.boards", "near")
	near := fileOf(t, 0o644, creds, "default.near", "open")
	_, out, errs := s.Call("doctor", "--fix", "--credentials-dir", creds)
	for _, name := range []string{"key", "token", "default.far/token"} {
		if info, err := os.Stat(filepath.Join(elsewhere, name)); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s is %v %v", name, info.Mode(), err)
		}
	}
	if !strings.Contains(out, key+" is open to others") || !strings.Contains(out, "path escapes from parent; and 1 more\n") ||
		!strings.Contains(out, "try: ls -la "+filepath.Join(creds, "default.boards", "token")) {
		t.Errorf("what is elsewhere is not told of:\n%s", out)
	}
	if strings.Count(errs, "fix: ") != 1 || !strings.Contains(errs, "fix: "+near+": was mode 0644; now mode 0600") {
		t.Errorf("%s", errs)
	}
}

// TestDoctorReadsKubernetesMounts: whose directories and files are links, as the
// directory itself may be.
func TestDoctorReadsKubernetesMounts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mount, link := filepath.Join(s.Dir, "mount"), filepath.Join(s.Dir, "link")
	token := fileOf(t, 0o644, mount, "..2026", "default.boards", "token")
	linked(t, "..2026", mount, "..data")
	linked(t, "..data/default.boards", mount, "default.boards")
	linked(t, mount, link)
	for _, dir := range []string{mount, link} {
		if got := doctor(s, t, command.ExitError, "--credentials-dir", dir)["credentials"]; got.Found != dir+
			": default.boards/token has mode 0644 and may be read by others; run: chmod 600 on it" ||
			got.Next != "chmod 600 "+dir+"/default.boards/token" {
			t.Errorf("%s: %+v", dir, got)
		}
	}
	if err := os.Chmod(token, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{mount, link} {
		if got := doctor(s, t, 0, "--credentials-dir", dir)["credentials"]; got.Result != checkOK || got.Found != dir+", 1 file" {
			t.Errorf("%s: %+v", dir, got)
		}
	}
}

// TestWritesAreBounded: in time, by the caller, and to none where nothing may be written.
func TestWritesAreBounded(t *testing.T) {
	t.Parallel()
	if took, err := timeWrites(t.Context(), t.TempDir(), 100, 1); err != nil || len(took) != 1 {
		t.Errorf("a nanosecond is enough for %d writes, %v", len(took), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if took, err := timeWrites(ended, t.TempDir(), 100, time.Minute); err != nil || len(took) != 0 {
		t.Errorf("%d writes after the end, %v", len(took), err)
	}
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/x.git", "--disabled")
	_, out, _ := s.Call("doctor", "--read-only", "-o", "json")
	if !strings.Contains(out, "nothing is written here") {
		t.Errorf("with --read-only it writes: %s", out)
	}
}

// TestDoctorTellsOfABadConfigFile: and looks at the rest.
func TestDoctorTellsOfABadConfigFile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Env["LIMPET_CONFIG"] = fileOf(t, 0o600, s.Dir, "config.yaml") // no YAML of settings
	s.Must(t, command.ExitUsage, "status")
	if got := doctor(s, t, command.ExitError); got["config"].Result != checkFail || !strings.Contains(got["config"].Found, "config.yaml") ||
		got["state"].Result != checkOK {
		t.Errorf("%+v", got)
	}
}
