package state

import (
	"testing"

	"limpet/sync/testenv/suite"
)

func seeded(t *testing.T) uint64 {
	t.Helper()
	return suite.Seed(t)
}

func times(fast, full int) int { return suite.Count(fast, full) }
