// Package snapshot is the read model of an agent: plain data that the agent builds, the control
// socket carries as JSON, and the dashboard and the commands show.
package snapshot

import (
	"fmt"
	"strings"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git/transfer"
	"limpet/sync/jobs"
	"limpet/sync/notify"
	"limpet/sync/source"
	"limpet/sync/text"
)

// Snapshot is the state of an agent at one moment. It is immutable once published.
type Snapshot struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Agent  Agent     `json:"agent"`
	API    API       `json:"api"`
	Jobs   []Job     `json:"jobs"` // live ones, then those finished in the last 60 s; the first 1000
	Counts Counts    `json:"counts"`
	Repos  []Repo    `json:"repos"` // by namespace and name
	Events []Event   `json:"events"`
	// Sources are sorted by namespace and name. SourcesError is the reason why the sources of an API
	// with Flux cannot be shown; "" means none.
	Sources      []Source `json:"sources,omitempty"`
	SourcesError string   `json:"sourcesError,omitempty"`
	// UnhealthyConnections are sorted by namespace and name.
	UnhealthyConnections []Connection `json:"unhealthyConnections,omitempty"`
	// AsOf is the time of the data when jobs and repositories come from the last run, because the
	// watches have not synced yet.
	AsOf    time.Time `json:"asOf,omitzero"`
	Problem string    `json:"problem,omitempty"` // needs action by the user; contains the next command
}

// Counts is the number of jobs in each state.
type Counts struct {
	Working     int `json:"working"` // by this agent
	Pending     int `json:"pending"`
	Resting     int `json:"resting"`     // waiting for the next attempt
	Elsewhere   int `json:"elsewhere"`   // claimed by another agent
	Done        int `json:"done"`        // in the last 60 s
	Undelivered int `json:"undelivered"` // done by this agent, result not delivered to the API yet
}

// All returns the number of jobs.
func (c Counts) All() int {
	return c.Working + c.Pending + c.Resting + c.Elsewhere + c.Done + c.Undelivered
}

// Add adds n jobs in the state of j at now.
func (c *Counts) Add(j *Job, n int, now time.Time) {
	switch {
	case !j.Finished.IsZero():
		c.Done += n
	case !j.Undelivered.IsZero():
		c.Undelivered += n
	case j.Owner == "other":
		c.Elsewhere += n
	case j.State == "working":
		c.Working += n
	case j.RetryAt.After(now):
		c.Resting += n
	default:
		c.Pending += n
	}
}

// Count counts jobs by their state at now.
func Count(jobs []Job, now time.Time) (c Counts) {
	for i := range jobs {
		c.Add(&jobs[i], 1, now)
	}
	return c
}

// Agent describes the process.
type Agent struct {
	Host        string        `json:"host"`
	PID         int           `json:"pid"`
	Version     string        `json:"version"`
	Started     time.Time     `json:"started"`
	Drivers     int           `json:"drivers"`
	Claims      int           `json:"claims"`
	LostCount   int           `json:"lostLeases"`
	StorePath   string        `json:"storePath"`
	StoreSize   int64         `json:"storeBytes"`
	History     int           `json:"historyRecords"`
	HistoryKept time.Duration `json:"historyKept,omitempty"` // retention of the history; 0 = unknown
	RSS         int64         `json:"rssBytes"`
	// CPU is the recent processor use in percent of one processor, at least 0.05; 0 means unknown.
	CPU       float64 `json:"cpuPercent,omitempty"`
	Namespace string  `json:"namespace"`
	// Draining is the time since which the agent claims nothing new; zero means that it claims. Busy
	// is the number of running jobs, claims to settle and results to deliver.
	Draining time.Time `json:"draining,omitzero"`
	Busy     int       `json:"busy"`
	// Controllers is the role of the agent for Repositories and Connections.
	Controllers Controllers `json:"controllers"`
	// Sources is its role for sources; nil = an older agent, which has none.
	Sources *Controllers `json:"sources,omitempty"`
	// Notifications are the targets of notifications.
	Notifications []notify.Status `json:"notifications,omitempty"`
	// Warnings are about the agent itself: a part that is off, a config file that was refused.
	Warnings []string `json:"warnings,omitempty"`
}

// Connection is an unhealthy Connection: the Git host rejects its credentials, or its spec is
// invalid.
type Connection struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Checked   time.Time `json:"checked"`
	Message   string    `json:"message,omitempty"`
}

