package queue

import (
	"cmp"
	"hash/fnv"
)

// The heaps of the queue. Each order ends with the arrival, which no two keys share, so none leaves anything to chance.

// rankedItems orders the keys of a repository: own claims, then by priority, then by arrival.
func rankedItems() heap[item] {
	return heap[item]{place: func(s *item) *int { return &s.ranked }, before: func(a, b *item) bool {
		switch {
		case a.urgent != b.urgent:
			return a.urgent
		case a.priority != b.priority:
			return a.priority > b.priority
		}
		return a.arrival < b.arrival
	}}
}

// agedItems orders the keys of a repository by arrival.
func agedItems() heap[item] {
	return heap[item]{place: func(s *item) *int { return &s.aged }, before: func(a, b *item) bool { return a.arrival < b.arrival }}
}

// delayedItems orders keys by the end of their delay.
func delayedItems() heap[item] {
	return heap[item]{place: func(s *item) *int { return &s.ranked }, before: func(a, b *item) bool {
		return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.arrival, b.arrival)) < 0
	}}
}

// rankedRepos orders repositories by their best key: own claims, then by priority, then by round, then as this agent
// favours them.
func rankedRepos() heap[repoQueue] {
	return heap[repoQueue]{place: func(r *repoQueue) *int { return &r.ranked }, before: func(a, b *repoQueue) bool {
		s, t := a.items.first(), b.items.first()
		if s.urgent != t.urgent {
			return s.urgent
		}
		return cmp.Or(cmp.Compare(t.priority, s.priority), cmp.Compare(a.round, b.round), cmp.Compare(b.favour, a.favour),
			cmp.Compare(s.arrival, t.arrival)) < 0
	}}
}

// agedRepos orders repositories by the key that has waited longest in each.
func agedRepos() heap[repoQueue] {
	return heap[repoQueue]{place: func(r *repoQueue) *int { return &r.aged }, before: func(a, b *repoQueue) bool {
		return a.old.first().arrival < b.old.first().arrival
	}}
}

// backoffRepos orders repositories by the end of their backoff.
func backoffRepos() heap[repoQueue] {
	return heap[repoQueue]{place: func(r *repoQueue) *int { return &r.resting }, before: func(a, b *repoQueue) bool {
		return a.until.Before(b.until)
	}}
}

// Favour is how much an agent prefers a repository to others of equal rank: rendezvous hashing, so that agents which
// drain one backlog begin at different ends of it, and each comes back to the repositories whose mirrors it has.
func Favour(agent string, r RepoKey) uint64 {
	return Hash(agent, r.Namespace, r.Repository)
}

// Hash mixes texts into a number whose every bit depends on all of them.
func Hash(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text)) // never fails
		_, _ = h.Write([]byte{0})
	}
	x := h.Sum64() // FNV alone leaves similar texts near each other; this is the finalizer of MurmurHash3
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
