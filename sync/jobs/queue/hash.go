package queue

import (
	"hash/fnv"
)

// Favour is how much an agent prefers a repository to others of equal rank: rendezvous hashing, so
// that agents which drain one backlog begin at different ends of it, and each comes back to the
// repositories whose mirrors it has.
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
