package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

// savedKind is the name of the saved snapshot in the state file.
const savedKind = "view"

// saveEvery is the interval of saves: the greatest age of the snapshot after a restart without the
// API. Each save costs one write, so it is rare: flash wears out.
const saveEvery = 5 * time.Minute

// Saver writes snapshots into the state file, to be shown after a restart until the watches have
// synced. It belongs to one goroutine.
type Saver struct {
	Store *state.Store
	last  []byte // without its time
}

// Run saves the snapshot of hub for the next start, each saveEvery and at the end.
func (v *Saver) Run(ctx context.Context, hub *Hub, log *slog.Logger) error {
	save := func(ctx context.Context, s *Snapshot) {
		if err := v.Save(ctx, s); err != nil {
			log.Warn("save snapshot", "err", err)
		}
	}
	for kube.Sleep(ctx, saveEvery) == nil {
		if s, err := hub.Next(ctx, 0); err == nil {
			save(ctx, s)
		}
	}
	<-hub.Done()
	save(context.WithoutCancel(ctx), hub.Latest())
	return nil
}

// Save writes what a restart shows of s, unless it equals the last write.
func (v *Saver) Save(ctx context.Context, s *Snapshot) error {
	if !s.API.Synced {
		return nil // it would replace a good snapshot by an empty one
	}
	saved := Snapshot{Jobs: slices.Clone(s.Jobs), Repos: slices.Clone(s.Repos), Counts: s.Counts, Sources: s.Sources}
	for i := range saved.Jobs {
		saved.Jobs[i].Log, saved.Jobs[i].Transfer = nil, Transfer{}
	}
	for i := range saved.Repos {
		saved.Repos[i].Next = time.Time{}
	}
	same, err := json.Marshal(saved)
	if err != nil || bytes.Equal(same, v.last) {
		return err
	}
	saved.AsOf = s.At
	if !s.API.Up {
		saved.AsOf = s.API.Since // data is from before that
	}
	data, err := json.Marshal(saved)
	if err == nil {
		err = v.Store.PutSnapshot(ctx, savedKind, data)
	}
	if err == nil {
		v.last = same
	}
	return err
}

// readSaved returns the saved snapshot, nil when there is none or it is not of this version.
func readSaved(ctx context.Context, store *state.Store) (*Snapshot, error) {
	data, _, err := store.Snapshot(ctx, savedKind)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	saved := new(Snapshot)
	if err != nil || json.Unmarshal(data, saved) != nil || saved.AsOf.IsZero() {
		return nil, err
	}
	return saved, nil
}

// addSaved puts the saved rows into s, with the results that wait for the API now.
func (s *Snapshot) addSaved(v *Snapshot, undelivered []jobs.Undelivered) {
	s.AsOf = v.AsOf
	s.Repos = v.Repos
	s.Counts = v.Counts
	s.Sources = v.Sources
	s.Jobs = slices.Clone(v.Jobs)
	for _, u := range undelivered {
		i := slices.IndexFunc(s.Jobs, func(j Job) bool { return j.UID == u.UID })
		if i < 0 {
			i = len(s.Jobs)
			s.Jobs = append(s.Jobs, undeliveredRow(u))
		} else {
			s.Counts.Add(&s.Jobs[i], -1, v.AsOf)
			setUndelivered(&s.Jobs[i], u)
		}
		s.Counts.Add(&s.Jobs[i], 1, v.AsOf)
	}
}

// Saved returns the snapshot that the last agent has left in a state file, with the figures of the
// file. Without one it is empty, as of now, and has a Problem.
func Saved(ctx context.Context, store *state.Store, version string) (*Snapshot, error) {
	saved, err := readSaved(ctx, store)
	if err != nil {
		return nil, err
	}
	info, err := store.Info(ctx)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Seq: 1, At: time.Now()}
	s.Agent = Agent{Host: hostName(), Version: version, StorePath: info.Path, StoreSize: info.Bytes, History: info.History}
	if saved == nil {
		s.AsOf, s.Problem = s.At, "no saved status in this state file; start the agent: limpet --daemon"
	} else {
		s.addSaved(saved, nil)
	}
	s.API.Since = s.AsOf
	return s, nil
}
