//go:build !race

package jobs

// simDefault worlds take about a few seconds of processor time.
const simDefault = 2_000
