//go:build race

package jobs

// simDefault is what TestSimulation runs under the race detector, which makes a
// world about twenty times as dear.
const simDefault = 300
