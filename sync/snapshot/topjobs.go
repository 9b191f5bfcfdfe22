package snapshot

import (
	"cmp"
	"container/heap"
	"strings"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Fields of a Job that determine its position in the list.
var (
	pathState      = kube.PathTo("status", "state")
	pathFinished   = kube.PathTo("status", "finished")
	pathClaim      = kube.PathTo("metadata", "labels", api.LabelClaim)
	pathClaimOwner = kube.PathTo("metadata", "labels", api.LabelClaimOwner)
	pathNotBefore  = kube.PathTo("metadata", "annotations", api.AnnoNotBefore)
)

// queueKey determines the position of a job in the list.
type queueKey struct {
	object   kube.Object
	state    string
	owner    string
	finished int64 // Unix milliseconds, 0 = not yet
	created  int64 // Unix seconds
}

// suspendedClaim reports whether the claim of a job is in suspended, which holds
// owner tokens by UID.
func suspendedClaim(o kube.Object, suspended map[string]string) bool {
	token := suspended[o.UID()]
	return token != "" && o.Text(pathClaimOwner) == token
}

func queueKeyOf(o kube.Object, suspended map[string]string) queueKey {
	k := queueKey{object: o, state: o.Text(pathState), finished: max(o.Number(pathFinished), 0), created: o.Created().Unix()}
	switch {
	case suspendedClaim(o, suspended):
		k.state = api.StatePending
	case o.Text(pathClaim) != "":
		k.owner = "other"
	}
	return k
}

// compare orders keys as compareJobs orders rows.
func (k *queueKey) compare(other *queueKey) int {
	return cmp.Or(
		cmp.Compare(rankOf(k.finished > 0, k.state, k.owner), rankOf(other.finished > 0, other.state, other.owner)),
		cmp.Compare(other.finished, k.finished),
		cmp.Compare(k.created, other.created),
		strings.Compare(k.object.Key(), other.object.Key()),
	)
}

// topJobs keeps the first limit keys: a max-heap once it is full.
type topJobs struct {
	keys  []queueKey
	limit int
}

func (t *topJobs) offer(k queueKey) {
	switch {
	case len(t.keys) < t.limit:
		t.keys = append(t.keys, k)
		if len(t.keys) == t.limit {
			heap.Init(t)
		}
	case t.limit > 0 && k.compare(&t.keys[0]) < 0:
		t.keys[0] = k
		heap.Fix(t, 0)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface. The heap never grows or
// shrinks.
func (t *topJobs) Len() int           { return len(t.keys) }
func (t *topJobs) Less(i, j int) bool { return t.keys[i].compare(&t.keys[j]) > 0 }
func (t *topJobs) Swap(i, j int)      { t.keys[i], t.keys[j] = t.keys[j], t.keys[i] }
func (t *topJobs) Push(any)           {}
func (t *topJobs) Pop() any           { return nil }