// API describes the server that the agent watches.
type API struct {
	Server   string        `json:"server"` // URL, or "embedded"
	Embedded bool          `json:"embedded"`
	Insecure bool          `json:"insecure,omitempty"`
	Up       bool          `json:"up"`
	Synced   bool          `json:"synced"`
	Since    time.Time     `json:"since"`   // of the current Up value
	Latency  time.Duration `json:"latency"` // of the last call
	Error    string        `json:"error,omitempty"`
	// Next is the time of the next attempt while the server is not Up, and Tries is the number of
	// failed attempts; zero means unknown.
	Next  time.Time `json:"next,omitzero"`
	Tries int       `json:"tries,omitempty"`
}

// Job is one row of the job list, and the head of its detail.
type Job struct {
	UID         string    `json:"uid"`
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Repository  string    `json:"repository"`
	Action      string    `json:"action"`
	Detail      string    `json:"detail,omitempty"` // "full", "incr", "#481"
	State       string    `json:"state"`            // pending working success warning error cancelled dead
	Message     string    `json:"message,omitempty"`
	WaitReason  string    `json:"waitReason,omitempty"` // why this agent does not claim a pending job
	RetryAt     time.Time `json:"retryAt,omitzero"`     // time of the next attempt of a pending job
	Priority    string    `json:"priority,omitempty"`   // "0" to "9"; "" = that of its repository
	Undelivered time.Time `json:"undelivered,omitzero"` // since when the result waits for the API
	Progress    float64   `json:"progress"`             // 0 to 100; below 0 = unknown
	Done        int64     `json:"done"`
	Total       int64     `json:"total"`
	Created     time.Time `json:"created"`
	Started     time.Time `json:"started,omitzero"`
	Finished    time.Time `json:"finished,omitzero"`
	Owner       string    `json:"owner,omitempty"` // "this", "other", ""
	LeaseUntil  time.Time `json:"leaseUntil,omitzero"`
	RenewAt     time.Time `json:"renewAt,omitzero"`
	Attempt     int       `json:"attempt"`
	MaxAttempt  int       `json:"maxAttempts"`
	RefFrom     string    `json:"refFrom,omitempty"`
	RefTo       string    `json:"refTo,omitempty"`
	Branch      string    `json:"branch,omitempty"`
	Summary     []Summary `json:"summary,omitempty"`
	Errors      []string  `json:"errors,omitempty"`
	Warnings    []string  `json:"warnings,omitempty"`
	URLs        []Link    `json:"urls,omitempty"`
	Commit      *Commit   `json:"commit,omitempty"`  // of RefTo; nil = unknown
	Transfer    Transfer  `json:"transfer,omitzero"` // from Git servers; zero = none
	Steps       []Step    `json:"steps,omitempty"`   // of the run by this agent, in order
	Log         []Event   `json:"log,omitempty"`     // the last 200 lines of a job of this agent
}

// Percent returns the progress of a job; while its total is unknown that of what it receives. Below
// 0 = unknown.
func (j Job) Percent() float64 {
	if j.Progress < 0 && j.Transfer.Phase != "" && j.Finished.IsZero() {
		return float64(j.Transfer.Percent)
	}
	return j.Progress
}

// Commit describes a Git commit for people.
type Commit = state.Commit

// Transfer is what a job receives from Git servers.
type Transfer = transfer.State

// Step is one part of a run.
type Step = jobs.Step

// Link is a web address in the status of a job.
type Link struct {
	Name string `json:"name"` // "new pull request", "compare", "source", "repository"
	URL  string `json:"url"`
}

// Summary counts what a job did to one kind of resource.
type Summary struct {
	Kind   string `json:"kind"`
	Total  int64  `json:"total"`
	Create int64  `json:"create"`
	Update int64  `json:"update"`
	Delete int64  `json:"delete"`
	Noop   int64  `json:"noop"`
	Warn   int64  `json:"warning"`
	Error  int64  `json:"error"`
}

