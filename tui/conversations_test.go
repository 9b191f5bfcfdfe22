package tui

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// talk is accessible mode that is used: pictures, typed lines, answers and time come
// in any order.
type talk struct {
	*worlds
	l    linear
	src  Source
	snap *snapshot.Snapshot // as the agent has it
	now  time.Time
	// rationed talks have the room for sentences that a person has; the others have
	// any, and each sentence is counted.
	rationed bool
	heard    map[string]heardOf // by UID
	steps    int
}

// heardOf is what a listener knows of a job.
type heardOf struct {
	label  string
	phase  string
	since  time.Time // of the phase
	told   time.Time // when the last sentence came; zero = none of this phase
	text   string
	step   int
	errors int
}

func newTalk(h *worlds) *talk {
	h.made = h.IntN(1000)
	s := NewState([]string{Standalone, FromDisk, "attached to daemon 4121"}[h.IntN(3)], h.caps(), noon)
	s.ReadOnly, s.SetUp = h.IntN(10) == 0, h.IntN(2) == 0
	return &talk{worlds: h, l: newLinear(s), src: &oracle{worlds: h}, now: noon, rationed: h.IntN(3) == 0, snap: new(snapshot.Snapshot)}
}

// typing are lines that mean something somewhere, and some that mean nothing.
var typing = func() (out []string) {
	for _, w := range words() {
		out = append(out, w.names...)
	}
	return append(out, "yes", "YES", "no", "1", "2", "3", "7", "0", "-1", "99999999999999999999", "", " ", "y", "drain", "drain --off", "push", "filter state:error", "state:working", "go", "theme mono", "undo")
}()

// line is what somebody types.
func (k *talk) line() string {
	line := typing[k.IntN(len(typing))]
	for range k.IntN(3) {
		switch k.IntN(5) {
		case 0:
			line += " " + k.text()
		case 1:
			line += fmt.Sprintf(" j%06d", k.IntN(k.made+1))
		case 2:
			if repos := k.l.s.Snap.Repos; len(repos) > 0 {
				line += " " + repos[k.IntN(len(repos))].Name
			}
		case 3:
			if jobs := k.l.s.Snap.Jobs; len(jobs) > 0 {
				line += " " + jobs[k.IntN(len(jobs))].Name
			}
		default:
			line += " " + typing[k.IntN(len(typing))]
		}
	}
	return line
}

// picture is the next one. Rows are told by their UIDs, so no two have one.
func (k *talk) picture() *snapshot.Snapshot {
	next := k.next(k.snap)
	if k.snap.At.IsZero() || k.IntN(40) == 0 {
		next = k.worlds.picture()
	}
	for i := range next.Jobs {
		if next.Jobs[i].UID == "twice" {
			next.Jobs[i].UID = k.label("u")
		}
	}
	next.Repos = slices.Clone(next.Repos)
	for i := range next.Repos {
		if r := &next.Repos[i]; k.IntN(6) == 0 {
			r.Suspended, r.Healthy = k.IntN(2) == 0, k.IntN(2) == 0
		}
	}
	next.At = k.now
	return next
}

// step does one thing and says what of the conversation is not as it has to be; "" =
// nothing.
func (k *talk) step() string {
	k.steps++
	k.now = k.now.Add(time.Duration(k.IntN(3000)) * time.Millisecond)
	if !k.rationed {
		k.l.tell.room, k.l.tell.at, k.l.tell.folded = 1e9, k.now, nil
	}
	var out []string
	switch n := k.IntN(100); {
	case n < 35 || k.snap.At.IsZero():
		return k.shows()
	case n < 45:
		want := k.expected(k.l.s, k.now)
		k.l, out = k.l.tick(k.now)
		if why := k.hears(out); why != "" {
			return "time: " + why
		}
		return k.wrongly(want, out)
	case n < 48:
		gone := k.l.s.Gone != ""
		k.l, out = k.l.lose(k.text()+"x", k.now)
		if want := 1; !k.rationed && (gone && len(out) > 0 || !gone && len(out) != want) {
			return fmt.Sprintf("a source that is away (before: %t) is told by %q", gone, out)
		}
	case n < 50:
		k.l, out = k.l.acted(errors.New(k.text()))
		if len(out) != 1 {
			return fmt.Sprintf("what was not done is told by %q", out)
		}
	case n < 51:
		var re reply
		k.l, re = k.l.interrupt()
		if out = re.lines; !re.Quit && len(out) == 0 {
			return "Ctrl-C does nothing"
		}
	default:
		return k.types(k.line())
	}
	return k.hears(out)
}

