package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/history"
	"limpet/tui/cli/monitoring"
)

// commitInterval is the period at which the demo commits a change. With the shortest pull interval
// it keeps a few jobs on the screen.
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
	e.Demo(path)
	sites := samples(filepath.Join(dir, "git"))
	g := e.Flags
	g.APIFlags = command.APIFlags{Namespace: "*"}
	g.Manifests, g.ManifestsSelector, g.ManifestsPrune = "", "", false
	g.RepositorySelector, g.Actions = "", nil
	g.TelemetryListen = ""
	g.LocalGitPrefix = append(g.LocalGitPrefix, string(sites))
	if err := sites.create(); err != nil {
		return err
	}
	store, err := e.OpenStore(ctx, path, agent.SocketPath(path))
	if err != nil {
		return err
	}
	defer store.Close()
	if !e.OnScreen() || c.Once {
		return untilStopped(ctx, plainDemo(ctx, e, store, path, sites, c.Once))
	}
	return untilStopped(ctx, withDashboard(ctx, e, store, path, filepath.Join(dir, "limpet.log"), sites.Run))
}

// plainDemo prints one line for each step until ctx ends. With once it ends after the first
// successful pull, and fails without one.
func plainDemo(ctx context.Context, e *command.Env, store *state.Store, path string, g samples, once bool) error {
	level := e.Flags.LogLevel
	if level == "info" {
		level = "error" // the lines of the demo replace those of info
	}
	log := command.NewLogger(&command.Flags{LogLevel: level, LogFormat: e.Flags.LogFormat}, e.Err, false)
	fmt.Fprintf(e.Out, "limpet %s demo: everything on this machine, state in %s\n", command.Version, path)
	return withAgent(ctx, e, store, path, keepLog(e, log), func(a *agent.Agent) error {
		return RunTogether(ctx, a.Run,
			func(ctx context.Context) error { return g.Run(ctx, a) },
			func(ctx context.Context) error { return printDemo(ctx, e, a, once) })
	})
}

func printDemo(ctx context.Context, e *command.Env, a *agent.Agent, once bool) error {
	var seq uint64
	told := map[string]string{}
	for {
		snap, err := a.Next(ctx, seq)
		switch {
		case err != nil && once && untilStopped(ctx, nil) == nil:
			return command.Errorf(command.ExitCancelled, "limpet demo --once", "interrupted before a pull has succeeded")
		case err != nil:
			return nil
		}
		seq = snap.Seq
		for _, j := range snap.Jobs {
			line := strings.TrimSuffix(fmt.Sprintf("%s %s %s: %s", j.Name, j.Action, j.State, text.Clean(j.Message)), ": ")
			if told[j.UID] == line {
				continue
			}
			told[j.UID] = line
			fmt.Fprintf(e.Out, "%s %s\n", snap.At.UTC().Format(time.RFC3339), line)
			switch {
			case !once || j.Finished.IsZero():
			case j.State == api.StateSuccess:
				fmt.Fprintln(e.Out, "the first pull has succeeded; run it on a terminal to see the dashboard: limpet demo")
				return nil
			case j.State == api.StateError, j.State == history.StateDead:
				return command.Errorf(command.ExitJobFailed, "limpet demo --once --log-level debug",
					"the first pull ended in error: %s", text.Clean(j.Message))
			}
		}
	}
}

// samples is the directory of the sample repositories of the demo.
type samples string

// sample is one sample repository and its Repository object.
type sample struct {
	name, title string
	folders     []string
	each        int  // dashboards a folder
	boards      bool // with the boards of limpet itself
}

var sampleRepositories = []sample{
	{"plant-east", "Plant East", []string{"line-1", "line-2", "energy/meters", "energy/solar"}, 6, false},
	{"network", "Network", []string{"core", "edge/routers", "edge/switches"}, 5, true},
	{"vessels", "Vessels", []string{"fleet", "engines"}, 4, false},
}

func (g samples) path(p sample) string { return filepath.Join(string(g), p.name+".git") }

// create creates the sample repositories with their first commits.
func (g samples) create() error {
	for i, p := range sampleRepositories {
		files := map[string][]byte{"README.md": []byte("# " + p.title + "\n")}
		for _, folder := range p.folders {
			for n := 1; n <= p.each; n++ {
				files[boardFile(folder, n)] = p.dashboard(folder, n, 0)
			}
		}
		if p.boards {
			for name, board := range monitoring.Boards() {
				files["grafana/monitoring/limpet-"+name] = board
			}
		}
		err := git.CreateRepository(g.path(p))
		if err == nil {
			_, err = git.CommitFiles(g.path(p), "main", "Dashboards of "+p.title, files, time.Now().Add(-time.Hour*time.Duration(i+1)))
		}
		if err != nil {
			return fmt.Errorf("make the sample repository: %w", err)
		}
	}
	return nil
}

// Run creates the Repository objects, then commits a change to each in turn until ctx ends.
func (g samples) Run(ctx context.Context, a *agent.Agent) error {
	for _, p := range sampleRepositories {
		data := fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Repository","metadata":{"name":%q},"spec":{"title":%q,"type":"git",
			"git":{"url":%q,"branch":"main","path":"grafana"},"sync":{"enabled":true,"target":"folder","intervalSeconds":10}}}`,
			api.Repositories.GroupVersion(), p.name, p.title, "file://"+g.path(p))
		// Apply, because the file of --state may have them already.
		_, err := a.Client().Resource(api.Repositories).Namespace("default").Patch(ctx, p.name, types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: "limpet-demo", Force: new(true)})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("make the sample Repository: %w", err)
		}
	}
	for n := 1; ; n++ {
		command.Sleep(ctx, commitInterval)
		if ctx.Err() != nil {
			return nil
		}
		p := sampleRepositories[n%len(sampleRepositories)]
		folder, board := p.folders[n%len(p.folders)], n%p.each+1
		_, err := git.CommitFiles(g.path(p), "main", fmt.Sprintf("Tune %s, board %d", folder, board),
			map[string][]byte{boardFile(folder, board): p.dashboard(folder, board, n)}, time.Now())
		if err != nil {
			return fmt.Errorf("commit to the sample repository: %w", err)
		}
	}
}

func boardFile(folder string, n int) string {
	return fmt.Sprintf("grafana/%s/board-%d.json", folder, n)
}

// classic is a classic dashboard as Grafana exports it, with the members that identify the format.
const classic = `{
  "uid": "%[1]s-%[4]s-%[5]d", "title": "%[2]s %[3]s %[5]d", "tags": [%[1]q, "demo"],
  "schemaVersion": 41, "timezone": "utc", "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
  "panels": [{
    "id": 1, "type": "timeseries", "title": "power_watts %[5]d", "gridPos": {"h": 8, "w": 24, "x": 0, "y": 0},
    "datasource": {"type": "prometheus", "uid": "local"},
    "targets": [{"refId": "A", "expr": "avg(power_watts{site='%[1]s',area='%[3]s'}) + %[6]d"}]
  }]
}
`

// dashboard returns a dashboard of a folder at a revision.
func (p sample) dashboard(folder string, n, revision int) []byte {
	return fmt.Appendf(nil, classic, p.name, p.title, folder, strings.ReplaceAll(folder, "/", "-"), n, revision)
}
