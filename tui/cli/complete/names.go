package complete

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

// lookupTimeout bounds the look-up: longer feels like a hanging key.
const lookupTimeout = 150 * time.Millisecond

// maxNames bounds what is offered of one kind.
const maxNames = 1000

// plainName matches names that need no quotes in a shell.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// namesOf returns the names of a kind, none when nothing answers in time.
func namesOf(ctx context.Context, e *command.Env, kind string) []string {
	limited, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := names(limited, e, kind)
	if err != nil {
		return nil
	}
	return found
}

// commonFlags returns the words that select the state file and the server.
func commonFlags(root *kong.Node, words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		name, _, whole := strings.Cut(words[i], "=")
		for _, f := range root.Flags {
			ours := f.Name == "state" || f.Name == "config" || f.Group != nil && f.Group.Key == command.APIGroup
			if !ours || name != "--"+f.Name && (f.Short == 0 || words[i] != "-"+string(f.Short)) {
				continue
			}
			switch {
			case whole || f.IsBool():
				out = append(out, words[i])
			case i+1 < len(words): // else its value is at the cursor
				i++
				out = append(out, words[i-1], words[i])
			}
			break
		}
	}
	return out
}

// objectKind is the kind of objects that 'get' and 'delete' were given.
func objectKind(words []string) string {
	for i, w := range words {
		if (w == "get" || w == "delete") && i+1 < len(words) {
			for _, next := range words[i+1:] {
				if k, err := object.KindNamed(next); err == nil {
					return k.Plural
				}
			}
		}
	}
	return ""
}

// names asks the daemon for the names of a kind, else the server. Without either it opens nothing: only one
// process at a time can open a state file.
func names(ctx context.Context, e *command.Env, kind string) ([]string, error) {
	path, err := e.StatePath()
	if err != nil {
		return nil, err
	}
	s := new(command.Session)
	defer s.Close()
	if s.Daemon, err = control.Attach(ctx, agent.SocketPath(path)); err != nil && !errors.Is(err, control.ErrNoDaemon) {
		return nil, err
	}
	if s.Daemon == nil && e.Embedded() {
		return nil, control.ErrNoDaemon
	}
	if s.Client, err = e.Connect(ctx, s, ""); err != nil {
		return nil, err
	}
	list := func(resource command.Resource, pick func(namespace, name, uid string) string) ([]string, error) {
		items, err := s.List(ctx, resource, e.Flags.ListNamespace(), "", nil, maxNames)
		var out []string
		for i := range items {
			out = append(out, pick(items[i].GetNamespace(), items[i].GetName(), string(items[i].GetUID())))
		}
		return out, err
	}
	name := func(_, name, _ string) string { return name }
	var out []string
	what, plural, _ := strings.Cut(kind, " ")
	switch what {
	case kindRepository:
		out, err = list(api.Repositories, name)
	case kindConnection:
		out, err = list(api.Connections, name)
	case kindSource:
		out, err = list(api.GitRepositories, name)
	case kindNamespace:
		out, err = list(api.Repositories, func(namespace, _, _ string) string { return namespace })
	case kindJob, kindRecord:
		out, err = list(api.Jobs, name)
		if err == nil && what == kindRecord && s.Daemon != nil {
			var records []state.Record
			records, err = s.Daemon.History(ctx, state.Query{Namespace: e.Flags.ListNamespace(), Brief: true, Limit: 50})
			for _, rec := range records {
				out = append(out, rec.UID)
			}
		}
	case kindObject:
		k, unknown := object.KindNamed(plural)
		if unknown != nil {
			return nil, unknown
		}
		resource, unknown := object.Resource(ctx, s, k)
		if unknown != nil {
			return nil, unknown
		}
		out, err = list(resource, name)
	}
	if err != nil {
		return nil, err
	}
	return plain(out), nil
}

// plain sorts names and drops those that a shell would interpret.
func plain(names []string) []string {
	names = slices.DeleteFunc(names, func(n string) bool { return !plainName.MatchString(n) })
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxNames)]
}
