//go:build race

package transport_test

// raceEnabled: the race detector multiplies memory and time.
const raceEnabled = true
