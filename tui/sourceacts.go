package tui

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// What is done to sources: their controller is asked, nothing is done here.

// targetSources are the sources that a key means: the marked ones, else the one under
// the cursor or in the detail.
func (s State) targetSources() []snapshot.Source {
	if many := marked(s, paneSources, s.sources(), sourceKey); len(many) > 0 {
		return many
	}
	if s.screen == screenSource {
		if from, live := s.source(); live {
			return []snapshot.Source{from}
		}
		return nil
	}
	if s.screen == screenSources {
		for _, from := range s.sources() {
			if from.UID == s.sourceUID {
				return []snapshot.Source{from}
			}
		}
	}
	return nil
}

// sourceTargets are what a key that asks for v acts on. Where that is nothing, why says so.
func (s State) sourceTargets(v Verb, rows []snapshot.Source) (out []target, why string) {
	if why := s.notSentReason(); why != "" {
		return nil, why
	}
	why = "no source is under the cursor"
	for _, from := range rows {
		a := target{source: from, action: Action{Verb: v, Namespace: from.Namespace, Name: from.Name, UID: from.UID}}
		switch {
		case v == Reconcile && from.Suspended:
			why = from.Name + " is suspended, so its controller would not look: s resumes it"
			continue
		case v == SuspendSource && from.Suspended:
			a.action.Verb = ResumeSource
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, why
	}
	// Of sources of which some are suspended the first says which of the two.
	return sameVerb(out), ""
}

// requestSources asks for what was aimed at, at once or after a question.
func (s State) requestSources(targets []target) (State, Outcome) {
	name := targets[0].action.Name
	switch v := targets[0].action.Verb; {
	case v == SuspendSource:
		return s.ask(confirmSuspendSources(targets)), Outcome{}
	case v == ResumeSource && len(targets) > 1:
		return s.ask(confirmMany(targets, "Resume", "Their controller looks at each at once.")), Outcome{}
	case v == ResumeSource:
		return s.say("resumption of "+name+" asked for", false), send(targets)
	case len(targets) > 1:
		return s.ask(confirmMany(targets, "Look now at", "Each is asked of its controller, which fetches what is new; it is cheap and harmless when repeated.")), Outcome{}
	}
	return s.say("a look at "+name+" asked for", false), send(targets)
}

func confirmSuspendSources(targets []target) confirm {
	what, packed := targets[0].action.Name, "What is packed of it"
	if len(targets) > 1 {
		what, packed = fmt.Sprintf("%d sources", len(targets)), "What is packed of them"
	} else if rev := revision(targets[0].source); rev != "" {
		packed += " (" + snapshot.ShortRevision(rev) + ")"
	}
	return confirm{
		title: "Suspend " + what + " for everybody?",
		lines: []string{"spec.suspend is written to the API: the controller of Flux looks for nothing new, whoever asks, until somebody resumes it. " +
			packed + " stays, and what is deployed from there stays as it is."},
		choices: yes("Yes, suspend", "suspension of "+what+" asked for", targets),
	}
}

// sourceLinks are the addresses of the source under the cursor.
func (s State) sourceLinks() (out []snapshot.Link) {
	rows := s.targetSources()
	if len(rows) != 1 {
		return nil
	}
	if rows[0].URL != "" {
		out = append(out, snapshot.Link{Name: "source", URL: rows[0].URL})
	}
	if a := rows[0].Artifact; a != nil && a.URL != "" {
		out = append(out, snapshot.Link{Name: "artifact", URL: a.URL})
	}
	return out
}

// sourceCommand is the command that does something with a source.
func (s State) sourceCommand(verb string, from snapshot.Source) string {
	txt := "limpet source " + verb + " " + quote(from.Name)
	for _, other := range s.Snap.Sources {
		if other.Name == from.Name && other.Namespace != from.Namespace {
			return txt + " --namespace " + quote(from.Namespace)
		}
	}
	return txt
}

// sourceShown is the command that shows what is under the cursor.
func (s State) sourceShown() string {
	if rows := s.targetSources(); len(rows) > 0 {
		return s.sourceCommand("show", rows[0])
	}
	return ""
}

// sourceAt is the source of a UID as it is now: one, or none.
func (s State) sourceAt(uid string) []snapshot.Source {
	for _, from := range s.Snap.Sources {
		if from.UID == uid {
			return []snapshot.Source{from}
		}
	}
	return nil
}

// sourceCommands are what the palette has for a source.
func (s State) sourceCommands(from snapshot.Source) []command {
	act := func(words, note, label string, v Verb) command {
		return command{words: words, note: note, label: label}.targeting(func() target { return target{source: from, action: Action{Verb: v, Name: from.Name}} })
	}
	out := []command{
		{words: "go source " + from.Name, refusalOf: goneRefusal(func(s State) bool { return len(s.sourceAt(from.UID)) > 0 }, from.Name+" is not there any more"), note: sourceState(from), label: "enter", line: func(s State) string { return s.sourceCommand("show", from) }, do: same(func(s State) State { return s.goSource(from.UID) })},
		act("reconcile "+from.Name, "its controller looks now", "p", Reconcile),
	}
	if from.Suspended {
		out = append(out, act("resume source "+from.Name, "", "s", ResumeSource))
	} else {
		out = append(out, act("suspend source "+from.Name, "asks", "s", SuspendSource))
	}
	out = append(out, command{words: "test source " + from.Name, note: "its host and its credentials", label: "t", line: func(s State) string { return s.sourceCommand("test", from) },
		refusalOf: testRefusalOf(func(s State) bool { return len(s.sourceAt(from.UID)) > 0 }, from.Name), do: same(func(s State) State { return s.openPopup(sourceSubject(from), true) })})
	get := func(s State) string { return s.sourceCommand("get", from) }
	return append(out, command{words: "get source " + from.Name, note: "copies the command", line: get, do: func(s State) (State, Outcome) { return s.copied(get(s)) }})
}

// sourceIssues are those that have gone wrong since the picture before, or for another
// reason.
func (s State) sourceIssues(before *snapshot.Snapshot) (out []issue) {
	was := make(map[string]string, len(before.Sources))
	for i := range before.Sources {
		if from := &before.Sources[i]; from.Bad() {
			was[from.UID] = why(*from)
		}
	}
	for _, from := range s.Snap.Sources {
		txt := why(from)
		if old, bad := was[from.UID]; !from.Bad() || bad && old == txt {
			continue
		}
		at := from.Since
		if at.IsZero() || at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, issue{at: at, source: from.Name, text: strings.TrimSuffix(from.State+": "+txt, ": ")})
	}
	return out
}

// cleanSources has every text of sources clean. UIDs are shown in commands.
func cleanSources(in []snapshot.Source) []snapshot.Source {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	for i := range out {
		from := &out[i]
		for _, p := range []*string{&from.UID, &from.Namespace, &from.Name, &from.URL, &from.Ref, &from.Provider, &from.Verify, &from.State, &from.Reason, &from.Message, &from.Verified} {
			*p = text.Clean(*p)
		}
		if from.Artifact != nil {
			a := *from.Artifact
			a.Revision, a.Digest, a.URL = text.Clean(a.Revision), text.Clean(a.Digest), text.Clean(a.URL)
			from.Artifact = &a
		}
		from.Includes, from.Conditions = slices.Clone(from.Includes), slices.Clone(from.Conditions)
		for k := range from.Includes {
			in := &from.Includes[k]
			in.Name, in.From, in.To, in.Revision = text.Clean(in.Name), text.Clean(in.From), text.Clean(in.To), text.Clean(in.Revision)
		}
		for k := range from.Conditions {
			c := &from.Conditions[k]
			c.Type, c.Status, c.Reason, c.Message = text.Clean(c.Type), text.Clean(c.Status), text.Clean(c.Reason), text.Clean(c.Message)
		}
	}
	return out
}
