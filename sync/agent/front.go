package agent

import (
	"cmp"
	"container/heap"
	"strings"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Where in a job the members stand that its place in the list depends on.
var (
	pathState      = kube.PathTo("status", "state")
	pathFinished   = kube.PathTo("status", "finished")
	pathClaim      = kube.PathTo("metadata", "labels", api.LabelClaim)
	pathClaimOwner = kube.PathTo("metadata", "labels", api.LabelClaimOwner)
	pathNotBefore  = kube.PathTo("metadata", "annotations", api.AnnoNotBefore)
)

// brief is what the place of a job in the list depends on.
type brief struct {
	seen     kube.Object
	state    string
	owner    string
	finished int64 // Unix milliseconds, 0 = not yet
	created  int64 // Unix seconds
}

// ours says that the claim of a job is one of adrift: in no other hands, although
// nobody works on it.
func ours(seen kube.Object, adrift map[string]string) bool {
	token := adrift[seen.UID()]
	return token != "" && seen.Text(pathClaimOwner) == token
}

func briefly(seen kube.Object, adrift map[string]string) brief {
	j := brief{seen: seen, state: seen.Text(pathState), finished: max(seen.Number(pathFinished), 0), created: seen.Created().Unix()}
	switch {
	case ours(seen, adrift):
		j.state = api.StatePending
	case seen.Text(pathClaim) != "":
		j.owner = "other"
	}
	return j
}

// compare is inOrder for what has not become a row yet.
func (j *brief) compare(k *brief) int {
	return cmp.Or(cmp.Compare(rankOf(j.finished > 0, j.state, j.owner), rankOf(k.finished > 0, k.state, k.owner)),
		cmp.Compare(k.finished, j.finished), cmp.Compare(j.created, k.created), strings.Compare(j.seen.Key(), k.seen.Key()))
}

// front keeps the first jobs of all that it is offered.
type front struct {
	briefs []brief // a heap with the last one on top, once it is full
	limit  int
}

func newFront(limit int) *front { return &front{limit: limit} }

func (f *front) offer(j brief) {
	switch {
	case len(f.briefs) < f.limit:
		f.briefs = append(f.briefs, j)
		if len(f.briefs) == f.limit {
			heap.Init(f)
		}
	case f.limit > 0 && j.compare(&f.briefs[0]) < 0:
		f.briefs[0] = j
		heap.Fix(f, 0)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface. The heap never grows
// or shrinks.
func (f *front) Len() int           { return len(f.briefs) }
func (f *front) Less(i, j int) bool { return f.briefs[i].compare(&f.briefs[j]) > 0 }
func (f *front) Swap(i, j int)      { f.briefs[i], f.briefs[j] = f.briefs[j], f.briefs[i] }
func (f *front) Push(any)           {}
func (f *front) Pop() any           { return nil }
