package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// gardenEvery is the period at which the demo commits a change. With the
// shortest pull interval it keeps a few jobs on the screen.
const gardenEvery = 4 * time.Second

type demoCmd struct {
	Once bool `help:"End with exit code 0 when the first pull has succeeded."`
}

func (c demoCmd) Run(ctx context.Context, r *run) error {
	dir, err := os.MkdirTemp("", "limpet-demo-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limpet.db")
	if r.g.State != "" {
		if path, err = r.statePath(); err != nil {
			return err
		}
	}
	r.demoFlags(dir)
	garden, err := plant(filepath.Join(dir, "git"))
	if err != nil {
		return err
	}
	store, err := r.openStore(ctx, path, agent.SocketPath(path))
	if err != nil {
		return err
	}
	defer store.Close()
	if r.onScreen() && !c.Once {
		logFile, err := os.OpenFile(filepath.Join(dir, "limpet.log"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer logFile.Close()
		return r.withDashboard(ctx, store, path, newLogger(r.g, logFile, true), garden.grow)
	}
	return r.plainDemo(ctx, store, path, garden, c.Once)
}

// demoFlags turns the flags to what the demo needs: everything on this machine,
// whatever the config file says of servers and of what an agent should take.
func (r *run) demoFlags(dir string) {
	g := r.g
	g.ProvisioningServerURL, g.Kubeconfig, g.DashboardsServerURL, g.FoldersServerURL = "", "", "", ""
	g.Token, g.TokenFile, g.TokenExchangeURL, g.Manifests = "", "", "", ""
	g.Namespace, g.RepositorySelector, g.Actions = "*", "", nil
	g.TelemetryListen = ""
	g.LocalGitPrefix = append(g.LocalGitPrefix, filepath.Join(dir, "git"))
}

// plainDemo prints one line for each step. With once it ends after the first
// pull that succeeds, and fails if that does not come.
func (r *run) plainDemo(ctx context.Context, store *state.Store, path string, g *garden, once bool) error {
	level := r.g.LogLevel
	if level == "info" {
		level = "error" // the lines of the demo say what info would
	}
	log := newLogger(&Globals{LogLevel: level, LogFormat: r.g.LogFormat}, r.Err, false)
	cfg, err := r.agentConfig(store, path, log)
	if err != nil {
		return err
	}
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	fmt.Fprintf(r.Out, "limpet %s demo: everything on this machine, state in %s\n", Version, path)
	succeeded := false
	err = together(ctx, a.Run,
		func(ctx context.Context) error { return g.grow(ctx, a) },
		func(ctx context.Context) (err error) {
			succeeded, err = r.printDemo(ctx, a, once)
			return err
		})
	if err == nil && !succeeded {
		err = lateEnd(ctx)
		if err == nil && once {
			err = fail(ExitCancelled, "limpet demo --once", "interrupted before a pull has succeeded")
		}
	}
	return err
}

// printDemo prints the steps until ctx ends, with once until a pull succeeds.
func (r *run) printDemo(ctx context.Context, a *agent.Agent, once bool) (succeeded bool, err error) {
	var seq uint64
	told := map[string]string{}
	for {
		snap, err := a.Next(ctx, seq)
		if err != nil {
			return false, nil // the user has had enough
		}
		seq = snap.Seq
		for _, j := range snap.Jobs {
			line := demoLine(j)
			if told[j.UID] == line {
				continue
			}
			told[j.UID] = line
			fmt.Fprintf(r.Out, "%s %s\n", snap.At.UTC().Format(time.RFC3339), line)
			if !once || j.Finished.IsZero() {
				continue
			}
			switch j.State {
			case api.StateSuccess:
				fmt.Fprintln(r.Out, "the first pull has succeeded; run it on a terminal to see the dashboard: limpet demo")
				return true, nil
			case api.StateError, stateDead:
				return false, fail(ExitJobFailed, "limpet demo --once --log-level debug", "the first pull ended in error: %s", text.Clean(j.Message))
			}
		}
	}
}

func demoLine(j snapshot.Job) string {
	line := fmt.Sprintf("%s %s %s", j.Name, j.Action, j.State)
	if j.Total > 0 && j.Finished.IsZero() {
		line += fmt.Sprintf(" %d/%d", j.Done, j.Total)
	}
	if j.Message != "" {
		line += ": " + text.Clean(j.Message)
	}
	for _, s := range j.Summary {
		if !j.Finished.IsZero() {
			line += fmt.Sprintf("; %s %d created, %d updated, %d deleted", s.Kind, s.Create, s.Update, s.Delete)
		}
	}
	return line
}

// garden is the set of sample repositories of the demo.
type garden struct {
	dir   string
	plots []plot
}

// plot is one sample repository and the Repository object that points at it.
type plot struct {
	name, title string
	folders     []string
	each        int // dashboards a folder
}

var demoPlots = []plot{
	{name: "plant-east", title: "Plant East", folders: []string{"line-1", "line-2", "energy/meters", "energy/solar"}, each: 6},
	{name: "network", title: "Network", folders: []string{"core", "edge/routers", "edge/switches"}, each: 5},
	{name: "vessels", title: "Vessels", folders: []string{"fleet", "engines"}, each: 4},
}

// plant makes the sample repositories with their first commits.
func plant(dir string) (*garden, error) {
	g := &garden{dir: dir, plots: demoPlots}
	for i, p := range g.plots {
		repo := g.path(p)
		if err := git.CreateRepository(repo); err != nil {
			return nil, fmt.Errorf("make the sample repository: %w", err)
		}
		files := map[string][]byte{"README.md": []byte("# " + p.title + "\n")}
		for _, folder := range p.folders {
			for n := 1; n <= p.each; n++ {
				files[fmt.Sprintf("grafana/%s/board-%d.json", folder, n)] = demoDashboard(p, folder, n, 0)
			}
		}
		when := time.Now().Add(-time.Hour * time.Duration(i+1))
		if _, err := git.CommitFiles(repo, "main", "Dashboards of "+p.title, files, nil, when); err != nil {
			return nil, fmt.Errorf("make the sample repository: %w", err)
		}
	}
	return g, nil
}

func (g *garden) path(p plot) string { return filepath.Join(g.dir, p.name+".git") }

// grow makes the Repository objects, then commits a change now and then until
// ctx ends.
func (g *garden) grow(ctx context.Context, a *agent.Agent) error {
	for _, p := range g.plots {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"title": p.title, "type": "git",
			"git":  map[string]any{"url": "file://" + g.path(p), "branch": "main", "path": "grafana"},
			"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(10)},
		}}}
		u.SetAPIVersion(api.Repositories.GroupVersion().String())
		u.SetKind("Repository")
		u.SetName(p.name)
		data, err := json.Marshal(u.Object)
		if err != nil {
			return err
		}
		// An apply, because --state may name a file that knows them already.
		_, err = a.Client().Resource(api.Repositories).Namespace("default").Patch(ctx, p.name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "limpet-demo", Force: new(true)})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("make the sample Repository: %w", err)
		}
	}
	tick := time.NewTicker(gardenEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := g.change(n); err != nil {
			return err
		}
	}
}

// change commits one edit to one repository, in turn.
func (g *garden) change(n int) error {
	p := g.plots[n%len(g.plots)]
	folder := p.folders[n%len(p.folders)]
	board := n%p.each + 1
	file := fmt.Sprintf("grafana/%s/board-%d.json", folder, board)
	_, err := git.CommitFiles(g.path(p), "main", fmt.Sprintf("Tune %s, board %d", folder, board),
		map[string][]byte{file: demoDashboard(p, folder, board, n)}, nil, time.Now())
	if err != nil {
		return fmt.Errorf("commit to the sample repository: %w", err)
	}
	return nil
}
