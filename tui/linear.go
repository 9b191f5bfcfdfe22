package tui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/view"
)

// linear is the dashboard as lines, for who has it read out: what changes is told in
// sentences, a typed line has an answer. Like State it is a value whose functions
// return the next one and the lines that are said. Nothing in a line moves a cursor.
type linear struct {
	s    State
	tell teller

	waits  bool       // the answer of a lookup is to be said
	offers []offer    // what a number means now
	rest   [][]string // blocks of a list that were not said yet
	jobs   []string   // UIDs of the list that was said last, in its order
	repos  []string   // keys of the list that was said last
	past   int        // rows of the history that were said
}

// offer is one line of a numbered list.
type offer struct {
	text string
	do   func(linear) (linear, reply)
}

// reply is what a typed line leads to.
type reply struct {
	Outcome
	lines []string
	look  Lookup // to be asked before the next line is read; nil = nothing
}

func says(text ...string) reply { return reply{lines: text} }

// pageBlocks is how many entries of a list are said at once.
const pageBlocks = 10

func newLinear(s State) linear {
	s.Caps = Caps{ASCII: true, Mono: true} // what painters say here has no glyphs
	return linear{s: s.enter(screenJobs)}
}

// show takes a picture. The first one is greeted.
func (l linear) show(snap *view.Snapshot, source, note string, now time.Time) (linear, []string) {
	was, first := l.s, !l.tell.started
	l.s.Now = now
	l.s = l.s.Show(snap)
	l.s.Source, l.s.Note = source, view.Clean(note)
	var out []string
	l.tell, out = l.tell.picture(was, l.s)
	switch {
	case first:
		return l, l.greeting()
	case l.s.firstRun() && !was.firstRun():
		out = append(out, l.firstSteps()...)
	}
	return l, out
}

// lose is what is said while the source does not answer.
func (l linear) lose(why string, now time.Time) (linear, []string) {
	was := l.s
	l.s.Now = now
	l.s = l.s.Lose(why)
	var out []string
	l.tell, out = l.tell.lost(was, l.s)
	return l, out
}

// tick is what is said as time goes by.
func (l linear) tick(now time.Time) (linear, []string) {
	l.s.Now = now
	var out []string
	l.tell, out = l.tell.later(l.s)
	return l, out
}

// greeting is what who comes in has to know.
func (l linear) greeting() []string {
	out := []string{fmt.Sprintf("limpet %s, %s. Times are UTC. The word help lists what can be typed.", view.OrDash(l.s.Snap.Agent.Version), l.s.Source)}
	if l.s.Note != "" {
		out = append(out, "note: "+l.s.Note)
	}
	if l.s.firstRun() {
		return append(out, l.firstSteps()...)
	}
	return append(out, l.status()...)
}

// interrupt is what Ctrl-C does: it asks where jobs run in this process, and twice
// it ends at once.
func (l linear) interrupt() (linear, reply) {
	l.offers = nil
	var out Outcome
	l.s, out = l.s.Key("ctrl+c", "")
	return l.answered(out)
}

// acted takes the end of what was asked of the agent.
func (l linear) acted(err error) (linear, []string) {
	if err == nil {
		return l, nil
	}
	l.s = l.s.Fail(err.Error())
	text := l.s.toast
	l.s.toast = ""
	l.tell.errors = l.s.troubles.counts()
	return l, []string{stamped(l.s.Now, "not done: "+text)}
}

// found takes the answer of a lookup, and says what was waited for.
func (l linear) found(take func(State) State) (linear, reply) {
	l.s = take(l.s)
	if !l.waits {
		return l, reply{}
	}
	return l.visit(l.s) // a record that was found may have to be looked up whole
}

// enter is what a typed line leads to.
func (l linear) enter(line string) (linear, reply) {
	line = strings.Join(strings.Fields(view.Clean(line)), " ")
	l.s.toast = ""
	if q, ok := l.s.asked(); ok {
		return l.decide(q, line)
	}
	if line == "" {
		return l, reply{}
	}
	offers := l.offers
	l.offers = nil
	if n, err := strconv.Atoi(line); err == nil && len(offers) > 0 {
		if n < 1 || n > len(offers) {
			l.offers = offers
			return l, says(fmt.Sprintf("Type a number from 1 to %d, or another command.", len(offers)))
		}
		return offers[n-1].do(l)
	}
	for _, w := range words() {
		if rest, ok := w.takes(line); ok {
			return w.do(l, rest)
		}
	}
	return l.command(line)
}

