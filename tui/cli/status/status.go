// Package status has the commands that show and drain the agent.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

// Command is 'limpet status'.
type Command struct {
	Watch bool `help:"Continue, with a line for each change; with -o json a document in each line."`
}

// report is the output of 'limpet status -o json'.
type report struct {
	State  string             `json:"state"`          // path of the state file
	Daemon *control.Hello     `json:"daemon"`         // null without a daemon
	Live   *snapshot.Snapshot `json:"live"`           // null without a daemon
	Store  *state.Info        `json:"store"`          // null without a state file
	Left   *leftReport        `json:"left,omitempty"` // in the file, while no daemon runs
	// Orphans are those of the embedded API. Those of another server are counted by doctor: the list
	// may be long.
	Orphans []object.Orphans `json:"orphans,omitempty"`
	OK      bool             `json:"ok"`
	Why     []string         `json:"why,omitempty"` // reasons why OK is false
	// Warnings do not make the command fail.
	Warnings []string `json:"warnings,omitempty"`
}

func (c Command) Run(ctx context.Context, e *command.Env) error {
	if c.Watch {
		return watchStatus(ctx, e)
	}
	rep, err := readStatus(ctx, e)
	if err != nil {
		return err
	}
	err = e.PrintOne(rep, "", func(w io.Writer) { printStatus(e, w, rep) })
	if err == nil && !rep.OK {
		err = command.Errorf(command.ExitError, "", "%s", text.Plural(len(rep.Why), "problem"))
	}
	return err
}

// readStatus asks the daemon, else reads the file. It never creates one: status has no side
// effects.
func readStatus(ctx context.Context, e *command.Env) (*report, error) {
	path, daemon, err := e.Attach(ctx)
	rep := &report{State: path, OK: true}
	switch {
	case err == nil:
		defer daemon.Close()
		hello := daemon.Hello()
		rep.Daemon = &hello
		if rep.Live, err = daemon.Snapshot(ctx); err != nil {
			return nil, err
		}
		rep.Live = withoutNil(rep.Live)
		info, err := daemon.Info(ctx)
		if err != nil {
			return nil, err
		}
		rep.Store = &info
		if hello.Server == "embedded" && e.Embedded() {
			s := &command.Session{Daemon: daemon}
			if s.Client, err = e.Connect(ctx, s, ""); err != nil {
				return nil, err
			}
			defer s.Client.Close()
			rep.countOrphans(ctx, e, s)
		}
	case !errors.Is(err, control.ErrNoDaemon), errors.As(err, new(*command.UnresponsiveError)):
		return nil, err
	default:
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return rep, nil
		}
		store, report, err := e.OpenReported(ctx, path, "")
		if err != nil {
			return nil, err
		}
		defer store.Close()
		if txt := command.RebuiltText(report); txt != "" {
			rep.Why = append(rep.Why, e.Invocation.Complete("the state file: "+txt+": "+command.RebuiltNext))
		}
		info, err := store.Info(ctx)
		if err != nil {
			return nil, err
		}
		rep.Store = &info
		if e.Embedded() {
			if err = rep.readLeft(ctx, e, store); err != nil {
				return nil, err
			}
		}
	}
	rep.judge(e)
	return rep, nil
}

// countOrphans warns where they cannot be counted: the rest is true all the same.
func (s *report) countOrphans(ctx context.Context, e *command.Env, session *command.Session) {
	var err error
	if s.Orphans, err = object.ListOrphans(ctx, e, session); err != nil {
		s.Warnings = append(s.Warnings, "the objects without a repository could not be counted: "+text.Redact(err.Error())+
			": "+e.Invocation.Complete("limpet doctor"))
	}
}

// judge fills OK, Why and Warnings: each reason ends with the next command.
func (s *report) judge(e *command.Env) {
	for _, o := range s.Orphans {
		s.Warnings = append(s.Warnings, o.String()+": "+e.Invocation.Complete(o.Next()))
	}
	if s.Live == nil {
		s.judgeLeft(e, time.Now())
	} else {
		s.Warnings = slices.Concat(s.Warnings, s.Live.Agent.Warnings)
		s.add(e, s.Live.Issues())
	}
	s.OK = len(s.Why) == 0
}

