package doctor

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/tui/cli/command"
	"limpet/tui/cli/service"
)

// TestDoctorLooksAtTheService: a unit of this user is found, and a program that was
// replaced is told from this one.
func TestDoctorLooksAtTheService(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir, ".config", "systemd", "user", "limpet.service")
	same, other := filepath.Join(s.Dir, "same"), filepath.Join(s.Dir, "other")
	data = append([]byte{}, data...)
	if err := os.WriteFile(same, data, 0o700); err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1 // of the same size
	if err := os.WriteFile(other, data, 0o700); err != nil {
		t.Fatal(err)
	}
	env := s.world("", io.Discard, io.Discard)
	p := &examination{Env: &command.Env{World: env}}
	for _, tt := range []struct{ binary, result, found, next string }{
		{self, checkOK, "starts this program", ""}, {same, checkOK, "starts this program", ""},
		{other, checkWarn, "another version than this", "limpet service install --user --now"},
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("[Service]\nExecStart="+tt.binary+" --daemon\n"),
			0o600)); err != nil {
			t.Fatal(err)
		}
		state, err := service.Installed(t.Context(), true, env.Getenv)
		if err != nil || state == nil {
			t.Fatal(state, err)
		}
		if c := judgeService(*state, true); c.Result != tt.result || !strings.Contains(c.Found, tt.found) || c.Next != tt.next {
			t.Errorf("%s: %+v", tt.binary, c)
		}
	}
	if c := p.checkService(t.Context()); !strings.HasPrefix(c.Found, path) && !strings.Contains(c.Found, "systemctl") {
		t.Errorf("the unit is not found: %+v", c)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := p.checkService(t.Context()); c.Result != checkSkipped && !strings.HasPrefix(c.Found, "/etc/systemd/") {
		t.Errorf("without a unit: %+v", c)
	}
}
