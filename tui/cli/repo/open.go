package repo

import (
	"context"
	"io"
	"time"

	"github.com/pkg/browser"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type openCmd struct {
	Name  string `arg:"" help:"Name of the repository."`
	Print bool   `help:"Print the address only."`
}

// repoPage is the output of 'limpet repo open -o json'.
type repoPage struct {
	Namespace  string `json:"namespace"`
	Repository string `json:"repository"`
	URL        string `json:"url"`
	Opened     bool   `json:"opened"`
}

func (c openCmd) Run(ctx context.Context, e *command.Env) error {
	var page repoPage
	needs := command.Needs{API: true}
	err := e.WithObject(ctx, needs, api.Repositories, c.Name, func(_ *command.Session, u *unstructured.Unstructured) error {
		repo, err := api.RepositoryView(u)
		if err != nil {
			return err
		}
		shown := repo.Spec.GitBlock().Branch
		if repo.GitRef != "" { // the pulled revision
			shown = repo.Status.Sync.LastRef
		}
		address, err := forge.Page(forge.TargetOf(u), shown, repo.Spec.GitBlock().Path)
		if err != nil {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "repo show "+u.GetName()),
				"repository %s cannot be shown in a browser: %w", u.GetName(), err)
		}
		page = repoPage{Namespace: u.GetNamespace(), Repository: u.GetName(), URL: text.Clean(text.Redact(address))}
		return nil
	})
	if err != nil {
		return err
	}
	if !c.Print && graphical(e.Getenv) {
		if err := open(page.URL); err != nil {
			e.Notef("no browser: %v", err)
		} else {
			page.Opened = true
		}
	}
	return e.PrintDone(page, "repository/"+page.Repository, "%s", page.URL)
}

// graphical reports whether this terminal is on a host with a screen.
func graphical(env func(string) string) bool {
	return env("SSH_TTY") == "" && env("SSH_CONNECTION") == "" && env("DISPLAY")+env("WAYLAND_DISPLAY") != ""
}

// openTimeout bounds the wait for the program that opens addresses; one that stays has become the
// browser's parent.
const openTimeout = 5 * time.Second

// open opens an address in a browser. The output of the program is dropped: stdout has the address.
func open(address string) error {
	browser.Stdout, browser.Stderr = io.Discard, io.Discard
	opened := make(chan error, 1)
	go func() { opened <- browser.OpenURL(address) }()
	select {
	case err := <-opened:
		return err
	case <-time.After(openTimeout):
		return nil
	}
}