// add adds issues with their next commands to Why and Warnings.
func (s *report) add(e *command.Env, issues []snapshot.Issue) {
	for _, i := range issues {
		line := e.Invocation.Complete(i.Text)
		if i.Next != "" {
			line = i.Text + ": " + e.CommandFor(i.Namespace, i.Next)
		}
		if i.Failing {
			s.Why = append(s.Why, line)
		} else {
			s.Warnings = append(s.Warnings, line)
		}
	}
}

func printStatus(e *command.Env, w io.Writer, rep *report) {
	var f command.Fields
	defer func() { f.Write(w) }()
	f.Add("state file", rep.State)
	switch {
	case rep.Daemon == nil && rep.Store == nil:
		f.Add("agent", "not running; start it with: "+e.CommandFor("", "--daemon"))
	case rep.Daemon == nil:
		f.Add("agent", "not running")
	default:
		f.Add("agent", fmt.Sprintf("limpet %s, pid %d, up %s", rep.Daemon.Version, rep.Daemon.PID,
			text.Age(time.Since(rep.Daemon.Started))))
		if rep.Live != nil && !rep.Live.Agent.Draining.IsZero() {
			f.Add("", drainText(e, rep.Live.Agent, time.Now()))
		}
	}
	if rep.Store == nil {
		f.Add("store", "no state file yet")
	} else {
		f.Add("store", fmt.Sprintf("%s, finished jobs: %d, objects: %d", text.Size(rep.Store.Bytes), rep.Store.History, rep.Store.Objects))
	}
	if rep.Left != nil {
		jobs := rep.Left.Jobs
		f.Add("jobs", fmt.Sprintf("%d pending, %d waiting to retry, %d claimed", jobs.Pending, jobs.Resting, jobs.Claimed))
		addRepos(&f, rep.Left.Repos)
	}
	if rep.Live != nil {
		rep.printLive(&f)
	}
	for _, why := range slices.Concat(rep.Why, rep.Warnings) {
		said, try := why, ""
		if at := strings.LastIndex(why, ": limpet"); at >= 0 {
			said, try = why[:at], "try:"+why[at+1:]
		}
		f.Add("!", said)
		f.AddSet("", try)
	}
}

func (s *report) printLive(f *command.Fields) {
	f.Add("api", s.Live.API.Server+" "+apiText(s.Live.API))
	if as := s.Live.AsOf; !as.IsZero() {
		f.Add("as of", as.UTC().Format(time.RFC3339)+", the API has not shown the present yet")
	}
	counts := s.Live.Counts
	f.Add("jobs", fmt.Sprintf("%d working, %d pending, %d waiting to retry, %d on other agents", counts.Working, counts.Pending,
		counts.Resting, counts.Elsewhere))
	for _, j := range s.Live.Jobs {
		if !j.Undelivered.IsZero() {
			f.Add("not delivered", fmt.Sprintf("%s: %s, waiting for the API %s", j.Name, j.State, text.Age(time.Since(j.Undelivered))))
		}
	}
	addRepos(f, s.Live.Repos)
	if c := s.Live.Agent.Controllers; c.Mode != "" {
		f.Add("", c.Text())
	}
	for _, t := range s.Live.Agent.Notifications {
		if t.Pending == 0 && !strings.Contains(t.Target, ":") {
			continue // Events of the API itself
		}
		f.Add("notifications", fmt.Sprintf("%s: %d sent, %d waiting", t.Target, t.Sent, t.Pending))
	}
	unready, suspended := map[bool]int{}, map[bool]int{}
	for _, from := range s.Live.Sources {
		unready[from.Unready()]++
		suspended[from.Suspended]++
	}
	if s.Live.SourcesError != "" {
		f.Add("sources", "not shown: "+s.Live.SourcesError)
	} else if n := len(s.Live.Sources); n > 0 {
		f.Add("sources", fmt.Sprintf("%d: %d not ready, %d suspended", n, unready[true], suspended[true]))
		if c := s.Live.Agent.Sources; c != nil {
			f.Add("", c.TextOf("sources"))
		}
	}
}