// shows has the next picture come, and then the same once more.
func (k *talk) shows() string {
	was := k.l.s
	first := !k.l.tell.started
	k.snap = k.picture()
	var out, again []string
	source := was.Source
	k.l, out = k.l.show(k.snap, source, "", k.now)
	if why := k.hears(out); why != "" {
		return "picture: " + why
	}
	if !first {
		if why := k.wrongly(k.expected(k.l.s, k.now), out); why != "" {
			return why
		}
		if why := k.changed(was, out); why != "" {
			return why
		}
	} else {
		k.expected(k.l.s, time.Time{})
	}
	if k.l, again = k.l.show(k.snap, source, "", k.now); len(again) > 0 && !k.rationed {
		return fmt.Sprintf("the same picture says %q", again)
	}
	return ""
}

// hears takes what is said, as it is printed.
func (k *talk) hears(lines []string) string {
	var printed bytes.Buffer
	r := lineRun{out: &printed}
	r.say(lines)
	if len(lines) == 0 {
		return ""
	}
	got := strings.Split(strings.TrimSuffix(printed.String(), "\n"), "\n")
	if len(got) != len(lines) {
		return fmt.Sprintf("%d lines are printed as %d: %q", len(lines), len(got), got)
	}
	for _, line := range got {
		if strings.TrimSpace(line) == "" {
			return fmt.Sprintf("an empty line among %q", got)
		}
		if n := len([]rune(line)); n > lettersMost+50 {
			return fmt.Sprintf("a line of %d letters: %q", n, line)
		}
		for _, r := range line {
			if text.Hidden(r) {
				return fmt.Sprintf("%U in %q", r, line)
			}
		}
	}
	if told := len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !hasStamp.MatchString(l) })); k.rationed && told > tellBurst {
		return fmt.Sprintf("%d sentences at once", told)
	}
	return ""
}

// hasStamp is how a sentence begins that was not asked for.
var hasStamp = regexp.MustCompile(`^\d\d:\d\d:\d\d `)

// expected is how many sentences each job is worth now, by how its name begins. The
// zero time means a greeting: all is known after it.
func (k *talk) expected(s State, now time.Time) map[string]int {
	greeting := now.IsZero()
	if greeting {
		now = s.Now
	}
	s.Now = now
	if k.heard == nil {
		k.heard = map[string]heardOf{}
	}
	want, same, there := map[string]int{}, map[string]bool{}, map[string]bool{}
	once := func(key string) int {
		if same[key] {
			return 0
		}
		same[key] = true
		return 1
	}
	for _, j := range s.Snap.Jobs {
		there[j.UID] = true
		h, known := k.heard[j.UID]
		if h.label = j.Name[:7]; !known || h.phase != jobPhase(j, now) {
			h.phase, h.since, h.told, h.step = jobPhase(j, now), now, time.Time{}, int(j.Progress)/10
		}
		txt := jobWho(j) + s.jobSentence(j)
		n := 0
		switch fresh := h.told.IsZero(); {
		case fresh && h.phase == "pending":
			if j.Waits != "" || now.Sub(h.since) >= 2*time.Second {
				n = 1
			}
		case fresh && h.phase == "ended" && (j.State == "error" || j.State == "dead"):
			n = once(fmt.Sprint(j.Namespace, "\x00", j.Repository, "\x00", j.Action, "\x00", j.State, "\x00", j.Message))
			h.told, h.text = now, txt
		case fresh:
			n = 1
		case h.phase == "working" && txt != h.text && (int(j.Progress)/10 != h.step || now.Sub(h.told) >= 10*time.Second):
			n, h.step = 1, int(j.Progress)/10
		}
		if n > 0 {
			h.told, h.text = now, txt
		}
		if j.Finished.IsZero() {
			for _, e := range j.Errors[min(h.errors, len(j.Errors)):] {
				n += once(j.UID + "\x00" + e)
			}
		}
		h.errors = len(j.Errors)
		if greeting {
			h.told, n = now, 0
		}
		want[h.label] += n
		k.heard[j.UID] = h
	}
	for uid, h := range k.heard {
		if there[uid] {
			continue
		}
		if delete(k.heard, uid); h.phase != "ended" && len(s.Snap.Jobs) >= s.Snap.Counts.All() {
			want[h.label]++
		}
	}
	return want
}

