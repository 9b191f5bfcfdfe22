//go:build !race

package jobs

// simDefault worlds take about half a minute of processor time.
const simDefault = 10_000
