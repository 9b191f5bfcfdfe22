//go:build race

package git

// raceEnabled: the race detector multiplies memory and time.
const raceEnabled = true
