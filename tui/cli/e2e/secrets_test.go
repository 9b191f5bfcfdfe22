package e2e

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// secretFiles are the files and directories of a home that hold secrets by purpose.
var secretFiles = []string{"token", "subject", "credentials", "tls"}

// noSecret looks for secrets in everything else below a home, and in a log.
func (h *home) noSecret(t *testing.T, log string, secrets ...string) {
	t.Helper()
	if found := holds([]byte(log), secrets...); found != "" {
		t.Errorf("the log has the secret %s", found)
	}
	err := filepath.WalkDir(h.dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(secretFiles, d.Name()) && d.IsDir():
			return filepath.SkipDir
		case slices.Contains(secretFiles, d.Name()) || !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(file)
		if found := holds(data, secrets...); found != "" {
			t.Errorf("%s has the secret %s", file, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// holds returns the first secret that a text has, plain or as in an
// Authorization header of the user git; "" when there is none.
func holds(text []byte, secrets ...string) string {
	for _, secret := range secrets {
		basic := base64.StdEncoding.EncodeToString([]byte("git:" + secret))
		for _, form := range []string{secret, strings.TrimRight(basic, "=")} {
			if bytes.Contains(text, []byte(form)) {
				return form
			}
		}
	}
	return ""
}

func TestSecretSearch(t *testing.T) {
	h := newHome(t)
	h.file(t, "token", gitToken)
	h.file(t, "credentials/default.boards/token", gitToken)
	h.noSecret(t, "nothing", gitToken)
	for text, want := range map[string]bool{"": false, "git": false, "x" + gitToken + "y": true,
		"Basic " + base64.StdEncoding.EncodeToString([]byte("git:"+gitToken)): true} {
		if got := holds([]byte(text), "another", gitToken) != ""; got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
