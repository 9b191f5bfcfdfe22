package command

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	yamlv3 "go.yaml.in/yaml/v3"

	"limpet/sync/control"
	"limpet/sync/text"
)

// A context is a site that the config file names: a host reached by ssh, a server, a kubeconfig, or
// another state file of this host. What a call does then concerns that site alone: of the
// environment and of the rest of the file only the settings of the output hold, because a token
// goes only to the server that it was set with.

const (
	ContextsKey = "contexts" // the list in the config file
	NoContext   = "none"     // the name that stands for none
)

// Kinds of a Context: the key that says where it is.
const (
	ContextSSH        = "ssh"
	ContextServer     = "provisioning-server-url"
	ContextKubeconfig = "kubeconfig"
	ContextState      = "state"
)

// Context is one of the contexts of a config file.
type Context struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Target string `json:"target"` // the host, the server or the file

	program string         // limpet on a host; "" = limpet
	values  map[string]any // settings by the names of flags
	line    int
}

// contextName matches names that have at most maxContextName bytes. The pattern does not count them:
// it would be compiled for each, at every start.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

const maxContextName = 63

// sshHost matches what ssh takes for a host, as far as no shell and no option is in it.
var sshHost = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/@%+\[\]~-]*$`)

// readContexts returns the contexts, and what is wrong with them.
func (c *ConfigFile) readContexts(flags map[string]*kong.Flag) (all []Context, faults []Fault) {
	list, ok := c.Values[ContextsKey].([]any)
	nodes := c.nodes[ContextsKey]
	if c.Values[ContextsKey] != nil && (!ok || nodes[1] == nil || len(nodes[1].Content) != len(list)) {
		return nil, []Fault{contextFault(c.Where(ContextsKey).Line, "it is a list, of which each entry has a name")}
	}
	for i, entry := range list {
		settings, _ := entry.(map[string]any)
		one, wrong := c.context(settings, nodes[1].Content[i], flags)
		if slices.ContainsFunc(all, func(other Context) bool { return other.Name == one.Name }) {
			wrong = append(wrong, contextFault(one.line, "there are two of the name %q", one.Name))
		}
		all, faults = append(all, one), append(faults, wrong...)
	}
	return all, faults
}

func contextFault(line int, format string, args ...any) Fault {
	return Fault{ContextsKey, line, ContextsKey + ": " + fmt.Sprintf(format, args...), "limpet help contexts"}
}

// context reads one entry as a config file of its own.
func (c *ConfigFile) context(written map[string]any, node *yamlv3.Node, flags map[string]*kong.Flag) (one Context, faults []Fault) {
	own := noConfig()
	for key, value := range written {
		own.Values[strings.ReplaceAll(key, "_", "-")] = value
	}
	if node.Kind == yamlv3.MappingNode {
		own.setNodes(node)
	}
	one = Context{Name: own.text("name"), program: own.text("program"), values: own.Values, line: node.Line}
	for _, kind := range []string{ContextState, ContextKubeconfig, ContextServer, ContextSSH} {
		target := own.text(kind)
		if target != "" && one.Kind != "" && one.Kind != ContextState {
			faults = append(faults, contextFault(node.Line, "%s has both %s and %s", one.Name, kind, one.Kind))
		}
		if target != "" {
			one.Kind, one.Target = kind, target
		}
	}
	switch {
	case !contextName.MatchString(one.Name) || len(one.Name) > maxContextName || one.Name == NoContext:
		faults = append(faults, contextFault(node.Line, "%q is no name of a context; letters, digits, dots and dashes are", one.Name))
	case one.Kind == "":
		faults = append(faults, contextFault(node.Line, "%s lacks where it is: ssh, provisioning-server-url, kubeconfig or state", one.Name))
	case one.Kind == ContextSSH && !sshHost.MatchString(one.Target):
		faults = append(faults, contextFault(own.Where("ssh").Line, "%s: %q is no host for ssh", one.Name, one.Target))
	}
	delete(own.Values, "name")
	known := maps.Clone(flags)
	if one.Kind == ContextSSH {
		delete(own.Values, "ssh")
		delete(own.Values, "program")
		maps.DeleteFunc(known, func(name string, _ *kong.Flag) bool { return name != "namespace" && name != "state" })
	} else {
		maps.DeleteFunc(known, func(name string, f *kong.Flag) bool {
			return name != "state" && GroupOf(f) != APIGroup && GroupOf(f) != AgentGroup
		})
	}
	for _, f := range own.valueFaults(known) {
		faults = append(faults, contextFault(f.Line, "%s: %s", one.Name, f.Problem))
	}
	return one, faults
}

// text returns a value as text; "" = there is none.
func (c *ConfigFile) text(key string) string {
	if v := c.Values[key]; v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// hasContextToken reports whether a context holds a token itself.
func (c *ConfigFile) hasContextToken() bool {
	list, _ := c.Values[ContextsKey].([]any)
	return slices.ContainsFunc(list, func(entry any) bool {
		settings, _ := entry.(map[string]any)
		return settings["token"] != nil
	})
}

// choose makes one context that of the call; "" and NoContext are none.
func (c *ConfigFile) choose(name string, flags map[string]*kong.Flag) error {
	c.Contexts, _ = c.readContexts(flags) // which were checked
	var names []string
	for i := range c.Contexts {
		if names = append(names, c.Contexts[i].Name); names[i] == name {
			c.Context = &c.Contexts[i]
		}
	}
	if name == "" || name == NoContext || c.Context != nil {
		return nil
	}
	if c.Path == "" {
		return Usagef("limpet help contexts", "--context %s: there is no config file that has contexts", name)
	}
	return Usagef("limpet help contexts", "--context %s: the config file %s has no such context%s", name, c.Path, Suggestion(name, names))
}

// setting returns the value of a flag by the context of the call; ok is false where the rest of the
// file decides.
func (c *ConfigFile) setting(flag *kong.Flag) (value any, ok bool) {
	if c.Context == nil || GroupOf(flag) == "Output" || flag.Name == "config" || flag.Name == "context" {
		return nil, false
	}
	if c.Context.Kind == ContextSSH && flag.Name == "state" { // of that host
		return nil, true
	}
	return c.Context.values[flag.Name], true
}

// checkContext refuses flags that select something else than the context of the call does.
func (c *ConfigFile) checkContext(call *kong.Context) error {
	for _, p := range call.Path {
		if c.Context == nil || p.Flag == nil || p.Resolved || !Selects(p.Flag) ||
			slices.Contains([]string{"config", "context", "namespace"}, p.Flag.Name) {
			continue
		}
		return Usagef("limpet --context "+NoContext+" --"+p.Flag.Name+" ...", "--%s and the context %s are given both; keep one",
			p.Flag.Name, c.Context.Name)
	}
	return nil
}

// Host returns the host of a context that is reached by ssh.
func (c *Context) Host() *control.Host {
	state, _ := c.values["state"].(string)
	return control.NewHost(c.Target, c.program, state)
}

// Attach connects to the agent of the call: that of the host of its context, else the one that
// holds the state file, and returns the path of that file. It fails as the function does; but that a
// host does not answer is no control.ErrNoDaemon, for which callers open the state file.
func (e *Env) Attach(ctx context.Context) (path string, daemon *control.Client, err error) {
	if c := e.Context; c == nil || c.Kind != ContextSSH {
		if path, err = e.StatePath(); err == nil {
			daemon, err = Attach(ctx, path)
		}
		return path, daemon, err
	}
	daemon, err = control.AttachBy(ctx, e.Context.Host())
	switch {
	case err == nil:
		return daemon.Hello().State, daemon, nil
	case ctx.Err() != nil:
		return "", nil, context.Cause(ctx)
	}
	why := strings.TrimPrefix(err.Error(), control.ErrNoDaemon.Error()+": ")
	return "", nil, Errorf(ExitUnreachable, "ssh "+text.ShellWord(e.Context.Target)+" limpet relay < /dev/null", "context %s: %s",
		e.Context.Name, why)
}
