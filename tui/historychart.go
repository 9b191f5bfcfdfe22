package tui

import (
	"fmt"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// spanHeight is what the lines over time take with their edges.
const spanHeight = 4

// spans are the times that a column may stand for, with their names.
var spans = []struct {
	each time.Duration
	name string
}{
	{time.Minute, "minute"}, {5 * time.Minute, "5 minutes"}, {15 * time.Minute, "15 minutes"},
	{time.Hour, "hour"}, {6 * time.Hour, "6 hours"}, {24 * time.Hour, "day"},
}

// overTime counts the rows that ended in each of n equal times, the last of which
// holds now: those that have failed, and the others. The times are as short as they
// can be for all rows to be within, and at most a day each: then old is how many
// rows are older. A row that is ahead of now counts in the last.
func overTime(rows []snapshot.Past, n int, now time.Time) (name string, failed, others []int64, old int) {
	oldest := now
	for _, r := range rows {
		if r.Finished.Before(oldest) {
			oldest = r.Finished
		}
	}
	span, end := spans[0], now
	for _, span = range spans {
		end = now.Truncate(span.each).Add(span.each)
		if !oldest.Before(end.Add(-time.Duration(n) * span.each)) {
			break
		}
	}
	failed, others = make([]int64, n), make([]int64, n)
	for _, r := range rows {
		at := n - 1 - int(max(end.Sub(r.Finished)-1, 0)/span.each)
		switch {
		case at < 0:
			old++
		case r.State == "error" || r.State == "dead":
			failed[at]++
		default:
			others[at]++
		}
	}
	return span.name, failed, others, old
}

// endedBox draws when the rows that are shown have ended.
func (p *view) endedBox(x, y, w int) {
	const named = 15 // cells of name and number
	rows := p.s.history.rows
	name, failed, others, old := overTime(rows, w-4-named, p.s.Now)
	note := ""
	if len(rows) > old {
		note = "since " + clockTime(rows[len(rows)-old-1].Finished, p.s.Now)
	}
	p.box(p.g, x, y, w, spanHeight, "Ended per "+name, note, "", false)
	for i, line := range []struct {
		name   string
		values []int64
		role   role
	}{{"errors", failed, roleBad}, {"others", others, rolePlain}} {
		var sum int64
		for _, v := range line.values {
			sum += v
		}
		if sum == 0 {
			line.role = roleDim
		}
		at := p.put(x+2, y+1+i, named, roleDim, fmt.Sprintf("%-7s", line.name))
		at = p.put(at, y+1+i, named, line.role, fmt.Sprintf("%6s  ", text.Thousands(int(sum))))
		p.put(at, y+1+i, x+w-2-at, line.role, p.heights(line.values, 1))
	}
}
