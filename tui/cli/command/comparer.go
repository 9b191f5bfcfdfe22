package command

import (
	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/git"
	"limpet/sync/snapshot/diff"
)

// Comparer opens the mirrors beside the state file, which store holds. The caller closes its
// Mirrors.
func (e *Env) Comparer(store *state.Store) (diff.Comparer, error) {
	path, err := e.StatePath()
	if err != nil {
		return diff.Comparer{}, err
	}
	kinds, err := e.Flags.Kinds()
	if err != nil {
		return diff.Comparer{}, err
	}
	mirrors, err := git.Open(agent.MirrorsPath(path), git.Options{
		AllowLocal: e.Flags.LocalGitPrefix, AllowDirs: e.Flags.LocalPrefix, Logger: e.Log,
	})
	return diff.Comparer{Mirrors: mirrors, Store: store, Kinds: kinds}, err
}
