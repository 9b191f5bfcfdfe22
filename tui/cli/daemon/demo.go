package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"limpet/tui/cli/command"
	"limpet/tui/cli/history"

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

// commitInterval is the period at which the demo commits a change. With the shortest pull interval it keeps a
// few jobs on the screen.
const commitInterval = 4 * time.Second

// DemoCommand is 'limpet demo'.
type DemoCommand struct {
	Once bool `help:"End with exit code 0 when the first pull has succeeded."`
}

func (c DemoCommand) Run(ctx context.Context, e *command.Env) error {
	dir, err := os.MkdirTemp("", "limpet-demo-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limpet.db")
	if e.Flags.State != "" {
		if path, err = e.StatePath(); err != nil {
			return err
		}
	}
	demoFlags(e, dir)
	garden, err := createSamples(filepath.Join(dir, "git"))
	if err != nil {
		return err
	}
	store, err := e.OpenStore(ctx, path, agent.SocketPath(path))
	if err != nil {
		return err
	}
	defer store.Close()
	if e.OnScreen() && !c.Once {
		logFile, err := os.OpenFile(filepath.Join(dir, "limpet.log"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer logFile.Close()
		return withDashboard(ctx, e, store, path, command.NewLogger(e.Flags, logFile, true), garden.Run)
	}
	return plainDemo(ctx, e, store, path, garden, c.Once)
}

// demoFlags sets the flags for the demo: everything on this machine, whatever the config file says.
func demoFlags(e *command.Env, dir string) {
	g := e.Flags
	g.ProvisioningServerURL, g.Kubeconfig, g.DashboardsServerURL, g.FoldersServerURL = "", "", "", ""
	g.Token, g.TokenFile, g.TokenExchangeURL, g.Manifests = "", "", "", ""
	g.Namespace, g.RepositorySelector, g.Actions = "*", "", nil
	g.TelemetryListen = ""
	g.LocalGitPrefix = append(g.LocalGitPrefix, filepath.Join(dir, "git"))
}

// plainDemo prints one line for each step. With once it ends after the first successful pull, and fails
// without one.
func plainDemo(ctx context.Context, e *command.Env, store *state.Store, path string, g *samples, once bool) error {
	level := e.Flags.LogLevel
	if level == "info" {
		level = "error" // the lines of the demo replace those of info
	}
	log := command.NewLogger(&command.Flags{LogLevel: level, LogFormat: e.Flags.LogFormat}, e.Err, false)
	cfg, err := e.AgentConfig(store, path, log)
	if err != nil {
		return err
	}
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	fmt.Fprintf(e.Out, "limpet %s demo: everything on this machine, state in %s\n", command.Version, path)
	succeeded := false
	err = RunTogether(ctx, a.Run,
		func(ctx context.Context) error { return g.Run(ctx, a) },
		func(ctx context.Context) (err error) {
			succeeded, err = printDemo(ctx, e, a, once)
			return err
		})
	if err == nil && !succeeded {
		err = stopError(ctx)
		if err == nil && once {
			err = command.Errorf(command.ExitCancelled, "limpet demo --once", "interrupted before a pull has succeeded")
		}
	}
	return err
}

// printDemo prints the steps until ctx ends, with once until a pull succeeds.
func printDemo(ctx context.Context, e *command.Env, a *agent.Agent, once bool) (succeeded bool, err error) {
	var seq uint64
	told := map[string]string{}
	for {
		snap, err := a.Next(ctx, seq)
		if err != nil {
			return false, nil // interrupted
		}
		seq = snap.Seq
		for _, j := range snap.Jobs {
			line := demoLine(j)
			if told[j.UID] == line {
				continue
			}
			told[j.UID] = line
			fmt.Fprintf(e.Out, "%s %s\n", snap.At.UTC().Format(time.RFC3339), line)
			if !once || j.Finished.IsZero() {
				continue
			}
			switch j.State {
			case api.StateSuccess:
				fmt.Fprintln(e.Out, "the first pull has succeeded; run it on a terminal to see the dashboard: limpet demo")
				return true, nil
			case api.StateError, history.StateDead:
				return false, command.Errorf(command.ExitJobFailed, "limpet demo --once --log-level debug",
					"the first pull ended in error: %s", text.Clean(j.Message))
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

// samples are the sample repositories of the demo.
type samples struct {
	dir          string
	repositories []sampleRepository
}

// sampleRepository is one sample repository and its Repository object.
type sampleRepository struct {
	name, title string
	folders     []string
	each        int // dashboards a folder
}

var sampleRepositories = []sampleRepository{
	{name: "plant-east", title: "Plant East", folders: []string{"line-1", "line-2", "energy/meters", "energy/solar"}, each: 6},
	{name: "network", title: "Network", folders: []string{"core", "edge/routers", "edge/switches"}, each: 5},
	{name: "vessels", title: "Vessels", folders: []string{"fleet", "engines"}, each: 4},
}

// createSamples creates the sample repositories with their first commits.
func createSamples(dir string) (*samples, error) {
	g := &samples{dir: dir, repositories: sampleRepositories}
	for i, p := range g.repositories {
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

func (g *samples) path(p sampleRepository) string { return filepath.Join(g.dir, p.name+".git") }

// Run creates the Repository objects, then commits a change periodically until ctx ends.
func (g *samples) Run(ctx context.Context, a *agent.Agent) error {
	for _, p := range g.repositories {
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
		// Apply, because the file of --state may have them already.
		_, err = a.Client().Resource(api.Repositories).Namespace("default").Patch(ctx, p.name, types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: "limpet-demo", Force: new(true)})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("make the sample Repository: %w", err)
		}
	}
	tick := time.NewTicker(commitInterval)
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
func (g *samples) change(n int) error {
	p := g.repositories[n%len(g.repositories)]
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
