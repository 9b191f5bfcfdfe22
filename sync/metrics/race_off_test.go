//go:build !race

package metrics

// slower is by how much the race detector multiplies processor time.
const slower = 1
