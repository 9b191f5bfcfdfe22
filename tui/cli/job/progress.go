package job

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/term"

	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// WaitFlags are the flags of commands that can wait for the end of a job.
type WaitFlags struct {
	Wait     bool   `short:"w" help:"Wait for the claim and the end of the job; the exit code is its result."`
	Follow   bool   `help:"Like --wait, and print the log of the job; with -o json a document in each line."`
	Progress string `help:"Progress on stderr: ${enum}; auto is a bar on a terminal." enum:"auto,bar,plain,none" default:"auto"`
}

// Waits reports whether the command waits for the end of the job.
func (f WaitFlags) Waits() bool { return f.Wait || f.Follow }

// barCells is the length of the bar itself.
const barCells = 20

// bar is a progress line at the end of a terminal. The zero bar shows nothing.
type bar struct {
	w     io.Writer // nil = there is none
	width func() int
	utf8  bool
	shown bool
	from  barMark // what the rate is counted from
}

type barMark struct {
	at   time.Time
	done int64
}

func newBar(e *command.Env, mode string) *bar {
	onTerminal := command.IsTerminal(e.Err) && !command.PrintsOnly(e.Getenv)
	if e.Flags.Quiet || e.Flags.Accessible || mode != "bar" && (mode != "auto" || !onTerminal || e.Getenv("CI") != "") {
		return &bar{}
	}
	width := func() int {
		if f, ok := command.OutFile(e.Err); ok {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
				return w
			}
		}
		return 80
	}
	return &bar{w: e.Err, width: width, utf8: text.UTF8(e.Getenv)}
}

func (b *bar) draw(job api.Job, t snapshot.Transfer, name string, now time.Time) {
	if b.w == nil {
		return
	}
	b.shown = true
	fmt.Fprintf(b.w, "\r%s\x1b[K", displaywidth.TruncateString(b.text(job, t, name, now), max(b.width()-1, 0), ""))
}

// erase removes the line, for other output in its place.
func (b *bar) erase() {
	if b.shown {
		b.shown = false
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

func (b *bar) text(job api.Job, t snapshot.Transfer, name string, now time.Time) string {
	st := job.Status
	head := strings.TrimSpace(job.Spec.Action + " " + job.Spec.Repository)
	if job.Spec.Repository == "" {
		head = name
	}
	if stateText(st.State) != api.StateWorking {
		return strings.TrimSpace(fmt.Sprintf("%s  %s  %s", text.Clean(head), stateText(st.State), text.Clean(st.Message)))
	}
	percent := min(max(st.Progress, float64(t.Percent), 0), 100)
	full := int(math.Round(percent / 100 * barCells))
	on, off := "█", "░"
	if !b.utf8 {
		on, off = "#", "-"
	}
	parts := []string{text.Clean(head), strings.Repeat(on, full) + strings.Repeat(off, barCells-full), fmt.Sprintf("%3.0f %%", percent)}
	if done, total := counts(st); total > 0 {
		parts = append(parts, fmt.Sprintf("%d/%d", done, total))
		if b.from.at.IsZero() {
			b.from = barMark{now, done}
		}
		if rate := float64(done-b.from.done) / now.Sub(b.from.at).Seconds(); rate > 0 && now.Sub(b.from.at) >= time.Second {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			parts = append(parts, fmt.Sprintf("%.1f/s", rate), "eta "+text.Age(left))
		}
	}
	if n := len(st.Errors); n > 0 {
		parts = append(parts, text.Plural(n, "error"))
	}
	if message := messageText(st, t, now); message != "" {
		parts = append(parts, message)
	}
	return strings.Join(parts, "  ")
}

// counts returns how many objects of how many a job has processed; 0 of 0 when its status does not
// say.
func counts(st api.JobStatus) (done, total int64) {
	for _, s := range st.Summary {
		done += s.Create + s.Update + s.Delete + s.Noop + s.Error
		total += s.Total
	}
	return min(done, total), total
}
