package metrics

import (
	"slices"
	"sync"

	"limpet/sync/resources"
)

// other stands for every value of a label that is not known.
const other = "other"

// actions are those of Grafana's Job type.
var actions = []string{
	"pull", "push", "pr", "migrate", "delete", "move", "fixFolderMetadata", "releaseResources", "deleteResources", "test",
}

var operations = []resources.Action{resources.Created, resources.Updated, resources.Deleted, resources.Renamed, resources.Ignored}

func oneOf[T ~string](known []T, value T) string {
	if slices.Contains(known, value) {
		return string(value)
	}
	return other
}

func knownAction(action string) string { return oneOf(actions, action) }

// maxKinds bounds the pairs of group and kind with series of their own. Files of a repository may contain any.
const maxKinds = 32

// kinds are the pairs of group and kind that have their own series.
type kinds struct {
	mu   sync.Mutex // guards seen
	seen map[[2]string]bool
}

// known returns the pair, or other for both of a pair that came too late.
func (k *kinds) known(group, kind string) (string, string) {
	pair := [2]string{group, kind}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.seen[pair] {
		if len(k.seen) >= maxKinds || len(group) > 128 || len(kind) > 128 {
			return other, other
		}
		if k.seen == nil {
			k.seen = map[[2]string]bool{}
		}
		k.seen[pair] = true
	}
	return group, kind
}

// sizeBucket is Grafana's name for a number of changed resources.
func sizeBucket(n int64) string {
	switch {
	case n <= 0:
		return "0"
	case n <= 10:
		return "1-10"
	case n <= 50:
		return "11-50"
	case n <= 100:
		return "51-100"
	case n <= 500:
		return "101-500"
	case n <= 1000:
		return "501-1000"
	}
	return "1000+"
}
