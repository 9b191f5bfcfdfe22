package source

import "time"

// Glances has a Watcher look so often whether its watch is refused.
func (w *Watcher) Glances(every time.Duration) { w.checkEvery = every }

// SameHost checks a redirect.
var SameHost = sameHost
