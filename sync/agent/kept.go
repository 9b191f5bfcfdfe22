package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
)

// snapshotKind is the name under which the picture is kept in the state file.
const snapshotKind = "view"

// kept is what an agent shows after a restart until the API has answered: the
// repositories, sources and jobs as they were known last.
type kept struct {
	AsOf   time.Time       `json:"asOf"`
	Jobs   []snapshot.Job  `json:"jobs"`
	Repos  []snapshot.Repo `json:"repos"`
	Counts snapshot.Counts `json:"counts"`

	Sources []snapshot.Source `json:"sources,omitempty"`
}

// keepPicture writes a picture into the state file, unless it says the same as the
// last one, which before holds.
func (a *Agent) keepPicture(ctx context.Context, snap *snapshot.Snapshot, before *[]byte) {
	if !snap.API.Synced {
		return // it would replace a good picture by an empty one
	}
	k := kept{Jobs: append([]snapshot.Job(nil), snap.Jobs...), Repos: append([]snapshot.Repo(nil), snap.Repos...), Counts: snap.Counts, Sources: snap.Sources}
	for i := range k.Jobs {
		k.Jobs[i].Log = nil
	}
	for i := range k.Repos {
		k.Repos[i].Next = time.Time{}
	}
	same, err := json.Marshal(k)
	if err == nil && bytes.Equal(same, *before) {
		return
	}
	k.AsOf = snap.At
	if !snap.API.Up {
		k.AsOf = snap.API.Since // nothing was heard since then
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = a.cfg.Store.PutSnapshot(ctx, snapshotKind, data)
	}
	if err != nil {
		a.log.Warn("cannot keep the picture for the next start", "err", err)
		return
	}
	*before = same
}

// keptPicture returns what was kept last, nil when nothing was. One that cannot be
// read, such as that of another version, is nothing.
func (a *Agent) keptPicture(ctx context.Context) *kept {
	k, err := readKept(ctx, a.cfg.Store)
	if err != nil {
		a.log.Warn("cannot read the picture of before", "err", err)
	}
	return k
}

func readKept(ctx context.Context, store *state.Store) (*kept, error) {
	data, _, err := store.Snapshot(ctx, snapshotKind)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := new(kept)
	if err := json.Unmarshal(data, k); err != nil || k.AsOf.IsZero() {
		return nil, nil
	}
	return k, nil
}

// LastPicture is what the last agent on a state file has left there to be shown:
// jobs and repositories as of some time, and the figures of the file. Without an
// agent before it shows nothing, as of now, and says so.
func LastPicture(ctx context.Context, store *state.Store, version string) (*snapshot.Snapshot, error) {
	k, err := readKept(ctx, store)
	if err != nil {
		return nil, err
	}
	info, err := store.Info(ctx)
	if err != nil {
		return nil, err
	}
	s := &snapshot.Snapshot{Seq: 1, At: time.Now(), Agent: snapshot.Agent{Host: hostName(), Version: version, StorePath: info.Path, StoreSize: info.Bytes, History: info.History}}
	if k == nil {
		s.AsOf, s.Problem = s.At, "no agent has left a picture in this file: limpet --daemon starts one"
	} else {
		s.AsOf, s.Jobs, s.Repos, s.Counts, s.Sources = k.AsOf, k.Jobs, k.Repos, k.Counts, k.Sources
	}
	s.API.Since = s.AsOf
	return s, nil
}
