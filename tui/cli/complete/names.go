package complete

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// maxNames bounds what is offered and cached of one kind.
const maxNames = 1000

// plainName matches names that need no quotes in a shell.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// namesOf returns the names of a kind, the cached ones when nothing answers in time.
func namesOf(ctx context.Context, e *command.Env, kind string) []string {
	limited, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	cache := cacheOf(e)
	names, err := names(limited, e, kind)
	if err != nil {
		return cache.read(kind)
	}
	cache.write(kind, names)
	return names
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

// nameCache is a file with the names of the last look-up.
type nameCache struct{ path string }

// cacheOf returns the cache for the state file, server and namespace of the call; an empty one without a
// cache directory.
func cacheOf(e *command.Env) nameCache {
	dir := e.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		if dir = e.Getenv("HOME"); !filepath.IsAbs(dir) {
			return nameCache{}
		}
		dir = filepath.Join(dir, ".cache")
	}
	path, err := e.StatePath()
	if err != nil {
		return nameCache{}
	}
	of := strings.Join([]string{path, e.Flags.ProvisioningServerURL, e.Flags.Kubeconfig, e.Flags.Namespace}, "\x00")
	sum := sha256.Sum256([]byte(of))
	return nameCache{filepath.Join(dir, "limpet", fmt.Sprintf("names-%x.json", sum[:8]))}
}

// all reads the file. A damaged or missing one has no names.
func (n nameCache) all() map[string][]string {
	names := map[string][]string{}
	if data, err := os.ReadFile(n.path); err == nil {
		if json.Unmarshal(data, &names) != nil {
			return map[string][]string{}
		}
	}
	return names
}

func (n nameCache) read(kind string) []string { return plain(n.all()[kind]) }

// write caches names. Errors are ignored.
func (n nameCache) write(kind string, names []string) {
	all := n.all()
	if n.path == "" || slices.Equal(all[kind], names) {
		return
	}
	all[kind] = names
	data, err := json.Marshal(all)
	if err != nil || os.MkdirAll(filepath.Dir(n.path), 0o700) != nil {
		return
	}
	_ = command.WriteText(n.path, 0o600, string(data))
}
