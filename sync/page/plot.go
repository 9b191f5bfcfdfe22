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

// column is a part of a plot that says something when it is pointed at.
type column struct {
	Title    string
	X, Width int
	Bars     []bar
}

// plot is the drawing of a series of hours.
type plot struct {
	Width, Height int
	Label         string // for screen readers
	Top           string // what its height stands for; "" = nothing is drawn
	Columns       []column
}

// plot draws a column for each hour: its values upon each other, in these classes.
func (v view) plot(label string, classes []string, values func(snapshot.Hour) []float64, say func(snapshot.Hour) string) plot {
	p := plot{Width: len(v.Hours)*columnWidth - columnGap, Height: plotHeight, Label: label + " in each of the last 24 hours"}
	most := 0.0
	for _, h := range v.Hours {
		sum := 0.0
		for _, value := range values(h) {
			sum += value
		}
		if sum > most {
			most, p.Top = sum, say(h)
		}
	}
	for i, h := range v.Hours {
		one := column{Title: fmt.Sprintf("%s: %s", hour(h.From), say(h)), X: i * columnWidth, Width: columnWidth}
		y := float64(plotHeight)
		for j, value := range values(h) {
			if value > 0 {
				height := max(value*plotHeight/most, 1) // one job of a thousand is to be seen
				y = max(y-height, 0)
				one.Bars = append(one.Bars, bar{float64(one.X), y, columnWidth - columnGap, height, classes[j]})
			}
		}
		p.Columns = append(p.Columns, one)
	}
	return p
}

// JobsPlot draws how many jobs ended in each hour, by their results.
func (v view) JobsPlot() plot {
	return v.plot("Jobs that ended", []string{"success", "cancelled", "warning", "error"},
		func(h snapshot.Hour) []float64 {
			return []float64{float64(h.Success), float64(h.Cancelled), float64(h.Warning), float64(h.Error)}
		},
		func(h snapshot.Hour) string {
			return fmt.Sprintf("%s, %d failed", text.Plural(h.All(), "job"), h.Error)
		})
}

// SecondsPlot draws how long a job of each hour took on average.
func (v view) SecondsPlot() plot {
	mean := func(h snapshot.Hour) float64 { return h.Seconds / float64(max(h.All(), 1)) }
	return v.plot("Average duration of jobs", []string{"took"},
		func(h snapshot.Hour) []float64 { return []float64{mean(h)} },
		func(h snapshot.Hour) string { return text.Took(time.Duration(mean(h) * float64(time.Second))) })
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
	p := plot{Width: len(v.Hours)*columnWidth - columnGap, Height: stripHeight, Label: "Worst result of each of the last 24 hours"}
	line = line[:min(len(line), len(v.Hours))]
	for from := 0; from < len(line); {
		to := from + 1
		for to < len(line) && line[to] == line[from] {
			to++
		}
		if run, ended := runs[line[from]]; ended {
			one := column{X: from * columnWidth, Width: (to-from)*columnWidth - columnGap}
			one.Title = fmt.Sprintf("%s to %s: %s", hour(v.Hours[from].From), hour(v.Hours[to-1].From.Add(time.Hour)), run.word)
			height := run.height * stripHeight
			one.Bars = []bar{{float64(one.X), stripHeight - height, float64(one.Width), height, run.word}}
			p.Columns = append(p.Columns, one)
		}
		from = to
	}
	return p
}

func hour(t time.Time) string { return t.UTC().Format("15:04Z") }