// decide takes the answer to a question. An empty line decides nothing; what is no
// yes means no.
func (l linear) decide(q question, line string) (linear, reply) {
	if line == "" {
		return l, reply{}
	}
	l.s.over = nil
	chosen := -1
	n, err := strconv.Atoi(line)
	switch {
	case q.name != "":
		if line == q.name {
			chosen = 0
		}
	case strings.EqualFold(line, "yes"):
		chosen = 0
	case len(q.choices) > 1 && err == nil && n >= 1 && n <= len(q.choices):
		chosen = n - 1
	}
	if chosen < 0 {
		return l, says("No: nothing was done.")
	}
	var out Outcome
	l.s, out = q.choices[chosen].do(l.s)
	return l.answered(out)
}

// answered says what an action of the State has led to: what it said, what it asks.
func (l linear) answered(out Outcome) (linear, reply) {
	r := reply{Outcome: out}
	r.Copy = "" // there is no clipboard here; what would be copied is said
	if l.s.toast != "" {
		text := l.s.toast
		if l.s.toastBad {
			text = "Not done: " + text
		}
		r.lines = append(r.lines, text)
		l.s.toast = ""
	}
	switch over := l.s.over.(type) {
	case question:
		r.lines = append(r.lines, over.spoken()...)
	case errorsPane:
		l.s.over = nil
		r.lines = append(r.lines, l.errors()...)
	default:
		l.s.over = nil
	}
	return l, r
}

// spoken is a question as it is read out.
func (q question) spoken() []string {
	out := append([]string{q.title}, q.lines...)
	switch {
	case q.name != "":
		return append(out, fmt.Sprintf("Type %s to go on (%s). Anything else means no.", q.name, q.choices[0].text))
	case len(q.choices) == 1:
		return append(out, fmt.Sprintf("Type yes to go on (%s). Anything else means no.", q.choices[0].text))
	}
	for i, c := range q.choices {
		out = append(out, fmt.Sprintf("%d: %s", i+1, c.text))
	}
	return append(out, "Type a number, or yes for the first. Anything else means no.")
}

// visit goes to a screen and says it, after what has to be looked up for it.
func (l linear) visit(to State) (linear, reply) {
	l.s = to
	var look Lookup
	l.s, look = l.s.lack()
	if look != nil {
		l.waits = true
		return l, reply{look: look}
	}
	return l.screen()
}

// screen says the present screen.
func (l linear) screen() (linear, reply) {
	l.waits = false
	if l.s.toast != "" {
		return l.answered(Outcome{})
	}
	switch l.s.screen {
	case screenJobs:
		return l.listJobs()
	case screenRepos:
		return l.listRepos()
	case screenDetail:
		return l, says(l.jobFacts()...)
	case screenRepo:
		return l, says(l.repoFacts()...)
	case screenHistory:
		return l.listPast()
	case screenAgent:
		return l, says(l.agentFacts()...)
	case screenChanges:
		return l.listChanges()
	case screenDiff:
		return l.listDiff()
	}
	return l, says(l.status()...)
}

// page says the first blocks of a list and keeps the others for the word more.
func (l linear) page(head []string, blocks [][]string) (linear, reply) {
	n := min(len(blocks), pageBlocks)
	out := head
	for _, b := range blocks[:n] {
		out = append(out, b...)
	}
	l.rest = blocks[n:]
	if rest := len(l.rest); rest > 0 {
		out = append(out, fmt.Sprintf("%s more: the word more goes on.", view.Thousands(rest)))
	}
	return l, says(out...)
}

// more goes on with the list that was said last; of the history it looks up what
// comes after.
func (l linear) more() (linear, reply) {
	if len(l.rest) > 0 {
		return l.page(nil, l.rest)
	}
	if l.s.screen == screenHistory && l.s.past.next != "" && len(l.s.past.items) > 0 {
		l.s.past.cursor = l.s.past.items[len(l.s.past.items)-1].key()
		var look Lookup
		if l.s, look = l.s.lack(); look != nil {
			l.waits = true
			return l, reply{look: look}
		}
	}
	return l, says("That was all.")
}

