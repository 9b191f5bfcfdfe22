package complete

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/agent"
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

// namesOf returns the names of a kind, sorted, without those that a shell would interpret; none when nothing answers
// in time.
func namesOf(ctx context.Context, e *command.Env, kind string) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := names(ctx, e, kind)
	if err != nil {
		return nil
	}
	found = slices.DeleteFunc(found, func(n string) bool { return !plainName.MatchString(n) })
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(len(found), maxNames)]
}

// names asks the daemon for the names of a kind, else the server. Without either it opens nothing: only one
// process at a time can open a state file.
func names(ctx context.Context, e *command.Env, kind string) (out []string, err error) {
	word := kind
	switch kind {
	case kindNamespace:
		word = kindRepository
	case kindRecord:
		word = kindJob
	case kindSource:
		word = "gitrepository"
	}
	k, err := object.KindNamed(word)
	if err != nil {
		return nil, err
	}
	path, err := e.StatePath()
	if err != nil {
		return nil, err
	}
	s := new(command.Session)
	defer s.Close()
	if s.Daemon, err = control.Attach(ctx, agent.SocketPath(path)); err != nil && (!errors.Is(err, control.ErrNoDaemon) || e.Embedded()) {
		return nil, err
	}
	if s.Client, err = e.Connect(ctx, s, ""); err != nil {
		return nil, err
	}
	resource, err := object.Resource(ctx, s, k)
	if err != nil {
		return nil, err
	}
	items, err := s.List(ctx, resource, e.Flags.ListNamespace(), "", nil, maxNames)
	for i := range items {
		if kind == kindNamespace {
			out = append(out, items[i].GetNamespace())
		} else {
			out = append(out, items[i].GetName())
		}
	}
	if err == nil && kind == kindRecord && s.Daemon != nil {
		var records []state.Record
		records, err = s.Daemon.History(ctx, state.Query{Namespace: e.Flags.ListNamespace(), Brief: true, Limit: 50})
		for _, rec := range records {
			out = append(out, rec.UID)
		}
	}
	return out, err
}
