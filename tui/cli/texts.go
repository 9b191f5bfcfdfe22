package cli

import (
	"fmt"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// controllersText tells who looks after the repositories and what shows it.
func controllersText(c snapshot.Controllers, now time.Time) string {
	txt := c.Text(now)
	if _, there := c.Other(now); there && !c.Seen.IsZero() {
		txt += fmt.Sprintf("; it wrote the %s %s ago", text.Clean(c.Wrote), text.Age(now.Sub(c.Seen)))
	}
	return txt
}
