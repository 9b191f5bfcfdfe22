package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"limpet/sync/kube"
	"limpet/sync/text"
	"limpet/tui"
	"limpet/tui/cli/command"
	"limpet/tui/cli/config"
	"limpet/tui/cli/doctor"
)

// The setup asks for the server and the token and writes the config file. Then limpet starts over.

func setUp(ctx context.Context, e *command.Env) error {
	file := command.ConfigPaths(e.Getenv)[0]
	err := tui.RunSetUp(ctx, tui.SetUp{File: file,
		Try:  func(ctx context.Context, s tui.Settings) (string, error) { return trySettings(ctx, e, s) },
		Save: func(s tui.Settings) error { return saveSettings(file, e.Getenv("HOME"), s) }}, tuiOptions(e))
	if err != nil || ctx.Err() != nil {
		return err
	}
	return command.ErrRestart
}

// trySettings checks the server as the doctor does.
func trySettings(ctx context.Context, e *command.Env, s tui.Settings) (string, error) {
	began := time.Now()
	file, err := homePath(s.TokenFile, e.Getenv("HOME"))
	if err != nil {
		return "", err
	}
	text.RegisterSecret([]byte(s.Token))
	client, err := kube.Connect(ctx, kube.Config{Server: s.Server, Token: s.Token, TokenFile: file,
		UserAgent: "limpet/" + command.Version, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	defer client.Close()
	return doctor.TryServer(ctx, e, client, began)
}

// homePath expands ~/ at the beginning of a path.
func homePath(path, home string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~/")
	switch {
	case !ok:
		return path, nil
	case !filepath.IsAbs(home):
		return "", fmt.Errorf("HOME is not set, so %s is not known; give the whole path", path)
	}
	return filepath.Join(home, rest), nil
}

// saveSettings writes the token into a file of its own and then the config file, each with mode
// 0600 and atomically. It never replaces a config file.
func saveSettings(file, home string, s tui.Settings) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%s is there already; it stays as it is", file)
		}
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if s.Token != "" {
		s.TokenFile = filepath.Join(dir, "token")
		if err := command.WriteText(s.TokenFile, 0o600, s.Token+"\n"); err != nil {
			return err
		}
	}
	tokenFile, err := homePath(s.TokenFile, home)
	if err != nil {
		return err
	}
	return command.WriteText(file, 0o600, fmt.Sprintf(`# Written by the setup of limpet. All settings: limpet config init FILE
provisioning-server-url: %s
token-file: %s
`, config.Quoted(s.Server), config.Quoted(tokenFile)))
}