// Repo is one row of the repository list.
type Repo struct {
	UID       string    `json:"uid,omitempty"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Title     string    `json:"title"`
	Type      string    `json:"type"`
	URL       string    `json:"url"`
	Mirrors   string    `json:"mirrors,omitempty"` // other URLs of the same repository, with blanks between them
	Branch    string    `json:"branch"`
	Pinned    string    `json:"pinned,omitempty"`   // the commit, which is pulled whatever the branch becomes
	ReadOnly  string    `json:"readOnly,omitempty"` // why no job may write to Git
	Path      string    `json:"path"`
	Target    string    `json:"target"`
	Sink      string    `json:"sink,omitempty"` // directory that is written instead of the API
	Enabled   bool      `json:"enabled"`
	Healthy   bool      `json:"healthy"`
	Checked   time.Time `json:"checked,omitzero"`
	Health    string    `json:"health,omitempty"` // why not healthy, or which mirror serves
	SyncState string    `json:"syncState"`
	SyncJob   string    `json:"syncJob,omitempty"`
	LastRef   string    `json:"lastRef,omitempty"`
	Synced    time.Time `json:"synced,omitzero"`
	Next      time.Time `json:"next,omitzero"`       // next reconcile by this agent; zero = unknown
	Suspended bool      `json:"suspended,omitempty"` // on this agent, until Next or without end
	Resources int64     `json:"resources"`
	Contents  []Content `json:"contents,omitempty"` // Resources by kind
	// Runs holds one letter an hour for the last 24 hours, oldest first: '.' nothing, 'c' cancelled,
	// 's' success, 'w' warning, 'e' error.
	Runs string `json:"runs,omitempty"`

	Interval     time.Duration `json:"interval,omitempty"`   // of pulls
	RolledBack   bool          `json:"rolledBack,omitempty"` // pinned by 'limpet repo rollback'
	Connection   string        `json:"connection,omitempty"`
	Webhook      *Webhook      `json:"webhook,omitempty"`      // nil = none
	TokenEnds    time.Time     `json:"tokenEnds,omitzero"`     // expiry of its minted token
	MaxResources int64         `json:"maxResources,omitempty"` // 0 = no limit
	Conditions   []Condition   `json:"conditions,omitempty"`
	// Unread lists the first files that the last pull could not use, if this host made that pull; nil
	// = none.
	Unread      *state.Unread `json:"unread,omitempty"`
	Deleting    time.Time     `json:"deleting,omitzero"`
	DeleteError string        `json:"deleteError,omitempty"` // why its deletion does not finish
}

// maxUnread bounds the files of Repo.Unread.
const maxUnread = 20

// Content is the number of objects of one kind that a repository manages.
type Content struct {
	Resource string `json:"resource"` // "folders", "dashboards"
	Count    int64  `json:"count"`
}

// Webhook is the webhook of a repository at its host.
type Webhook struct {
	ID        string    `json:"id"`
	LastEvent time.Time `json:"lastEvent,omitzero"`
}

// Event is one line of the event list and of a job's log.
type Event struct {
	At    time.Time `json:"at"`
	Level string    `json:"level"` // info, warn, error
	Job   string    `json:"job,omitempty"`
	UID   string    `json:"uid,omitempty"` // of the job; not in its log
	Repo  string    `json:"repository,omitempty"`
	Text  string    `json:"text"`
}

// States of the controllers of an agent.
const (
	ControllersActive  = "active"  // they work
	ControllersStandby = "standby" // another agent holds the Lease
	ControllersOff     = "off"
)

// Controllers is the role of an agent for Repositories and Connections.
type Controllers struct {
	Mode   string `json:"mode"`             // on, off or auto, as configured
	State  string `json:"state"`            // ControllersActive, ControllersStandby or ControllersOff
	Holder string `json:"holder,omitempty"` // identity of the agent that holds the Lease; "" = no Lease, or none known
}

// HolderName returns the name of the agent that holds the Lease, for people.
func (c Controllers) HolderName() string {
	name := c.Holder
	if i := strings.LastIndexByte(name, '_'); i > 0 {
		name = name[:i]
	}
	return text.Clean(name)
}

// Text describes the role in a few words that follow "repositories: ".
func (c Controllers) Text() string { return c.TextOf("controllers") }

// TextOf is Text for the role that another flag gives.
func (c Controllers) TextOf(flag string) string {
	switch {
	case c.State == ControllersOff:
		return "not managed by this agent (--" + flag + " " + text.Clean(c.Mode) + ")"
	case c.State == ControllersStandby && c.Holder == "":
		return "waiting for the controller lease"
	case c.State == ControllersStandby:
		return "standby; active: " + c.HolderName()
	}
	return "managed by this agent"
}

// Rows of sources are those of package source.
type (
	Source    = source.Source
	Artifact  = source.Artifact
	Include   = source.Include
	Condition = source.Condition
)

// States of a Source.
const (
	SourceReady   = source.Ready
	SourceWorking = source.Working
	SourceFailed  = source.Failed
	SourceStalled = source.Stalled
	SourcePending = source.Pending
	SourceUnknown = source.Unknown
)

// ShortRevision returns a revision with its commit in seven letters: main@5d41aa9.
func ShortRevision(revision string) string { return source.ShortRevision(revision) }

// Issue is something that is wrong, or a warning. It decides the exit code of 'limpet status' and
// the heartbeat.
type Issue struct {
	Namespace string
	Text      string
	Next      string // arguments of the next command; "" = the text has it
	Failing   bool   // else it is a warning
}

// Word is the state of the agent in a word; ok says that nothing needs attention.
func (s *Snapshot) Word(ok bool) string {
	switch {
	case !s.API.Up:
		return "offline"
	case !s.Agent.Draining.IsZero():
		return "drained"
	case !ok:
		return "degraded"
	}
	return "ok"
}

const maxProblem = 100 // bytes of the problem of a source

// Issues returns what is wrong with the agent and its objects.
func (s *Snapshot) Issues() (out []Issue) {
	switch {
	case s.Problem != "":
		out = append(out, Issue{Text: s.Problem, Failing: true})
	case !s.API.Up:
		out = append(out, Issue{Text: "api: " + s.API.Error, Failing: true})
	}
	for _, repo := range s.Repos {
		out = append(out, repo.Issues()...)
	}
	for i := range s.Sources {
		from := &s.Sources[i]
		for _, c := range from.Conditions {
			if c.Type == api.ConditionSinkReady && c.Status == "False" && !from.Suspended {
				out = append(out, Issue{from.Namespace, fmt.Sprintf("the sink directory of source %s is not up to date: %s", from.Name,
					text.Line(c.Message, maxProblem)), "source show " + from.Name + from.Flag(), true})
			}
		}
		if from.Unready() {
			out = append(out, Issue{from.Namespace, fmt.Sprintf("source %s is not ready: %s", from.Name,
				text.Line(strings.Trim(from.Reason+": "+text.WithoutLocalPorts(from.Message), ": "), maxProblem)),
				"source show " + from.Name + from.Flag(), from.Bad()})
		}
	}
	for _, job := range s.Jobs {
		if job.WaitReason != "" {
			out = append(out, Issue{job.Namespace, fmt.Sprintf("job %s waits: %s", job.Name, job.WaitReason), "job show " + job.Name, true})
		}
	}
	return out
}

// Issues returns why the repository fails, or has unread files; and that it is suspended, or that
// its last pull has other warnings.
func (r Repo) Issues() (out []Issue) {
	add := func(failing bool, next, format string, args ...any) {
		out = append(out, Issue{r.Namespace, fmt.Sprintf(format, args...), "repo " + next + " " + r.Name, failing})
	}
	cause := ""
	for _, c := range r.Conditions {
		switch {
		case c.Type == api.ConditionSyncStatus && c.Message != "":
			cause = ": " + c.Message
		case c.Type == api.ConditionSinkReady && c.Status == "False":
			add(true, "show", "the sink directory of %s is not up to date: %s", r.Name, c.Message)
		case c.Type == api.ConditionDrifted && c.Status == "True":
			add(false, "diff", "%s has drifted: %s", r.Name, c.Message)
		}
	}
	switch {
	case r.DeleteError != "":
		add(true, "show", "%s cannot be deleted: %s", r.Name, r.DeleteError)
	case r.Suspended:
		add(false, "resume", "%s is suspended on this agent", r.Name)
	case r.Failing():
		add(true, "show", "%s is not healthy: %s", r.Name, r.Health)
	case r.SyncState == api.StateError:
		add(true, "show", "the last pull of %s ended in error%s", r.Name, cause)
	case r.Unread.Count() > 0:
		add(true, "show", "unread files in %s: %d", r.Name, r.Unread.Count())
	case r.SyncState == api.StateWarning:
		add(false, "show", "the last pull of %s ended in warning%s", r.Name, cause)
	}
	if r.Pinned != "" && r.RolledBack {
		out = append(out, Issue{r.Namespace, fmt.Sprintf("%s is pinned to %s", r.Name, text.ShortRef(r.Pinned)),
			"repo set " + r.Name + " --unpin", false})
	}
	return out
}
