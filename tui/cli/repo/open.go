package repo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type openCmd struct {
	Name  string `arg:"" help:"Name of the repository."`
	Print bool   `help:"Print the address only."`
}

// Help is the long help of the command.
func (openCmd) Help() string {
	return "It prints the address of the repository at its host, with branch and directory where the host shows them, and in a graphical session opens it in a browser."
}

// repoPage is the output of 'limpet repo open -o json'.
type repoPage struct {
	Namespace  string `json:"namespace"`
	Repository string `json:"repository"`
	URL        string `json:"url"`
	Opened     bool   `json:"opened"`
}

func (c openCmd) Run(ctx context.Context, e *command.Env) error {
	page, err := c.find(ctx, e)
	if err != nil {
		return err
	}
	if browser := browser(e, exec.LookPath); browser != nil && !c.Print {
		if err := show(ctx, append(slices.Clone(browser), page.URL)); err != nil {
			e.Notef("no browser: %v", err)
		} else {
			page.Opened = true
		}
	}
	return e.PrintOne(page, "repository/"+page.Repository, func(w io.Writer) { fmt.Fprintln(w, page.URL) })
}

// find reads the repository and derives its address. The session is closed before a browser starts.
func (c openCmd) find(ctx context.Context, e *command.Env) (page repoPage, err error) {
	err = e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		u, err := e.FindObject(ctx, s, api.Repositories, c.Name)
		if err != nil {
			return err
		}
		repo, err := api.RepositoryView(u)
		if err != nil {
			return err
		}
		shown := gitOf(repo).Branch
		if repo.GitRef != "" { // the pulled revision
			shown = repo.Status.Sync.LastRef
		}
		address, err := forge.Page(forge.TargetOf(u), shown, gitOf(repo).Path)
		if err != nil {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "repo show "+u.GetName()),
				"repository %s cannot be shown in a browser: %w", u.GetName(), err)
		}
		page = repoPage{Namespace: u.GetNamespace(), Repository: u.GetName(), URL: text.Clean(text.Redact(address))}
		return nil
	})
	return page, err
}

// browser returns the program that opens addresses, nil without a graphical session on this terminal.
func browser(e *command.Env, find func(string) (string, error)) []string {
	if e.Getenv("SSH_TTY") != "" || e.Getenv("SSH_CONNECTION") != "" {
		return nil
	}
	calls := [][]string{{"xdg-open"}, {"gio", "open"}, {"wslview"}}
	switch {
	case runtime.GOOS == "darwin":
		calls = [][]string{{"open"}}
	case e.Getenv("DISPLAY") == "" && e.Getenv("WAYLAND_DISPLAY") == "":
		return nil
	}
	for _, call := range calls {
		if path, err := find(call[0]); err == nil {
			return append([]string{path}, call[1:]...)
		}
	}
	return nil
}

// browserTimeout bounds the wait for the program. Most exit at once; one that stays has become the browser's parent.
const browserTimeout = 5 * time.Second

// show runs the program. Its output is dropped: stdout has the address.
func show(ctx context.Context, call []string) error {
	limited, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, call[0], call[1:]...)
	cmd.Env, cmd.WaitDelay = os.Environ(), time.Second
	err := cmd.Run()
	if limited.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}
