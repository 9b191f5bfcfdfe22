package tui

import (
	"fmt"
	"strings"
)

// word is a command of the lines. Its names are those of the palette and of the
// command line where these have one.
type word struct {
	names []string // the first is the one that help says
	after string   // what may come after it
	text  string
	do    func(l linear, rest string) (linear, reply)
}

// takes says that a line begins with the word, and what comes after it. A go before
// it changes nothing.
func (w word) takes(line string) (rest string, ok bool) {
	for _, name := range w.names {
		for _, from := range []string{line, trimFold(line, "go ")} {
			if strings.EqualFold(from, name) {
				return "", true
			}
			if rest := trimFold(from, name+" "); rest != from {
				return rest, true
			}
		}
	}
	return "", false
}

// trimFold is a line without its beginning, in whatever case that is.
func trimFold(line, begin string) string {
	if len(line) >= len(begin) && strings.EqualFold(line[:len(begin)], begin) {
		return line[len(begin):]
	}
	return line
}

// words are all commands that are not those of the palette alone; the first that
// takes a line has it.
func words() []word {
	act := func(v Verb) func(linear, string) (linear, reply) {
		return func(l linear, rest string) (linear, reply) {
			if short, ok := strings.CutSuffix(" "+rest, " --full"); ok && v == Pull {
				return l.request(PullFull, strings.TrimSpace(short))
			}
			return l.request(v, rest)
		}
	}
	list := func(of screen) func(linear, string) (linear, reply) {
		return func(l linear, rest string) (linear, reply) { return l.list(of, rest) }
	}
	return []word{
		{[]string{"help", "?"}, "", "this list", linear.help},
		{[]string{"status", "overview"}, "", "what goes on, in a few lines", func(l linear, _ string) (linear, reply) { return l, says(l.status()...) }},
		{[]string{"jobs"}, "WORDS", "the jobs of now; words and fields narrow them, as in: jobs state:error repo:lab", list(screenJobs)},
		{[]string{"repositories", "repos"}, "WORDS", "the repositories, narrowed in the same way", list(screenRepos)},
		{[]string{"history"}, "WORDS", "the jobs that have ended; fields are repo, state, action, since, until, ref", func(l linear, rest string) (linear, reply) {
			l.past, l.rest = 0, nil
			return l.list(screenHistory, rest)
		}},
		{[]string{"more"}, "", "goes on with the list that was said last", func(l linear, _ string) (linear, reply) { return l.more() }},
		{[]string{"job"}, "NAME", "one job whole; in place of a name its number in the list", func(l linear, rest string) (linear, reply) { return l.openJob(rest) }},
		{[]string{"repository", "repo"}, "NAME", "one repository whole", func(l linear, rest string) (linear, reply) { return l.openRepo(rest) }},
		{[]string{"changes"}, "NAME", "the files that a job has changed", func(l linear, rest string) (linear, reply) { return l.openChanges(rest) }},
		{[]string{"diff"}, "NUMBER", "what is different in one of them", func(l linear, rest string) (linear, reply) { return l.openDiff(rest) }},
		{[]string{"pull"}, "NAME", "pulls what has changed in a repository", act(Pull)},
		{[]string{"full pull"}, "NAME", "pulls everything, after a question", act(PullFull)},
		{[]string{"suspend"}, "NAME", "leaves a repository alone, after a question", act(Suspend)},
		{[]string{"resume"}, "NAME", "ends that", act(Resume)},
		{[]string{"cancel"}, "NAME", "cancels a job, after a question", act(Cancel)},
		{[]string{"retry"}, "NAME", "runs a job again, after a question", act(Retry)},
		{[]string{"test"}, "NAME", "has a repository tested: its host, its credentials", func(l linear, rest string) (linear, reply) { return l.test(rest) }},
		{[]string{"yaml"}, "NAME", "a repository as the API has it; yaml job NAME, yaml source NAME", func(l linear, rest string) (linear, reply) { return l.yaml(rest) }},
		{[]string{"edit"}, "NAME", "the command line that edits a repository; edit source NAME", func(l linear, rest string) (linear, reply) { return l.edit(rest) }},
		{[]string{"export"}, "WORDS", "the command line that writes the history as JSON, narrowed by the fields", func(l linear, rest string) (linear, reply) { return l.export(rest) }},
		{[]string{"errors"}, "", "what went wrong, each with what to do next", func(l linear, _ string) (linear, reply) {
			if why := noErrors(l.s); why != "" {
				return l, says(why + ".")
			}
			l.s = l.s.openErrors()
			return l.answered(Outcome{})
		}},
		{[]string{"agent"}, "", "what the agent holds, watches and keeps", list(screenAgent)},
		{[]string{"doctor"}, "", "how to have this host looked at", func(l linear, _ string) (linear, reply) {
			var out Outcome
			l.s, out = doctor(l.s)
			return l.answered(out)
		}},
		{[]string{"refresh"}, "", "asks again now", func(l linear, _ string) (linear, reply) {
			var out Outcome
			l.s, out = refresh(l.s)
			return l.answered(out)
		}},
		{[]string{"setup", "set up", "set-up"}, "", "asks for the server, on a fresh limpet", func(l linear, _ string) (linear, reply) {
			if !l.s.firstRun() || !l.s.SetUp {
				return l, says("Not done: this limpet is set up. limpet config show, in another terminal, says how.")
			}
			return l, reply{Outcome: Outcome{SetUp: true}}
		}},
		{[]string{"quit", "exit", "q"}, "", "leaves", func(l linear, _ string) (linear, reply) {
			var out Outcome
			l.s, out = l.s.quit()
			return l.answered(out)
		}},
	}
}

// words are those that mean something now.
func (l linear) words() []word {
	if len(l.s.Snap.Sources) == 0 {
		return words()
	}
	return append(sourceWords(), words()...)
}

// help says the words, and those of the palette that need no name.
func (l linear) help(string) (linear, reply) {
	out := []string{"Type a word, then Enter. NAME is the name of a job or a repository, or its number in the list."}
	for _, w := range l.words() {
		out = append(out, fmt.Sprintf("%s: %s", strings.TrimSpace(w.names[0]+" "+w.after), w.text))
	}
	return l, says(append(out, "drain: claims nothing new; drain --off ends that", "push, migrate, move, delete, with NAME: say the command line for it")...)
}
