package auth

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConnectionSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, value string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("default.app/privateKey", "dir-key\n")
	write("default.app/ca.crt", "dir-ca")
	write("default.flat_token", "dir-token\n")
	write("default.broken/token", "two lines\nof "+canary)
	write("default.useless/ca.crt", "dir-ca")
	secrets := map[string]map[string][]byte{
		"default/app-key": {"githubAppPrivateKey": []byte("secret-key"), "ca.crt": []byte("secret-ca")},
		"default/gitlab":  {"token": []byte("secret-token")},
		"default/empty":   {"other": []byte(canary)},
	}
	source := Places{
		Secrets: Secrets(func(_ context.Context, namespace, name string) (map[string][]byte, error) {
			return secrets[namespace+"/"+name], nil
		}),
		Values: valuesFunc(func(_ context.Context, l Lookup, field string) ([]byte, error) {
			if l.Connection == "sealed" && l.Repository == "" {
				return []byte("sealed-" + field), nil
			}
			return nil, nil
		}),
		Dir: dir,
	}
	cases := []struct {
		name              string
		secure            map[string]string
		key, token, place string
		wrong             string
	}{
		{name: "app", secure: map[string]string{"privateKey": "app-key"}, key: "secret-key", place: "secret default/app-key"},
		{name: "app", secure: map[string]string{"privateKey": "inline-of-another-server"}, key: "dir-key", place: "directory"},
		{name: "lab", secure: map[string]string{"token": "gitlab"}, token: "secret-token", place: "secret default/gitlab"},
		{name: "sealed", secure: map[string]string{"privateKey": "inline-1"}, key: "sealed-privateKey", place: "secure values"},
		{name: "flat", token: "dir-token", place: "directory"},
		{name: "nothing"},
		{name: "../default.app"},
		{name: "x", secure: map[string]string{"token": "empty"}, wrong: "none of the keys"},
		{name: "broken", wrong: "control character"},
		{name: "useless", wrong: "none of the keys"},
	}
	for _, c := range cases {
		found, err := source.Connection(t.Context(), Lookup{Namespace: "default", Connection: c.name, Secure: c.secure})
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), canary) {
				t.Errorf("%s %v: error %v, want one with %q", c.name, c.secure, err, c.wrong)
			}
		case err != nil:
			t.Errorf("%s %v: %v", c.name, c.secure, err)
		case c.place == "":
			if found != nil {
				t.Errorf("%s: found %v", c.name, found)
			}
		case found == nil:
			t.Errorf("%s %v: nothing found", c.name, c.secure)
		case string(found.PrivateKey) != c.key || found.Password != c.token || !strings.HasPrefix(found.Source, c.place):
			t.Errorf("%s %v: key %q token %q from %s", c.name, c.secure, found.PrivateKey, found.Password, found.Source)
		}
	}
}

func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	n := 0
	(&Credentials{Forget: func() { n++ }}).Refused()
	(&Credentials{}).Refused()
	(*Credentials)(nil).Refused()
	if n != 1 {
		t.Errorf("told %d times, want 1", n)
	}
}
