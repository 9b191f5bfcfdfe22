package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/text"
)

type repoOpenCmd struct {
	Name  string `arg:"" help:"Name of the repository."`
	Print bool   `help:"Print the address only."`
}

// Help is the long help of the command.
func (repoOpenCmd) Help() string {
	return "It prints the address of the repository at its host, with branch and directory where the host shows them, and in a graphical session opens it in a browser."
}

// repoPage is what 'limpet repo open -o json' prints.
type repoPage struct {
	Namespace  string `json:"namespace"`
	Repository string `json:"repository"`
	URL        string `json:"url"`
	Opened     bool   `json:"opened"`
}

func (c repoOpenCmd) Run(ctx context.Context, r *run) error {
	page, err := c.find(ctx, r)
	if err != nil {
		return err
	}
	if browser := r.browser(exec.LookPath); browser != nil && !c.Print {
		if err := show(ctx, append(slices.Clone(browser), page.URL)); err != nil {
			r.note("no browser: %v", err)
		} else {
			page.Opened = true
		}
	}
	return r.printOne(page, "repository/"+page.Repository, func(w io.Writer) { fmt.Fprintln(w, page.URL) })
}

// find reads the repository and works out its address. The API is let go before a
// browser starts.
func (c repoOpenCmd) find(ctx context.Context, r *run) (repoPage, error) {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return repoPage{}, err
	}
	defer s.Close()
	u, err := s.find(ctx, api.Repositories, r.g.listNamespace(), c.Name)
	if apierrors.IsNotFound(err) {
		return repoPage{}, fail(ExitError, "limpet repo list", "repository %q not found", c.Name)
	}
	if err != nil {
		return repoPage{}, err
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return repoPage{}, err
	}
	var block api.GitBlock
	if b := repo.Spec.Block(); b != nil {
		block = *b
	}
	shown := block.Branch
	if repo.GitRef != "" { // what was pulled, whatever it was called
		shown = repo.Status.Sync.LastRef
	}
	address, err := forge.Page(forge.TargetOf(u), shown, block.Path)
	if err != nil {
		return repoPage{}, fail(ExitError, next(u.GetNamespace(), "repo show "+u.GetName()), "repository %s cannot be shown in a browser: %w", u.GetName(), err)
	}
	return repoPage{u.GetNamespace(), u.GetName(), text.Clean(text.Redact(address)), false}, nil
}

// browser is the program that opens addresses here, nil where there is no graphical
// session, or none in front of this person.
func (r *run) browser(find func(string) (string, error)) []string {
	if r.Getenv("SSH_TTY") != "" || r.Getenv("SSH_CONNECTION") != "" {
		return nil
	}
	calls := [][]string{{"xdg-open"}, {"gio", "open"}, {"wslview"}}
	switch {
	case runtime.GOOS == "darwin":
		calls = [][]string{{"open"}}
	case r.Getenv("DISPLAY") == "" && r.Getenv("WAYLAND_DISPLAY") == "":
		return nil
	}
	for _, call := range calls {
		if path, err := find(call[0]); err == nil {
			return append([]string{path}, call[1:]...)
		}
	}
	return nil
}

// showFor is how long an opener is waited for. Most hand the address on and end;
// one that is still there then has become the browser's parent, which goes on
// without it.
const showFor = 5 * time.Second

// show calls the opener. What it says is for nobody: stdout is the address.
func show(ctx context.Context, call []string) error {
	limited, cancel := context.WithTimeout(ctx, showFor)
	defer cancel()
	cmd := exec.CommandContext(limited, call[0], call[1:]...)
	cmd.Env, cmd.WaitDelay = os.Environ(), time.Second
	err := cmd.Run()
	if limited.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}
