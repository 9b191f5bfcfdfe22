package daemon

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/sync/agent"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/config"
)

// reloader reads the config file again while an agent runs. What is in files of its own, as credentials, tokens and
// certificates are, is read again without it.
type reloader struct {
	e       *command.Env
	path    string         // of the state file
	running map[string]any // the settings of the agent by name
}

// live are the settings that hold without a restart.
var live = []string{command.GitRulesKey, command.GitVerifyKey, "token", "log-level"}

// settings returns the settings of a call that concern an agent.
func settings(e *command.Env, call *kong.Context) map[string]any {
	out := map[string]any{}
	for _, flag := range call.Model.Node.Flags {
		if command.GroupOf(flag) != "Output" || flag.Name == "log-level" || flag.Name == "log-format" {
			out[flag.Name] = config.Shown(flag.Target)
		}
	}
	for _, key := range []string{command.GitRulesKey, command.GitVerifyKey} {
		out[key] = e.Config.Values[key]
	}
	return out
}

// reload applies the config file as it is now, or refuses all of it. The log has names of settings only: values may be
// secrets.
func (r *reloader) reload(a *agent.Agent) {
	next, changed, err := r.read(a)
	a.Refuse(err)
	if err != nil {
		_, hint := command.Classify(err)
		r.e.Log.Error("config file refused, the old settings stay", "err", err, "next", hint)
		return
	}
	var restart []string
	for _, name := range changed {
		if !slices.Contains(live, name) || name == "token" && (r.running[name] == "" || next[name] == "" || next[name] != r.e.Flags.Token) {
			restart = append(restart, name)
		} else {
			r.running[name] = next[name]
		}
	}
	r.e.Log.Info("config file reloaded", "file", r.e.Config.Path, "changed", changed, "needs_restart", restart)
	if dir := r.e.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && strings.HasPrefix(r.e.Config.Path, dir+"/") && len(changed) == 0 {
		r.e.Log.Warn("the service manager copies the config file when the service starts", "next", "systemctl restart limpet")
	}
}

// read hands the config file to the agent, and returns the settings and the names of those that differ.
func (r *reloader) read(a *agent.Agent) (next map[string]any, changed []string, err error) {
	again, call, err := r.e.Reread()
	if err != nil {
		return nil, nil, err
	}
	cfg, err := again.AgentConfig(nil, r.path, r.e.Log)
	if err != nil {
		return nil, nil, err
	}
	text.RegisterSecret([]byte(cfg.API.Token))
	next = settings(again, call)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if !reflect.DeepEqual(next[name], r.running[name]) {
			changed = append(changed, name)
		}
	}
	// A token goes only to the server that it was set with.
	token := again.Flags.Token
	if slices.ContainsFunc(changed, func(name string) bool { return name != "token" && slices.Contains(command.ServerFlags, name) }) {
		token = r.e.Flags.Token
	}
	if err := a.Reload(cfg, token); err != nil {
		return nil, nil, fmt.Errorf("config file %s: %w", again.Config.Path, err)
	}
	// An agent that is made anew, with a new state file, has the same.
	r.e.Config, r.e.Flags.Token = again.Config, token
	r.e.Flags.SetLogLevel(again.Flags.LogLevel)
	return next, changed, nil
}
