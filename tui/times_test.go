package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// TestTimeLine: a job shows how long each part of its run took, and where in the whole
// of it that was; where there is little room the longest parts stay.
func TestTimeLine(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	three := []snapshot.Step{{Text: "look up", At: at(10 * time.Second), Took: time.Second}, {Text: "fetch", At: at(9 * time.Second), Took: 5 * time.Second}, {Text: "write", At: at(4 * time.Second)}}
	var many []snapshot.Step
	for i := range 12 {
		many = append(many, snapshot.Step{Text: fmt.Sprint("part ", i), At: at(time.Duration(24-2*i) * time.Second), Took: time.Duration(1+i%4) * 400 * time.Millisecond})
	}
	for name, tt := range map[string]struct {
		job  snapshot.Job
		h    int
		want string
	}{
		"none":    {snapshot.Job{State: "working", Owner: "this"}, 5, ""},
		"works":   {snapshot.Job{State: "working", Owner: "this", Steps: three}, 5, "look up                 1.0s  =|fetch                   5.0s   =====|write                   4.0s        ===="},
		"ended":   {snapshot.Job{State: "success", Finished: at(2 * time.Second), Steps: three}, 5, "look up                 1.0s  =|fetch                   5.0s   =======|write                   2.0s          =="},
		"kept":    {snapshot.Job{State: "success", Unsent: at(4 * time.Second), Steps: three[:2]}, 5, "look up                 1.0s  ==|fetch                   5.0s    ========"},
		"clocks":  {snapshot.Job{State: "success", Finished: at(time.Minute), Steps: three}, 5, "look up                 1.0s  ==|fetch                   5.0s    ========|write                      -           ="},
		"no time": {snapshot.Job{State: "success", Finished: at(10 * time.Second), Steps: three[:1]}, 5, "look up                 1.0s  =========="},
		"no room": {snapshot.Job{State: "success", Finished: noon, Steps: many}, 3, "part 3                  1.6s     =|part 7                  1.6s        =|~ 10 shorter ones"},
		"brief":   {snapshot.Job{State: "success", Finished: noon, Steps: []snapshot.Step{{Text: "fetch", At: at(50 * time.Millisecond), Took: 45 * time.Millisecond}, {Text: "write", At: at(5 * time.Millisecond)}}}, 5, "fetch                   45ms  =========|write                    5ms           ="},
		"a line":  {snapshot.Job{State: "success", Finished: noon, Steps: many}, 1, "~ 12 steps"},
		"nothing": {snapshot.Job{State: "working", Owner: "this", Steps: three}, 0, ""},
	} {
		p := view{s: shown(picture(), Caps{}), painter: newPainter(40, max(tt.h, 1), Caps{ASCII: true})}
		p.timeLine(0, 0, 40, tt.h, tt.job)
		var got []string
		for _, l := range strings.Split(p.canvas.frame(theme{}), "\n") {
			if l = strings.TrimRight(l, " "); l != "" {
				got = append(got, l)
			}
		}
		if text := strings.Join(got, "|"); text != tt.want {
			t.Errorf("%s: %q\nwant %q", name, text, tt.want)
		}
	}
}
