package agent

import (
	"cmp"
	"context"
	"sort"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/source"
)

// watchSources watches the sources of Flux once the agent is ready: it does not wait
// for them, and they not for it on a link that has room for one.
func (a *Agent) watchSources(ctx context.Context) error {
	if a.jobs.WaitSynced(ctx) != nil || a.repos.WaitSynced(ctx) != nil {
		return nil
	}
	return a.sources.Run(ctx)
}

// paintSources adds the sources to a picture. Until it is known what there is, those
// of before are shown.
func (p *painter) paintSources(s *snapshot.Snapshot) {
	objects, known := p.sources.Objects()
	if !known {
		s.Sources = p.sourcesBefore
		return
	}
	p.sourcesBefore = nil
	s.SourcesError = p.sources.Refused()
	for _, seen := range objects {
		s.Sources = append(s.Sources, *p.sourceRows.of(seen, readSource))
	}
	p.sourceRows.end(len(objects))
	sort.Slice(s.Sources, func(i, j int) bool {
		x, y := &s.Sources[i], &s.Sources[j]
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name)) < 0
	})
}

func readSource(u *object) *snapshot.Source {
	row := source.Picture(u)
	return &row
}

// sourcesWatch is how the watch of sources does, where there is one or should be.
func (a *Agent) sourcesWatch() []snapshot.Watch {
	synced, objects, trouble, on := a.sources.Watch()
	if !on {
		return nil
	}
	return []snapshot.Watch{{Kind: "sources", Synced: synced, Objects: objects, Error: trouble}}
}
