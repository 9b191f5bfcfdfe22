package tui

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/term"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	const server = "https://grafana.example"
	for token, want := range map[string]Settings{
		"/media/my disk/limpet  token": {TokenFile: "/media/my disk/limpet  token"},
		"~/my token":                   {TokenFile: "~/my token"},
		"  /media/my disk/token \n":    {TokenFile: "/media/my disk/token"},
		" glsa_se cret\n":              {Token: "glsa_secret"},
	} {
		want.Server = server
		var got Settings
		if problem := got.setServer(" grafana.example") + got.setToken(token); got != want || problem != "" {
			t.Errorf("%q: %+v, %q", token, got, problem)
		}
	}
	for answers, want := range map[[2]string]string{{"", "x"}: "is needed", {"ftp://x", "x"}: "no address", {"https://", "x"}: "no address",
		{"https://a:b@c", "x"}: "does not belong", {server, "  "}: "token is needed"} {
		if problem := new(Settings).setServer(answers[0]) + new(Settings).setToken(answers[1]); !strings.Contains(problem, want) {
			t.Errorf("%q: %q", answers, problem)
		}
	}
}

func TestSetUp(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]error{
		"nonsense://x\rgrafana.example:3000\r\rglsa_secret\ry\r":                 nil,
		"grafana.example\rglsa_secret\r\rgrafana.example:3000\rglsa_secret\ry\r": nil,
		"grafana.example:3000\rwrong\r\r\rglsa_secret\ry\r":                      nil,
		"grafana.example:3000\r/token\r\r\rglsa_secret\ry\r":                     nil,
		"grafana.example:3000\r":                                                 io.EOF,
		"grafana.example:3000\rx\r\r":                                            io.EOF,
		"grafana.example:3000\rx\r\x03":                                          io.EOF,
		"grafana.example:3000\rbad\ry\r":                                         errRefused,
	} {
		var out strings.Builder
		var saved Settings
		u := SetUp{File: "config.yaml",
			Try: func(context.Context, Settings) (string, error) { return "Grafana answers\x1b[2J", nil },
			Save: func(s Settings) error {
				if s.Token == "bad" {
					return errRefused
				}
				saved = s
				return nil
			}}
		err := u.run(t.Context(), term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(keys), &out}, ""))
		if !errors.Is(err, want) || (saved == Settings{Server: "https://grafana.example:3000", Token: "glsa_secret"}) != (want == nil) {
			t.Errorf("%q: %v, saved %+v", keys, err, saved)
		}
		if said := out.String(); strings.Contains(said, "secret") || strings.Contains(said, "\x1b[2J") {
			t.Errorf("%q: the token or foreign control characters are on the terminal: %q", keys, said)
		}
	}
}

var errRefused = errors.New("the file is there already")