// wrongly says of which job more or less was told than there was.
func (k *talk) wrongly(want map[string]int, out []string) string {
	if k.rationed { // what was left out is counted; see TestRationing
		return ""
	}
	got := map[string]int{}
	for _, line := range out {
		if hasStamp.MatchString(line) && aboutJob.MatchString(line[9:]) {
			got[line[9:16]]++
		}
	}
	for label, n := range want {
		if got[label] != n {
			return fmt.Sprintf("%d sentences of %s, want %d:\n%s", got[label], label, n, strings.Join(out, "\n"))
		}
	}
	for label, n := range got {
		if want[label] != n {
			return fmt.Sprintf("%d sentences of %s, want %d:\n%s", n, label, want[label], strings.Join(out, "\n"))
		}
	}
	return ""
}

// aboutJob is how a sentence of a job of worlds begins.
var aboutJob = regexp.MustCompile(`^j\d{6}`)

// changed says what of the API and of the repositories was not told as it changed.
func (k *talk) changed(was State, out []string) string {
	if k.rationed {
		return ""
	}
	s := k.l.s
	said := func(txt string) (n int) {
		for _, line := range out {
			if hasStamp.MatchString(line) && strings.HasPrefix(line[9:], txt) {
				n++
			}
		}
		return n
	}
	want := map[string]int{"offline: ": 0, "online: ": 0, "problem: ": 0, "the daemon answers again: ": 0}
	if s.Source != FromDisk && was.Snap.API.Up != s.Snap.API.Up {
		want[map[bool]string{true: "online: ", false: "offline: "}[s.Snap.API.Up]]++
	}
	if p := s.Snap.Problem; p != "" && p != was.Snap.Problem {
		want["problem: "]++
	}
	if was.Gone != "" {
		want["the daemon answers again: "]++
	}
	before := map[string]snapshot.Repo{}
	for _, r := range was.Snap.Repos {
		before[repoKey(r)] = r
	}
	for _, r := range s.Snap.Repos {
		old, known := before[repoKey(r)]
		delete(before, repoKey(r))
		name := "repository " + r.Name + ": "
		for what, is := range map[string]bool{
			"is new": !known, "suspended on": known && r.Suspended && !old.Suspended, "resumed": known && !r.Suspended && old.Suspended,
			"healthy again": known && health(r) == "healthy" && health(old) == "failing",
			"failing, ":     health(r) == "failing" && (!known || health(old) != "failing"),
		} {
			if want[name+what] = 0; is {
				want[name+what] = 1
			}
		}
	}
	for _, r := range before {
		want["repository "+r.Name+": is gone"] = 1
	}
	for txt, n := range want {
		if got := said(txt); got != n {
			return fmt.Sprintf("%q is said %d times, want %d:\n%s", txt, got, n, strings.Join(out, "\n"))
		}
	}
	return ""
}

// consented are verbs that nobody sends without a question.
var consented = []Verb{PullFull, Suspend, Cancel, Retry, Drain}

