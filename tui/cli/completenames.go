package cli

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
)

// completeWord is the hidden command of the completion scripts:
//
//	limpet __complete KIND PREFIX WORD...
//
// prints the names of a kind that begin so, one in a line. The words are those that
// stand before the cursor. Whatever happens, it prints nothing else and ends well.
const completeWord = "__complete"

// completeFor bounds the asking: what takes longer is felt as a key that hangs.
const completeFor = 150 * time.Millisecond

// mostNames bounds what is offered and kept of one kind.
const mostNames = 1000

// plainName is what a shell may be handed without quotes.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// offerNames does what completeWord says.
func (r *run) offerNames(ctx context.Context, args []string) {
	kind, prefix, words := args[0], "", []string{}
	if len(args) > 1 {
		// No name begins with a point. PowerShell, which drops empty words, puts one in front.
		prefix, words = strings.TrimPrefix(args[1], "."), args[2:]
	}
	world := r.World
	r, call, err := r.parsed(world, "version")
	if err == nil {
		r, _, err = r.parsed(world, append(commonFlags(call.Model.Node, words), "version")...)
	}
	if err != nil {
		return
	}
	if kind == fillObject {
		kind += " " + argumentOf(call.Model.Node, words)
	}
	limited, cancel := context.WithTimeout(ctx, completeFor)
	defer cancel()
	kept := r.keptNames()
	names, err := r.names(limited, kind)
	if err != nil {
		names = kept.read(kind)
	} else {
		kept.write(kind, names)
	}
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			fmt.Fprintln(world.Out, name)
		}
	}
}

// commonFlags picks those words that say which state file and which server is meant.
func commonFlags(root *kong.Node, words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		name, _, whole := strings.Cut(words[i], "=")
		for _, f := range root.Flags {
			ours := f.Name == "state" || f.Name == "config" || f.Group != nil && f.Group.Key == apiGroup
			if !ours || name != "--"+f.Name && (f.Short == 0 || words[i] != "-"+string(f.Short)) {
				continue
			}
			out = append(out, words[i])
			if !whole && !f.IsBool() && i+1 < len(words) {
				i++
				out = append(out, words[i])
			}
			break
		}
	}
	return out
}

// argumentOf is the kind of objects that 'get' and 'delete' were given.
func argumentOf(root *kong.Node, words []string) string {
	for i, w := range words {
		if (w == "get" || w == "delete") && i+1 < len(words) {
			for _, next := range words[i+1:] {
				if k, err := kindNamed(next); err == nil {
					return k.Plural
				}
			}
		}
	}
	return ""
}

// names asks for the names of a kind: the daemon, else the server. Where there is
// neither, nothing is opened: a state file belongs to one process at a time.
func (r *run) names(ctx context.Context, kind string) ([]string, error) {
	path, err := r.statePath()
	if err != nil {
		return nil, err
	}
	s := new(session)
	defer s.Close()
	if s.Daemon, err = control.Attach(ctx, agent.SocketPath(path)); err != nil && !errors.Is(err, control.ErrNoDaemon) {
		return nil, err
	}
	if s.Daemon == nil && r.embedded() {
		return nil, control.ErrNoDaemon
	}
	if s.Client, err = r.connect(ctx, s, ""); err != nil {
		return nil, err
	}
	list := func(resource gvr, pick func(namespace, name, uid string) string) ([]string, error) {
		items, err := s.selected(ctx, resource, r.g.listNamespace(), "", nil, mostNames)
		var out []string
		for i := range items {
			out = append(out, pick(items[i].GetNamespace(), items[i].GetName(), string(items[i].GetUID())))
		}
		return out, err
	}
	name := func(_, name, _ string) string { return name }
	var out []string
	what, object, _ := strings.Cut(kind, " ")
	switch what {
	case fillRepository:
		out, err = list(api.Repositories, name)
	case fillConnection:
		out, err = list(api.Connections, name)
	case fillSource:
		out, err = list(api.GitRepositories, name)
	case fillNamespace:
		out, err = list(api.Repositories, func(namespace, _, _ string) string { return namespace })
	case fillJob, fillRecord:
		out, err = list(api.Jobs, name)
		if err == nil && what == fillRecord && s.Daemon != nil {
			var records []state.Record
			records, err = s.Daemon.History(ctx, state.Query{Namespace: r.g.listNamespace(), Brief: true, Limit: 50})
			for _, rec := range records {
				out = append(out, rec.UID)
			}
		}
	case fillObject:
		k, unknown := kindNamed(object)
		if unknown != nil {
			return nil, unknown
		}
		resource, unknown := s.resource(ctx, k)
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

// plain sorts names, and leaves out what no shell should see.
func plain(names []string) []string {
	names = slices.DeleteFunc(names, func(n string) bool { return !plainName.MatchString(n) })
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), mostNames)]
}

// nameCache is a file with the names of the last time.
type nameCache struct{ path string }

// keptNames is the cache of what this call means: a state file, a server, a
// namespace. Without a place for it there is none.
func (r *run) keptNames() nameCache {
	dir := r.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		if dir = r.Getenv("HOME"); !filepath.IsAbs(dir) {
			return nameCache{}
		}
		dir = filepath.Join(dir, ".cache")
	}
	path, err := r.statePath()
	if err != nil {
		return nameCache{}
	}
	of := strings.Join([]string{path, r.g.ProvisioningServerURL, r.g.Kubeconfig, r.g.Namespace}, "\x00")
	sum := sha256.Sum256([]byte(of))
	return nameCache{filepath.Join(dir, "limpet", fmt.Sprintf("names-%x.json", sum[:8]))}
}

// all reads the file. One that is torn or is not there has no names.
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

// write keeps names for the next time. That it cannot is no matter.
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
	tmp, err := os.CreateTemp(filepath.Dir(n.path), ".names-*")
	if err != nil {
		return
	}
	_, err = tmp.Write(data)
	if errors.Join(err, tmp.Close()) != nil || os.Rename(tmp.Name(), n.path) != nil {
		os.Remove(tmp.Name())
	}
}
