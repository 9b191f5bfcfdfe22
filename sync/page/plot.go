package page

import (
	"fmt"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// Units of a plot: a column is an hour.
const (
	columnWidth = 10
	columnGap   = 2
	plotHeight  = 60
	stripHeight = 16
)

// bar is a rectangle of a plot.
type bar struct {
	X, Y, Width, Height float64
	Class               string
}

// column is an hour of a plot: what it says when it is pointed at, and its bars.
type column struct {
	Title string
	X     int
	Width int
	Bars  []bar
}

// plot is the drawing of a series of hours.
type plot struct {
	Width, Height int
	Label         string // for screen readers
	Top           string // what its height stands for
	Columns       []column
}

func newPlot(hours, height int, label string) plot {
	return plot{Width: hours*columnWidth - columnGap, Height: height, Label: label}
}

// stacked returns bars of these heights, one upon the other from the bottom on.
func stacked(at, height int, scale float64, parts []float64, classes []string) (out []bar) {
	y := float64(height)
	for i, part := range parts {
		if part <= 0 {
			continue
		}
		tall := max(part*scale, 1) // one job of a thousand is to be seen
		y = max(y-tall, 0)
		out = append(out, bar{float64(at * columnWidth), y, columnWidth - columnGap, tall, classes[i]})
	}
	return out
}

// JobsPlot draws how many jobs ended in each hour, by their results.
func (v view) JobsPlot() plot {
	p, most := newPlot(len(v.Hours), plotHeight, "Jobs that ended in each of the last 24 hours"), 0
	for _, h := range v.Hours {
		most = max(most, h.All())
	}
	if most > 0 {
		p.Top = text.Thousands(most)
	}
	for i, h := range v.Hours {
		parts := []float64{float64(h.Success), float64(h.Cancelled), float64(h.Warning), float64(h.Error)}
		title := fmt.Sprintf("%s: %d success, %d warning, %d error, %d cancelled", hour(h.From), h.Success, h.Warning, h.Error, h.Cancelled)
		bars := stacked(i, plotHeight, float64(plotHeight)/float64(max(most, 1)), parts, []string{"success", "cancelled", "warning", "error"})
		p.Columns = append(p.Columns, column{title, i * columnWidth, columnWidth, bars})
	}
	return p
}

// SecondsPlot draws how long a job of each hour took on average.
func (v view) SecondsPlot() plot {
	p, most := newPlot(len(v.Hours), plotHeight, "Average duration of jobs in each of the last 24 hours"), 0.0
	mean := func(h snapshot.Hour) float64 { return h.Seconds / float64(max(h.All(), 1)) }
	for _, h := range v.Hours {
		most = max(most, mean(h))
	}
	if most > 0 {
		p.Top = text.Took(time.Duration(most * float64(time.Second)))
	}
	for i, h := range v.Hours {
		took := time.Duration(mean(h) * float64(time.Second))
		bars := stacked(i, plotHeight, plotHeight/max(most, 0.001), []float64{mean(h)}, []string{"took"})
		p.Columns = append(p.Columns, column{hour(h.From) + ": " + text.Took(took), i * columnWidth, columnWidth, bars})
	}
	return p
}

// runs are the letters of snapshot.Repo.Runs: the words, and how much of the height they take, so
// that they differ without colours too.
var runs = map[byte]struct {
	word   string
	height float64
}{'s': {"success", 0.5}, 'w': {"warning", 0.75}, 'e': {"error", 1}, 'c': {"cancelled", 0.25}}

// Strip draws the worst result of a repository in each of the last hours. Hours that are alike and
// neighbours are one bar.
func (v view) Strip(line string) plot {
	p := newPlot(len(v.Hours), stripHeight, "Worst result of each of the last 24 hours")
	line = line[:min(len(line), len(v.Hours))]
	for from := 0; from < len(line); {
		to := from + 1
		for to < len(line) && line[to] == line[from] {
			to++
		}
		if run, ended := runs[line[from]]; ended {
			width, height := float64((to-from)*columnWidth-columnGap), run.height*stripHeight
			one := bar{float64(from * columnWidth), stripHeight - height, width, height, run.word}
			title := fmt.Sprintf("%s to %s: %s", hour(v.Hours[from].From), hour(v.Hours[to-1].From.Add(time.Hour)), run.word)
			p.Columns = append(p.Columns, column{title, from * columnWidth, int(width), []bar{one}})
		}
		from = to
	}
	return p
}

func hour(t time.Time) string { return t.UTC().Format("15:04Z") }