// types a line, has what it looks up answered, and looks at the answer.
func (k *talk) types(line string) string {
	k.l.s.Now = k.now
	question, asked := k.l.s.asked()
	var re reply
	k.l, re = k.l.enter(line)
	out, looked := re.lines, 0
	for ; re.look != nil; looked++ {
		if looked > 8 {
			return fmt.Sprintf("%q: looks up and looks up", line)
		}
		take := re.look(nil, k.src)
		if k.IntN(8) == 0 { // a picture comes in between
			if why := k.shows(); why != "" {
				return why
			}
		}
		k.l, re = k.l.found(take)
		out = append(out, re.lines...)
	}
	if why := k.hears(out); why != "" {
		return fmt.Sprintf("%q: %s", line, why)
	}
	empty := strings.TrimSpace(text.Clean(line)) == ""
	does := re.Quit || re.SetUp || re.Refresh || len(re.Actions) > 0
	still, open := k.l.s.asked()
	switch {
	case re.Copy != "":
		return fmt.Sprintf("%q: something for the clipboard, which takes an escape sequence", line)
	case empty && (does || len(out) > 0 || asked != open):
		return fmt.Sprintf("an empty line does something: %q", out)
	case !empty && !does && len(out) == 0:
		return fmt.Sprintf("%q: no answer", line)
	case !empty && asked && open && still.title == question.title:
		return fmt.Sprintf("%q leaves the question as it is: %q", line, still.title)
	case open && !asked && !slices.ContainsFunc(out, func(l string) bool { return strings.Contains(l, "Anything else means no.") }):
		return fmt.Sprintf("%q asks, and does not say what may be answered: %q", line, out)
	case k.l.s.over != nil && !open:
		return fmt.Sprintf("%q: a box stays open, %T", line, k.l.s.over)
	case k.l.waits:
		return fmt.Sprintf("%q: still waits", line)
	}
	for _, a := range re.Actions {
		if !asked && slices.Contains(consented, a.Verb) {
			return fmt.Sprintf("%q: sends %v, and did not ask", line, a)
		}
	}
	if open && k.IntN(2) == 0 { // it can be left
		if k.l, re = k.l.enter("nono"); len(re.Actions) > 0 || re.Quit || open == k.asks() {
			return fmt.Sprintf("the question %q cannot be left", still.title)
		}
	}
	return ""
}

// asks says that a question is open.
func (k *talk) asks() bool { _, open := k.l.s.asked(); return open }

// TestAnyConversation uses accessible mode in any way: what is printed moves nothing,
// no line is too long to be heard, each change is told once and nothing twice, each
// typed line has an answer, and nobody is stuck in a question.
func TestAnyConversation(t *testing.T) {
	t.Parallel()
	n, first := 1_000, seeded(t)
	if *fault {
		n = 300_000
	}
	var steps atomic.Int64
	spread(t, n, func(i int) string {
		k := newTalk(&worlds{Rand: rand.New(rand.NewPCG(first, uint64(i))), plain: i%2 == 0})
		defer func() { steps.Add(int64(k.steps)) }()
		for range 1 + k.IntN(40) {
			if why := k.step(); why != "" {
				return fmt.Sprintf("step %d, %s", k.steps, why)
			}
		}
		return ""
	})
	t.Logf("fault: %d conversations, %d steps", n, steps.Load())
}

// TestRationing: of what there is to say at any moment each sentence is said, or
// counted as left out, or counted as equal; only progress is dropped.
func TestRationing(t *testing.T) {
	t.Parallel()
	n, first := 2_000, seeded(t)
	spread(t, n, func(i int) string {
		r := rand.New(rand.NewPCG(first, uint64(i)))
		var tell teller
		now := noon
		said, due, folded, left := 0, 0, 0, 0
		for range 1 + r.IntN(60) {
			var all []told
			for range r.IntN(12) {
				one := told{weight: weight(r.IntN(int(tellProgress) + 1)), text: fmt.Sprint("s", r.IntN(1000))}
				if one.weight == tellError {
					one.key = fmt.Sprint(r.IntN(4))
				}
				if all = append(all, one); one.weight != tellProgress {
					due++
				}
			}
			now = now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
			progress := 0
			var out []string
			tell, out = tell.say(all, now)
			texts := map[string]int{}
			for _, one := range all {
				if one.weight == tellProgress {
					texts[one.text]++
				}
			}
			for _, line := range out {
				if texts[line[9:]] > 0 {
					texts[line[9:]]--
					progress++
				}
			}
			said += len(out) - progress
			if len(out) > tellBurst || tell.room < 0 || tell.room > tellBurst {
				return fmt.Sprintf("%d said, room for %g more", len(out), tell.room)
			}
		}
		for _, f := range tell.folded {
			folded += f.times
		}
		for _, one := range tell.left {
			left += one
		}
		if due > 0 && said == 0 || said+folded+left < due-5 || said+folded+left > due {
			return fmt.Sprintf("%d to say: %d said, %d equal, %d left out", due, said, folded, left)
		}
		return ""
	})
}
