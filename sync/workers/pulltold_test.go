package workers

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"limpet/state"
)

// TestPullTellsOfItself: the record of a pull has what the commit says of itself, and how
// long each part took; one with nothing to do fetches no commit.
func TestPullTellsOfItself(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a/cpu.json", board("cpu", "CPU"))
		record, _ := r.pull(true, nil)
		if c := record.Commit; c == nil || c.Subject != r.last("%s") || c.Author != r.last("%an") || strconv.FormatInt(c.At.Unix(), 10) != r.last("%at") {
			t.Errorf("commit %+v, want %s", c, r.last("%s by %an, %at"))
		}
		all := 0.0
		for _, s := range record.Steps {
			all += s.Seconds
		}
		if took := record.Finished.Sub(record.Started).Seconds(); all <= 0 || all > took+0.1 {
			t.Errorf("%+v take %.3f s, all of it %.3f s", record.Steps, all, took)
		}
		if !slices.ContainsFunc(record.Steps, func(s state.Step) bool { return strings.HasPrefix(s.Text, "fetch ") && strings.HasSuffix(s.Text, " B") }) {
			t.Errorf("steps %+v", record.Steps)
		}
		if record.Created.IsZero() || record.Created.After(record.Finished.Add(time.Second)) {
			t.Errorf("created %s, finished %s", record.Created, record.Finished)
		}
		if record, _ = r.pull(true, nil); record.Commit != nil || slices.ContainsFunc(record.Steps, func(s state.Step) bool { return strings.HasPrefix(s.Text, "fetch ") }) {
			t.Errorf("with nothing to do: %+v", record)
		}
	})
}
