package command

import (
	"cmp"
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

// ContextsKey is the list of contexts in the config file.
const ContextsKey = "contexts"

// NoContext is the name that stands for none.
const NoContext = "none"

// Kinds of a Context.
const (
	ContextSSH        = "ssh"
	ContextServer     = "server"
	ContextKubeconfig = "kubeconfig"
	ContextState      = "state"
)

// Context is one of the contexts of a config file.
type Context struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Target is the host, the server, or the file.
	Target string `json:"target"`

	program string         // limpet on a host; "" = limpet
	values  map[string]any // settings by the names of flags
	line    int
}

// members are the keys of a context that are no settings.
var members = []string{"name", "ssh", "program"}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Contexts returns the contexts, and what is wrong with them.
func (c *ConfigFile) Contexts(flags map[string]*kong.Flag) (all []Context, faults []Fault) {
	written, there := c.Values[ContextsKey]
	list, ok := written.([]any)
	nodes := c.nodes[ContextsKey]
	if there && (!ok || len(nodes[1].Content) != len(list)) {
		return nil, []Fault{c.contextFault(c.Where(ContextsKey).Line, "it is a list, of which each entry has a name")}
	}
	for i, entry := range list {
		node := nodes[1].Content[i]
		settings, ok := entry.(map[string]any)
		if !ok {
			faults = append(faults, c.contextFault(node.Line, "an entry has a name, and ssh, provisioning-server-url, kubeconfig or state"))
			continue
		}
		one, wrong := c.context(settings, node, flags)
		if slices.ContainsFunc(all, func(other Context) bool { return other.Name == one.Name }) {
			wrong = append(wrong, c.contextFault(node.Line, "there are two of the name %q", one.Name))
		}
		all, faults = append(all, one), append(faults, wrong...)
	}
	return all, faults
}

func (c *ConfigFile) contextFault(line int, format string, args ...any) Fault {
	return Fault{ContextsKey, line, ContextsKey + ": " + fmt.Sprintf(format, args...), "limpet help contexts"}
}

// context reads one entry.
func (c *ConfigFile) context(written map[string]any, node *yamlv3.Node, flags map[string]*kong.Flag) (one Context, faults []Fault) {
	own := &ConfigFile{Path: c.Path, Values: map[string]any{}, nodes: map[string][2]*yamlv3.Node{}}
	said := map[string]string{}
	for key, value := range written {
		name := strings.ReplaceAll(key, "_", "-")
		if slices.Contains(members, name) {
			said[name] = fmt.Sprint(value)
		} else {
			own.Values[name] = value
		}
	}
	for pair := range slices.Chunk(node.Content, 2) {
		own.nodes[strings.ReplaceAll(pair[0].Value, "_", "-")] = [2]*yamlv3.Node(pair)
	}
	one = Context{Name: said["name"], program: said["program"], values: own.Values, line: node.Line}
	for _, way := range []struct{ kind, target string }{
		{ContextSSH, said["ssh"]}, {ContextServer, own.text("provisioning-server-url")}, {ContextKubeconfig, own.text("kubeconfig")},
		{ContextState, own.text("state")},
	} {
		switch {
		case way.target == "":
		case one.Kind == "":
			one.Kind, one.Target = way.kind, way.target
		case way.kind != ContextState:
			faults = append(faults, c.contextFault(node.Line, "%s has two of ssh, provisioning-server-url and kubeconfig", one.Name))
		}
	}
	refuse := func(key, format string, args ...any) {
		line := node.Line
		if at, ok := own.nodes[key]; ok {
			line = at[0].Line
		}
		faults = append(faults, c.contextFault(line, format, args...))
	}
	switch {
	case !contextName.MatchString(one.Name) || one.Name == NoContext:
		refuse("name", "%q is no name of a context; letters, digits, dots and dashes are", one.Name)
	case one.Kind == "":
		refuse("name", "%s says nothing of where it is: ssh, provisioning-server-url, kubeconfig or state is missing", one.Name)
	case one.Kind != ContextSSH && one.program != "":
		refuse("program", "%s has a program, which is for ssh", one.Name)
	case one.Kind == ContextSSH && (strings.HasPrefix(one.Target, "-") || strings.ContainsFunc(one.Target, notOfHost)):
		refuse("ssh", "%s: %q is no host for ssh", one.Name, one.Target)
	}
	for _, key := range []string{GitRulesKey, GitVerifyKey, ContextsKey} {
		if own.Values[key] != nil {
			refuse(key, "%s: %s is for the file as a whole", one.Name, key)
		}
	}
	known := maps.Clone(flags)
	maps.DeleteFunc(known, func(name string, f *kong.Flag) bool {
		if one.Kind == ContextSSH {
			return name != "namespace" && name != "state"
		}
		return name != "state" && GroupOf(f) != APIGroup && GroupOf(f) != AgentGroup
	})
	for _, f := range own.Faults(known) {
		faults = append(faults, c.contextFault(cmp.Or(f.Line, node.Line), "%s: %s", one.Name, f.Problem))
	}
	return one, faults
}

// Contexts are those of the config file.
func (e *Env) Contexts() []Context { return e.Config.contexts }

// text returns a value as text; "" = there is none.
func (c *ConfigFile) text(key string) string {
	if v := c.Values[key]; v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// notOfHost reports whether a rune occurs in no host, user or ssh URL.
func notOfHost(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("\"'`$\\;&|<>(){}*?!#", r)
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
	all, _ := c.Contexts(flags) // which were checked
	c.contexts = all
	if name == "" || name == NoContext {
		return nil
	}
	var names []string
	for i := range all {
		if all[i].Name == name {
			c.Context = &all[i]
			return nil
		}
		names = append(names, all[i].Name)
	}
	if c.Path == "" {
		return Usagef("limpet help contexts", "--context %s: there is no config file that could have it", name)
	}
	return Usagef("limpet fleet list", "--context %s: config file %s has no such context%s", name, c.Path, Suggestion(name, names))
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
	return &control.Host{Name: c.Target, Program: c.program, State: state}
}

// Has reports whether the context has a setting.
func (c *Context) Has(flag string) bool { return c.values[flag] != nil }

// Attach connects to the agent of a host that is reached by ssh. A host that does not answer is no
// reason to work without it: the error is no control.ErrNoDaemon, for which callers open the state
// file.
func (c *Context) Attach(ctx context.Context) (*control.Client, error) {
	daemon, err := control.AttachBy(ctx, c.Host())
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		why := strings.TrimPrefix(err.Error(), control.ErrNoDaemon.Error()+": ")
		err = Errorf(ExitUnreachable, strings.Join(quoted(c.Host().Words()), " "), "context %s: %s", c.Name, why)
	}
	return daemon, err
}

// Attach connects to the agent of the call: that of the host of its context, else the one that
// holds the state file, and returns the path of that file. It fails as the functions do.
func (e *Env) Attach(ctx context.Context) (path string, daemon *control.Client, err error) {
	if c := e.Context; c != nil && c.Kind == ContextSSH {
		if daemon, err = c.Attach(ctx); err == nil {
			path = daemon.Hello().State
		}
		return path, daemon, err
	}
	if path, err = e.StatePath(); err != nil {
		return "", nil, err
	}
	daemon, err = Attach(ctx, path)
	return path, daemon, err
}

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = text.ShellWord(w)
	}
	return out
}
