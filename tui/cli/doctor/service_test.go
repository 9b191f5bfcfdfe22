package doctor

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/tui/cli/command"
)

// TestDoctorLooksAtTheService: a unit of this user is found, and so is one whose program is another
// than this one.
func TestDoctorLooksAtTheService(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path, other := filepath.Join(s.Dir, ".config", "systemd", "user", "limpet.service"), fileOf(t, 0o700, s.Dir, "other")
	p := &examination{env: &command.Env{Streams: s.streams("", io.Discard, io.Discard)}}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for binary, found := range map[string]string{self: "", other: "another program than this"} {
		if err := os.WriteFile(path, []byte("[Service]\nExecStart="+binary+" --daemon\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := p.checkService(t.Context()); !strings.HasPrefix(c.Found, path) || !strings.Contains(c.Found, found) ||
			(found != "") != (c.Next == "limpet service install --user --now") {
			t.Errorf("%s: %+v", binary, c)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := p.checkService(t.Context()); c.Result != checkSkipped && !strings.HasPrefix(c.Found, "/etc/systemd/") {
		t.Errorf("without a unit: %+v", c)
	}
}
