package controller

import "time"

// SetPackTimes sets how long an archive may take in its first turn and in that of slow ones, while
// nothing runs.
func SetPackTimes(c *Controller, quick, longest time.Duration) {
	c.quickPack, c.longest = quick, longest
}
