package tui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"limpet/sync/text"
)

// What changes between two pictures, in sentences for somebody who hears them one
// after the other. So there are never more than can be heard: equal ones are told
// once, and of a burst the rest is counted.

// weight orders sentences: what needs a person is told first, and has room of its
// own where there is little.
type weight uint8

const (
	tellError weight = iota
	tellAgent
	tellEnd
	tellBegin
	tellOther
	tellProgress
)

// told is a sentence; of those with one key within foldFor only the first is said.
type told struct {
	weight weight
	key    string
	text   string
}

const (
	// tellRate is how many sentences a second are said in the long run, tellBurst how
	// many at once after a silence. tellSpare of them are kept for errors, for the
	// agent itself, and for the count of what was left out.
	tellRate, tellBurst, tellSpare = 3, 8, 3
	// foldFor is how long an equal sentence is not said again.
	foldFor = time.Minute
)

// teller is what was told so far. It is a value: each of its functions returns the
// next one.
type teller struct {
	jobs    map[string]toldJob // by UID
	errors  map[uint64]int     // times of troubles, by their id
	folded  map[string]fold    // by the key of the sentence
	left    [tellProgress]int  // sentences left out, by their weight
	room    float64            // sentences that may be said now
	at      time.Time          // of room
	started bool               // there was a picture
}

// fold is a sentence that came again within foldFor.
type fold struct {
	text  string
	at    time.Time // when it was said
	times int       // since then
}

// picture compares two states and returns what is to be said of it.
func (t teller) picture(was, s State) (teller, []string) {
	var all []told
	t.jobs, all = t.tellJobs(s)
	for _, e := range s.troubles.list {
		if e.times > t.errors[e.id] && !s.toldOtherwise(e) {
			all = append(all, told{tellError, e.who() + e.text, e.sentence()})
		}
	}
	t.errors = s.troubles.counts()
	if !t.started {
		t.started = true
		return t, nil // who comes in is greeted instead
	}
	all = append(all, tellAgents(was, s)...)
	all = append(all, tellRepos(was, s)...)
	all = append(all, tellSources(was, s)...)
	return t.say(all, s.Now)
}

// say chooses what is said of all that there is to say.
func (t teller) say(all []told, now time.Time) (teller, []string) {
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(a.weight, b.weight) })
	t = t.refilled(now)
	t.folded = maps.Clone(t.folded)
	var out []string
	for _, one := range all {
		if f, ok := t.folded[one.key]; ok && one.key != "" {
			f.times, f.text = f.times+1, one.text
			t.folded[one.key] = f
			continue
		}
		need := 1.0
		if one.weight > tellAgent {
			need += tellSpare
		}
		if t.room < need {
			if one.weight < tellProgress { // the next step tells where it is
				t.left[one.weight]++
			}
			continue
		}
		t.room--
		if one.key != "" {
			if t.folded == nil {
				t.folded = map[string]fold{}
			}
			t.folded[one.key] = fold{text: one.text, at: now}
		}
		out = append(out, stamped(now, one.text))
	}
	return t, out
}

// later is what is said when nothing new has come: how much was left out, and how
// often what was said came again.
func (t teller) later(s State) (teller, []string) {
	var waiting []told
	if t.started {
		t.jobs, waiting = t.tellJobs(s)
	}
	t, out := t.say(waiting, s.Now)
	t.folded = maps.Clone(t.folded)
	for _, key := range slices.Sorted(maps.Keys(t.folded)) {
		f := t.folded[key]
		if s.Now.Sub(f.at) < foldFor {
			continue
		}
		delete(t.folded, key)
		if f.times == 0 || t.room < 1 {
			continue
		}
		t.room--
		t.folded[key] = fold{text: f.text, at: s.Now}
		out = append(out, stamped(s.Now, fmt.Sprintf("%s more: %s", timesText(f.times), f.text)))
	}
	var parts []string
	for w, n := range t.left {
		if what := leftOut[w]; n == 1 {
			parts = append(parts, "1 more "+what[0])
		} else if n > 1 {
			parts = append(parts, text.Thousands(n)+" more "+what[1])
		}
	}
	if len(parts) == 0 || t.room < 1 {
		return t, out
	}
	t.room--
	t.left = [tellProgress]int{}
	return t, append(out, stamped(s.Now, "and "+strings.Join(parts, ", ")))
}

// leftOut names what was left out, one and several.
var leftOut = [tellProgress][2]string{
	tellError: {"error: errors lists it", "errors: errors lists them"},
	tellAgent: {"change of the agent", "changes of the agent"},
	tellEnd:   {"job ended", "jobs ended"},
	tellBegin: {"job began", "jobs began"},
	tellOther: {"change", "changes"},
}

// refilled has the room that the time since then has made.
func (t teller) refilled(now time.Time) teller {
	if t.at.IsZero() {
		t.room = tellBurst
	} else if now.After(t.at) {
		t.room = min(t.room+now.Sub(t.at).Seconds()*tellRate, tellBurst)
	}
	t.at = now
	return t
}

func stamped(at time.Time, txt string) string { return at.UTC().Format("15:04:05") + " " + txt }

// lost is what is said when the source does not answer any more.
func (t teller) lost(was, s State) (teller, []string) {
	if was.Gone != "" {
		return t, nil
	}
	txt := "the source does not answer: " + s.Gone + "; it is asked again by itself"
	if !s.Snap.At.IsZero() {
		txt += ", and what is listed is as of " + clockTime(s.stale(), s.Now)
	}
	t.errors = s.troubles.counts()
	return t.say([]told{{weight: tellError, text: txt}}, s.Now)
}

// spoken is a time span in words: "42 seconds", "5 minutes".
func spoken(d time.Duration) string {
	d = max(d, 0)
	n, unit := int(d.Seconds()), "second"
	switch {
	case d >= 48*time.Hour:
		n, unit = int(d.Hours()/24), "day"
	case d >= time.Hour:
		n, unit = int(d.Hours()), "hour"
	case d >= time.Minute:
		n, unit = int(d.Minutes()), "minute"
	}
	return text.Plural(n, unit)
}
