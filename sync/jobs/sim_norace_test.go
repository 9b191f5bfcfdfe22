//go:build !race

package jobs

// simDefault worlds take about a quarter of a minute of processor time.
const simDefault = 10_000
