package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestConfigThatIsNotMine: a config file that cannot be read, or that others write to, is
// told of by all commands; none passes it over, and help needs none.
func TestConfigThatIsNotMine(t *testing.T) {
	t.Parallel()
	const other = 12345
	me, strangers := os.Getuid(), os.Getuid() == 0 // who alone can make files of theirs
	if strangers {
		me = 65534
	}
	h := newHome(t)
	path := filepath.Join(h.dir, ".config", "limpet", "config.yaml")
	h.program = filepath.Join(h.dir, "limpet")
	program, err := os.ReadFile(limpetBinary(t))
	err = errors.Join(err, os.WriteFile(h.program, program, 0o755), os.MkdirAll(filepath.Dir(path), 0o755), os.Chmod(h.dir, 0o755), os.Chmod(filepath.Dir(h.dir), 0o711),
		os.Mkdir(filepath.Join(h.dir, "state"), 0o700), os.Chown(filepath.Join(h.dir, "state"), me, -1))
	if err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		cmd := h.command(ctx, t, args...)
		if strangers {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(me), Gid: uint32(me)}
		}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
			t.Fatal(err)
		}
		return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
	file := func(text string, owner int, mode os.FileMode) func() error {
		return func() error {
			return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chown(path, owner, -1), os.Chmod(path, mode))
		}
	}
	type fault struct {
		make        func() error
		says, tries string // "" = it is taken
	}
	cases := map[string]fault{
		"unreadable":                {file("drivers: 2\n", me, 0), "permission denied", "sudo -u USER"},
		"a directory":               {func() error { return os.Mkdir(path, 0o755) }, "is a directory", "--config FILE"},
		"a link to nothing":         {func() error { return os.Symlink("/nowhere/config.yaml", path) }, "leads to no file", "ls -l " + path},
		"everybody writes":          {file("drivers: 2\n", me, 0o666), "can be written by everybody (mode 0666)", "try: chmod o-w " + path},
		"mine, and my group writes": {file("drivers: 2\n", me, 0o664), "", ""},
	}
	if strangers {
		cases["everybody writes, of root"] = fault{file("drivers: 2\n", 0, 0o646), "can be written by everybody (mode 0646)", "try: sudo chmod o-w " + path}
		cases["a strange group writes"] = fault{file("drivers: 2\n", other, 0o664), "the group of user 12345", "try: sudo chmod go-w " + path}
		cases["a token that others read"] = fault{file("token: secret\n", other, 0o644), "may be read by others", "try: sudo chown 65534 " + path + " && sudo chmod 600 " + path}
		cases["of another, who alone writes"] = fault{file("drivers: 2\n", other, 0o644), "", ""}
	}
	for name, c := range cases {
		if err := errors.Join(os.RemoveAll(path), c.make()); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--help"}, {"job", "--help"}, {"help", "repo", "pull"}, {"version"}} {
			if r := call(args...); r.code != 0 || r.out == "" {
				t.Errorf("%s: limpet %v: exit %d: %s", name, args, r.code, r.err)
			}
		}
		if r := call("config", "path"); r.code != 0 || r.out != path+"\n" || r.err != "" {
			t.Errorf("%s: config path: exit %d: %s%s", name, r.code, r.out, r.err)
		}
		doctor, verdict := call("doctor"), call("config", "validate")
		if c.says == "" {
			if r := call("status"); r.code != 0 || !strings.Contains(verdict.out, path+" is good") || !strings.Contains(doctor.out, path+", 1 setting") {
				t.Errorf("%s: exit %d: %s\n%s%s", name, r.code, r.err, verdict.out, doctor.out)
			}
			continue
		}
		for _, args := range [][]string{nil, {"status"}, {"job", "list"}, {"--daemon"}, {"--accessible"}, {"config", "show"}} {
			r := call(args...)
			if r.code != 2 || !strings.Contains(r.err, path) || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, c.tries) {
				t.Errorf("%s: limpet %v: exit %d: %s", name, args, r.code, r.err)
			}
		}
		if r := verdict; r.code != 2 || !strings.Contains(r.out, path+": ") || !strings.Contains(r.out, c.says) || !strings.Contains(r.err, "1 problem in config file "+path) || strings.Contains(r.out, "no config file") {
			t.Errorf("%s: config validate: exit %d: %s%s", name, r.code, r.out, r.err)
		}
		if r := doctor; r.code != 1 || !strings.Contains(r.out, c.says) || !strings.Contains(r.err, c.tries) {
			t.Errorf("%s: doctor: exit %d: %s%s", name, r.code, r.out, r.err)
		}
	}
}
