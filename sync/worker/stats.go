package worker

import (
	"limpet/sync/api"
	"limpet/sync/resources"
)

// stats counts the objects of a repository by resource; nil means not known.
type stats map[string]int64

// countItems counts what a list of managed objects holds.
func countItems(items []resources.Item) stats {
	s := stats{}
	for _, i := range items {
		s[i.Resource]++
	}
	return s
}

func (s stats) total() int64 {
	var n int64
	for _, count := range s {
		n += count
	}
	return n
}

// after returns the numbers after a run; what is not known stays so.
func (s stats) after(t resources.Tally) stats {
	if s == nil {
		return nil
	}
	out := stats{}
	for resource, count := range s {
		out[resource] = count
	}
	for resource, count := range t.Created {
		out[resource] += count
	}
	for resource, count := range t.Deleted {
		out[resource] = max(0, out[resource]-count)
	}
	return out
}

// groups names the API group of each counted resource. Files in a directory
// are no API objects; theirs is ours.
var groups = []struct{ resource, group string }{
	{resources.DashboardResource, api.DashboardGroup},
	{resources.FolderResource, api.FolderGroup},
	{sinkResource, sinkGroup},
}

// wire is status.stats of a Repository.
func (s stats) wire() []any {
	out := []any{}
	for _, g := range groups {
		if count := s[g.resource]; count > 0 {
			out = append(out, map[string]any{"group": g.group, "resource": g.resource, "count": count})
		}
	}
	return out
}