// addRepos counts repositories by the state of their last pull; those that fail are errors,
// suspended ones stand apart.
func addRepos(f *command.Fields, repos []snapshot.Repo) {
	states := map[string]int{}
	for _, repo := range repos {
		switch {
		case repo.Suspended:
			states["suspended"]++
		case repo.Failing():
			states[api.StateError]++
		default:
			states[cmp.Or(repo.SyncState, api.StatePending)]++
		}
	}
	txt := fmt.Sprintf("%d: %d success, %d warning, %d error", len(repos), states[api.StateSuccess], states[api.StateWarning],
		states[api.StateError])
	for _, state := range []string{api.StateWorking, api.StatePending, "suspended"} {
		if n := states[state]; n > 0 {
			txt += fmt.Sprintf(", %d %s", n, state)
		}
	}
	f.Add("repositories", txt)
}

func apiText(a snapshot.API) string {
	switch {
	case !a.Up:
		return "down for " + text.Age(time.Since(a.Since))
	case !a.Synced:
		return "not read yet"
	}
	return "ok"
}

// statusEvery is the least time between two lines of a watch.
const statusEvery = time.Second

// watchStatus prints the status of the daemon whenever it changes, until ctx ends. It continues
// while the daemon does not answer, with a line that says so.
func watchStatus(ctx context.Context, e *command.Env) error {
	path, daemon, err := attach(ctx, e, "limpet --daemon    # in another terminal", "nothing to watch")
	if err != nil {
		return err
	}
	defer daemon.Close()
	snapshots, last := daemon.Watch(ctx), ""
	for {
		snap, err := snapshots.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rep := &report{State: path, OK: true}
		if err == nil {
			hello := snapshots.Hello()
			rep.Daemon, rep.Live = &hello, withoutNil(snap)
			rep.judge(e)
		} else {
			rep.OK, rep.Why = false, []string{command.ErrorText(command.AsUnresponsive(path, err))}
		}
		if mark := rep.mark(); mark != last {
			last = mark
			if e.Flags.Data() {
				err = e.PrintStream(command.StreamLine{Type: "status", Status: rep})
			} else {
				word := rep.word()
				_, err = fmt.Fprintln(e.Out, command.Timestamp(), command.ColorsOf(e.Out).Paint(word, word)+strings.TrimPrefix(rep.figures(), word))
			}
			if err != nil {
				return err
			}
		}
		command.Sleep(ctx, statusEvery)
	}
}

// withoutNil returns a snapshot whose lists are never nil.
func withoutNil(snap *snapshot.Snapshot) *snapshot.Snapshot {
	out := *snap
	out.Jobs, out.Repos, out.Events = command.List(out.Jobs), command.List(out.Repos), command.List(out.Events)
	return &out
}

// maxReasons bounds the reasons in a line.
const maxReasons = 3

// figures are the state of the agent and its counts without those that are zero, then the reasons.
func (s *report) figures() string {
	out := s.word()
	add := func(n int, what string) {
		if n > 0 {
			out += fmt.Sprintf(", %d %s", n, what)
		}
	}
	if s.Live != nil {
		c := s.Live.Counts
		add(c.Working, "working")
		add(c.Pending, "pending")
		add(c.Resting, "waiting to retry")
		add(c.Elsewhere, "on other agents")
		add(c.Undelivered, "not delivered yet")
		failing := 0
		for _, repo := range s.Live.Repos {
			if slices.ContainsFunc(repo.Issues(), func(i snapshot.Issue) bool { return i.Failing }) {
				failing++
			}
		}
		add(len(s.Live.Repos), map[bool]string{true: "repository", false: "repositories"}[len(s.Live.Repos) == 1])
		add(failing, "failing")
	}
	why := slices.Concat(s.Why, s.Warnings)
	if more := len(why) - maxReasons; more > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.TrimSuffix(out+": "+text.Clean(strings.Join(why, "; ")), ": ")
}

// mark is equal for reports without a relevant change; ages are not relevant.
func (s *report) mark() string {
	if s.Live == nil {
		return "unreachable"
	}
	return fmt.Sprint(s.figures(), s.Live.API.Up, s.Live.Agent.Draining.IsZero(), s.Why, s.Warnings)
}

// word is the state of the agent in one word.
func (s *report) word() string {
	if s.Live == nil {
		return "unreachable"
	}
	return s.Live.Word(s.OK)
}
