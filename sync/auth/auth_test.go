package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const canary = "s3cret-CANARY"

func full() *Credentials {
	return &Credentials{
		Username: "u", Password: canary + "1", Bearer: canary + "2", SSHKey: []byte(canary + "3"), SSHPassphrase: canary + "4",
		ClientKey: []byte(canary + "5"), Source: "test",
	}
}

func TestCredentialsNeverPrintSecrets(t *testing.T) {
	t.Parallel()
	c := full()
	remote := struct {
		URL   string
		Creds *Credentials
	}{"x", c}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "creds", c, "remote", remote)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "creds", c, "remote", remote)
	js, err := json.Marshal(remote)
	if err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		out += fmt.Sprintf(verb, c) + fmt.Sprintf(verb, *c) + fmt.Sprintf(verb, remote)
	}
	if strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) || strings.Contains(out, "115 51 99") {
		t.Fatalf("a secret was printed:\n%s", out)
	}
	if got := len(c.Secrets()); got != 5 {
		t.Fatalf("Secrets: %d of 5", got)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	a, b := full(), full()
	b.Source = "elsewhere"
	if a.Fingerprint() != b.Fingerprint() {
		t.Error("the place changes the fingerprint")
	}
	b.Username, b.Password = "u"+b.Password[:1], b.Password[1:]
	if a.Fingerprint() == b.Fingerprint() {
		t.Error("moving a byte between fields keeps the fingerprint")
	}
	if (*Credentials)(nil).Fingerprint() != "none" || (*Credentials)(nil).Kind() != "none" || (*Credentials)(nil).Secrets() != nil {
		t.Error("nil credentials")
	}
}

func TestKindAndEmpty(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*Credentials{
		"none":        {Username: "u", CA: []byte("x"), KnownHosts: []byte("x")},
		"basic":       {Username: "u", Password: "p"},
		"bearer":      {Bearer: "b", Password: "p"},
		"ssh":         {SSHKey: []byte("k")},
		"basic+mtls":  {Password: "p", ClientKey: []byte("k")},
		"bearer+mtls": {Bearer: "b", ClientKey: []byte("k")},
	} {
		if c.Kind() != want || c.Empty() != (want == "none") {
			t.Errorf("%s: kind %s, empty %v", want, c.Kind(), c.Empty())
		}
	}
}

func TestChain(t *testing.T) {
	t.Parallel()
	none := Source(func(context.Context, Lookup) (*Credentials, error) { return nil, nil })
	one := Source(func(context.Context, Lookup) (*Credentials, error) { return &Credentials{Source: "one"}, nil })
	boom := errors.New("unusable")
	bad := Source(func(context.Context, Lookup) (*Credentials, error) { return nil, boom })
	if c, err := Chain(none, nil, one, bad)(t.Context(), Lookup{}); err != nil || c.Source != "one" {
		t.Errorf("got %v, %v", c, err)
	}
	if _, err := Chain(none, bad, one)(t.Context(), Lookup{}); !errors.Is(err, boom) {
		t.Errorf("unusable credentials were passed over: %v", err)
	}
	if c, err := Chain()(t.Context(), Lookup{}); c != nil || err != nil {
		t.Errorf("empty chain: %v, %v", c, err)
	}
}
