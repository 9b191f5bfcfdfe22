//go:build race

package metrics

// slower: a scrape of many repositories takes eight times as long as without it.
const slower = 10