// request asks the agent for something, of the thing that a name means.
func (l linear) request(v Verb, name string) (linear, reply) {
	job := v == Cancel || v == Retry
	act := func(jobs []view.Job, repos []view.Repo) (linear, reply) {
		var out Outcome
		l.s, out = l.s.request(l.s.aimsAt(aimOf(v), jobs, repos))
		return l.answered(out)
	}
	switch {
	case name == "" && job && l.s.screen == screenDetail:
		return act(l.s.jobsMeant(v), nil)
	case name == "" && !job && (l.s.screen == screenRepo || l.s.screen == screenDetail):
		if why := notSuspended(v, l.s.reposMeant()); why != "" {
			return l, says(why)
		}
		return act(nil, l.s.reposMeant())
	case name == "":
		return l, says("Say which: the word, then a name, as in: " + spokenVerb(v) + " NAME.")
	case job:
		some := l.jobsCalled(name)
		if can := slices.DeleteFunc(slices.Clone(some), func(j view.Job) bool { _, why := l.s.aimsAt(v, []view.Job{j}, nil); return why != "" }); len(can) > 0 {
			some = can
		}
		return l.chooseJob(name, some, func(l linear, j view.Job) (linear, reply) {
			var out Outcome
			l.s, out = l.s.request(l.s.aimsAt(v, []view.Job{j}, nil))
			return l.answered(out)
		})
	}
	return l.chooseRepo(name, func(l linear, r view.Repo) (linear, reply) {
		if why := notSuspended(v, []view.Repo{r}); why != "" {
			return l, says(why)
		}
		var out Outcome
		l.s, out = l.s.request(l.s.aimsAt(aimOf(v), nil, []view.Repo{r}))
		return l.answered(out)
	})
}

// aimOf is the verb of the key: one key suspends and resumes.
func aimOf(v Verb) Verb {
	if v == Resume {
		return Suspend
	}
	return v
}

// notSuspended says why a word that does one of the two does nothing.
func notSuspended(v Verb, repos []view.Repo) string {
	for _, r := range repos {
		switch {
		case v == Suspend && r.Suspended:
			return "Not done: " + r.Name + " is suspended already. resume " + r.Name + " ends that."
		case v == Resume && !r.Suspended:
			return "Not done: " + r.Name + " is not suspended."
		}
	}
	return ""
}

func spokenVerb(v Verb) string {
	if v == PullFull {
		return "full pull"
	}
	return string(v)
}

// chooseRepo finds the repository of a name, and asks where several are meant.
func (l linear) chooseRepo(name string, do func(linear, view.Repo) (linear, reply)) (linear, reply) {
	var exact, begun []view.Repo
	for _, r := range l.s.Snap.Repos {
		switch {
		case r.Name == name || repoKey(r) == name:
			exact = append(exact, r)
		case strings.HasPrefix(r.Name, strings.ToLower(name)):
			begun = append(begun, r)
		}
	}
	if n, err := strconv.Atoi(name); err == nil && len(exact) == 0 && n >= 1 && n <= len(l.repos) {
		exact = l.s.reposAt(l.repos[n-1])
	}
	if len(exact) == 0 {
		exact = begun
	}
	switch len(exact) {
	case 0:
		return l, says(l.unknown("repository", name, keysOf(l.s.Snap.Repos, func(r view.Repo) string { return r.Name })))
	case 1:
		return do(l, exact[0])
	}
	var offers []offer
	for _, r := range exact {
		offers = append(offers, offer{fmt.Sprintf("%s in namespace %s, %s", r.Name, view.OrDash(r.Namespace), health(r)), func(l linear) (linear, reply) { return do(l, r) }})
	}
	return l.offer(offers)
}

// chooseJob does the same for a job, of those that a name may mean.
func (l linear) chooseJob(name string, found []view.Job, do func(linear, view.Job) (linear, reply)) (linear, reply) {
	switch len(found) {
	case 0:
		return l, says(l.unknown("job", name, keysOf(l.s.Snap.Jobs, func(j view.Job) string { return j.Name })))
	case 1:
		return do(l, found[0])
	}
	var offers []offer
	for _, j := range found {
		offers = append(offers, offer{fmt.Sprintf("%s, %s, uid %s", jobWho(j), l.s.jobSentence(j), j.UID), func(l linear) (linear, reply) { return do(l, j) }})
	}
	return l.offer(offers)
}

// jobsCalled are the jobs that a name, a UID or a number may mean: of the picture, of
// the history as far as it is known, and the one that was said last.
func (l linear) jobsCalled(name string) []view.Job {
	known := slices.Clone(l.s.Snap.Jobs)
	if l.s.detail != "" {
		known = append(known, *l.s.last)
	}
	for _, r := range l.s.past.rows {
		known = append(known, pastJob(r))
	}
	wanted := ""
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(l.jobs) {
		wanted = l.jobs[n-1]
	}
	var exact, begun, listed []view.Job
	seen := map[string]bool{}
	for _, j := range known {
		if seen[j.UID] {
			continue
		}
		seen[j.UID] = true
		switch {
		case j.Name == name || j.UID == name || j.Namespace+"/"+j.Name == name:
			exact = append(exact, j)
		case j.UID == wanted:
			listed = append(listed, j)
		case strings.HasPrefix(j.Name, strings.ToLower(name)):
			begun = append(begun, j)
		}
	}
	for _, some := range [][]view.Job{exact, listed, begun} {
		if len(some) > 0 {
			return some
		}
	}
	return nil
}

