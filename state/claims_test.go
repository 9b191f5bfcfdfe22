package state

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFactsAndSnapshots(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	for k, v := range map[string]string{"hook/a": "1", "hook/b": "", "hooks": "3", "x": "4"} {
		must(t, s.PutFact(ctx, k, []byte(v)))
	}
	if err := s.PutFact(ctx, "", nil); err == nil {
		t.Error("a fact without key was taken")
	}
	facts, err := s.Facts(ctx, "hook/")
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(facts)), []string{"hook/a", "hook/b"}) || string(facts["hook/a"]) != "1" {
		t.Errorf("facts %q, %v", facts, err)
	}
	if v, err := s.Fact(ctx, "hook/b"); err != nil || v == nil || len(v) != 0 {
		t.Errorf("empty fact %#v, %v", v, err)
	}
	if err := errors.Join(s.DeleteFact(ctx, "x"), s.DeleteFact(ctx, "x")); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := s.Fact(ctx, "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted fact: %v", err)
	}
	if _, _, err := s.Snapshot(ctx, "jobs"); !errors.Is(err, ErrNotFound) {
		t.Errorf("absent snapshot: %v", err)
	}
	big := strings.Repeat("x", 300_000)
	for _, data := range []string{"[]", big} {
		must(t, s.PutSnapshot(ctx, "jobs", []byte(data)))
	}
	data, at, err := s.Snapshot(ctx, "jobs")
	if err != nil || string(data) != big || time.Since(at) > time.Minute || time.Since(at) < -time.Second {
		t.Errorf("snapshot of %d bytes at %v, %v", len(data), at, err)
	}
}

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "limpet.db")
	s := opened(t, Options{Path: path})
	const canary = "canary-0b9d7c"
	must(t, s.PutSecret(ctx, "repo/a", []byte(canary)))
	_, err := s.Mutate(ctx, ObjectKey{"g/repositories", "ns", "b"}, func(*Object, uint64) (Mutation, error) {
		return Mutation{Data: []byte("{}"), Secrets: []SecretWrite{{Name: "repo/b", Plain: []byte(canary)}, {Name: "gone", Delete: true}}}, nil
	})
	must(t, err)
	if text := asJSON(SecretWrite{Name: "n"}.String()); text != `"secret \"n\""` {
		t.Errorf("printed as %s", text)
	}
	names, err := s.SecretNames(ctx, "repo/")
	if err != nil || !slices.Equal(names, []string{"repo/a", "repo/b"}) {
		t.Errorf("names %v, %v", names, err)
	}
	for _, n := range names {
		if plain, err := s.Secret(ctx, n); err != nil || string(plain) != canary {
			t.Errorf("secret %s: %q, %v", n, plain, err)
		}
	}
	must(t, s.DeleteSecret(ctx, "repo/a"))
	if _, err := s.Secret(ctx, "repo/a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted secret: %v", err)
	}
	Closed(t, s)
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || strings.Contains(string(data), canary) {
			t.Errorf("%s holds the secret, %v", f.Name(), err)
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// TestSecretsNeedTheirKey: with the key gone or another in its place secrets stay closed, and no
// new key hides the loss.
func TestSecretsNeedTheirKey(t *testing.T) {
	ctx := context.Background()
	creds := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write(filepath.Join(creds, sealCredential), strings.Repeat("k", 20))
	cases := []struct {
		name   string
		change func(path string)
		read   error // of the old secret
		write  bool  // of a new one
	}{
		{"same key", func(string) {}, nil, true},
		{"looser mode is narrowed", func(path string) {
			must(t, os.Chmod(path+".key", 0o644))
		}, nil, true},
		{"key is gone", func(path string) {
			must(t, os.Remove(path+".key"))
		}, ErrSealed, false},
		{"other key", func(path string) { write(path+".key", strings.Repeat("z", 64)) }, ErrSealed, true},
		{"short key", func(path string) { write(path+".key", "short") }, nil, false},
		{"credential wins", func(string) { t.Setenv("CREDENTIALS_DIRECTORY", creds) }, ErrSealed, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limpet.db")
			s := opened(t, Options{Path: path})
			must(t, s.PutSecret(ctx, "old", []byte("text")))
			Closed(t, s)
			c.change(path)
			s = opened(t, Options{Path: path})
			plain, err := s.Secret(ctx, "old")
			switch {
			case c.read != nil && !errors.Is(err, c.read):
				t.Errorf("read: %v, want %v", err, c.read)
			case c.read == nil && c.write && (err != nil || string(plain) != "text"):
				t.Errorf("read: %q, %v", plain, err)
			}
			if err := s.PutSecret(ctx, "new", []byte("x")); (err == nil) != c.write {
				t.Errorf("write: %v", err)
			}
			if info, err := os.Stat(path + ".key"); err == nil && c.name == "looser mode is narrowed" && info.Mode().Perm() != 0o600 {
				t.Errorf("key file has mode %v", info.Mode())
			}
		})
	}
}

// TestFactsChangeTogether: all of a change is kept, or nothing of it.
func TestFactsChangeTogether(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	must(t, s.ChangeFacts(ctx, map[string][]byte{"a": []byte("1"), "b": []byte("2")}, []string{"none"}))
	if err := s.ChangeFacts(ctx, map[string][]byte{"c": []byte("3"), "": nil}, []string{"a"}); err == nil {
		t.Error("a fact without a key was taken")
	}
	must(t, s.ChangeFacts(ctx, map[string][]byte{"b": []byte("4")}, []string{"a"}))
	facts, err := s.Facts(ctx, "")
	if err != nil || len(facts) != 1 || string(facts["b"]) != "4" {
		t.Errorf("facts %q, %v", facts, err)
	}
}