// offer asks which of several things is meant.
func (l linear) offer(offers []offer) (linear, reply) {
	shown := offers[:min(len(offers), 2*pageBlocks)]
	out := []string{"Which one? Type its number."}
	for i, o := range shown {
		out = append(out, fmt.Sprintf("%d: %s", i+1, o.text))
	}
	if rest := len(offers) - len(shown); rest > 0 {
		out = append(out, fmt.Sprintf("%s more: type more of the name.", view.Thousands(rest)))
	}
	l.offers = shown
	return l, says(out...)
}

// unknown says that there is nothing of a name, and what was probably meant.
func (l linear) unknown(what, name string, names []string) string {
	text := fmt.Sprintf("There is no %s %s.", what, name)
	if near := nearest(name, names); near != "" {
		text += " Did you mean " + near + "?"
	}
	return text
}

// openJob says a job. One that is not known here is looked for in the history.
func (l linear) openJob(name string) (linear, reply) {
	switch {
	case name == "" && l.s.screen == screenDetail:
		return l.screen()
	case name == "":
		return l, says("Say which: job NAME, or job and its number in the list.")
	case len(l.jobsCalled(name)) > 0:
		return l.chooseJob(name, l.jobsCalled(name), func(l linear, j view.Job) (linear, reply) {
			if len(l.s.jobsAt(j.UID)) > 0 {
				return l.visit(l.s.goJob(j.UID))
			}
			return l.visit(l.s.visit(screenDetail).takeJob(j, true))
		})
	}
	missing := l.unknown("job", name, keysOf(l.s.Snap.Jobs, func(j view.Job) string { return j.Name }))
	l.waits = true
	return l, reply{look: func(ctx context.Context, src Source) func(State) State {
		page, err := src.Past(ctx, view.PastQuery{Words: []string{name}, Limit: pastPage})
		if err != nil {
			return func(s State) State { return s.say(view.Clean(err.Error()), true) }
		}
		for _, r := range cleanPast(page).Rows {
			if r.Name == name {
				return func(s State) State { return s.visit(screenDetail).takeJob(pastJob(r), true) }
			}
		}
		j, err := src.PastJob(ctx, name) // it may be a UID
		if err != nil {
			return func(s State) State { return s.say(missing+" The history has none either.", true) }
		}
		return func(s State) State { return s.visit(screenDetail).takeJob(cleanJob(j), false) }
	}}
}

// openRepo says a repository.
func (l linear) openRepo(name string) (linear, reply) {
	if name == "" && l.s.screen == screenRepo {
		return l.screen()
	}
	if name == "" {
		return l, says("Say which: repository NAME, or repository and its number in the list.")
	}
	return l.chooseRepo(name, func(l linear, r view.Repo) (linear, reply) { return l.visit(l.s.goRepo(repoKey(r))) })
}

// list says one of the lists, of what the words of a filter let through.
func (l linear) list(of screen, filter string) (linear, reply) {
	s := l.s.visit(of)
	s.filters[of] = filter
	return l.visit(s.settle())
}

// command does what the palette has under these words; where they are not exact it
// offers what they may mean.
func (l linear) command(line string) (linear, reply) {
	var exact, like []command
	fields := strings.Fields(strings.ToLower(line))
	for _, c := range l.s.commands() {
		if c.group != "" || strings.HasPrefix(c.words, "theme ") { // keys, and what is seen
			continue
		}
		if strings.EqualFold(c.words, line) {
			exact = append(exact, c)
		} else if rank, ok := match(strings.ToLower(c.words), strings.ToLower(line), fields); ok && rank < 2 {
			like = append(like, c)
		}
	}
	if len(exact) == 1 {
		return l.perform(exact[0])
	}
	var offers []offer
	for _, c := range append(exact, like...) {
		offers = append(offers, offer{c.words, func(l linear) (linear, reply) { return l.perform(c) }})
	}
	if len(offers) > 0 {
		return l.offer(offers)
	}
	word, _, _ := strings.Cut(line, " ")
	var names []string
	for _, w := range words() {
		names = append(names, w.names...)
	}
	text := fmt.Sprintf("%s is no command.", cmp.Or(word, line))
	if near := nearest(word, names); near != "" {
		text += " Did you mean " + near + "?"
	}
	return l, says(text + " The word help lists them.")
}

func (l linear) perform(c command) (linear, reply) {
	at := l.s.here()
	filter := l.s.filter()
	var out Outcome
	l.s, out = l.s.perform(c)
	if l.s.here() != at || l.s.filter() != filter {
		return l.visit(l.s.settle())
	}
	return l.answered(out)
}
