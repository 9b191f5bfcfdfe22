// Package snapshot is the live picture of an agent: plain data that the agent
// makes, the socket carries as JSON, and the dashboard and the commands show;
// and the forms that texts take for a person.
package snapshot

import "time"

// Snapshot is the whole picture at one moment. It is immutable once published.
type Snapshot struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Agent  Agent     `json:"agent"`
	API    API       `json:"api"`
	Jobs   []Job     `json:"jobs"` // live ones, then those finished in the last 60 s; the first 1000
	Counts Counts    `json:"counts"`
	Repos  []Repo    `json:"repos"` // by namespace and name
	Events []Event   `json:"events"`
	// Sources are by namespace and name. SourcesError is why they are not shown
	// although the API has such things; "" = they are, or it has not.
	Sources      []Source `json:"sources,omitempty"`
	SourcesError string   `json:"sourcesError,omitempty"`
	// UnhealthyConnections are those that are not healthy, by namespace and name.
	UnhealthyConnections []Connection `json:"unhealthyConnections,omitempty"`
	// AsOf is when jobs and repositories were like this, if they are those of
	// the last run and the API has not shown the present ones yet.
	AsOf    time.Time `json:"asOf,omitzero"`
	Problem string    `json:"problem,omitempty"` // what a person has to act on, with the next command
}

// Counts tells how many jobs there are altogether in each part of their life.
type Counts struct {
	Working     int `json:"working"` // by this agent
	Pending     int `json:"pending"`
	Resting     int `json:"resting"`     // between two attempts
	Elsewhere   int `json:"elsewhere"`   // claimed by another agent
	Done        int `json:"done"`        // in the last 60 s
	Undelivered int `json:"undelivered"` // done by this agent; the API has not taken the result yet
}

// All is the number of jobs.
func (c Counts) All() int {
	return c.Working + c.Pending + c.Resting + c.Elsewhere + c.Done + c.Undelivered
}

// Add counts one more job, as it is at that time.
func (c *Counts) Add(j *Job, now time.Time) { *c.of(j, now)++ }

// Drop counts one job less.
func (c *Counts) Drop(j *Job, now time.Time) { *c.of(j, now)-- }

func (c *Counts) of(j *Job, now time.Time) *int {
	switch {
	case !j.Finished.IsZero():
		return &c.Done
	case !j.Undelivered.IsZero():
		return &c.Undelivered
	case j.Owner == "other":
		return &c.Elsewhere
	case j.State == "working":
		return &c.Working
	case j.RetryAt.After(now):
		return &c.Resting
	}
	return &c.Pending
}

// Count counts jobs as they are at that time.
func Count(jobs []Job, now time.Time) (c Counts) {
	for i := range jobs {
		c.Add(&jobs[i], now)
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
	HistoryKept time.Duration `json:"historyKept,omitempty"` // how long records are kept; 0 = not known
	RSS         int64         `json:"rssBytes"`
	// CPU is what the process has taken lately, in percent of one processor and never
	// below a twentieth; 0 = not known.
	CPU       float64 `json:"cpuPercent,omitempty"`
	Namespace string  `json:"namespace"`
	// Draining is since when nothing new is claimed; zero = it is. Busy counts
	// what is not at its end yet: running jobs, claims to settle, results to send.
	Draining time.Time `json:"draining,omitzero"`
	Busy     int       `json:"busy"`
	// Controllers is who looks after Repositories and Connections.
	Controllers Controllers `json:"controllers"`
}

// API describes the server that the agent watches.
type API struct {
	Server   string        `json:"server"` // URL, or "embedded"
	Embedded bool          `json:"embedded"`
	Insecure bool          `json:"insecure,omitempty"`
	Up       bool          `json:"up"`
	Synced   bool          `json:"synced"`
	Since    time.Time     `json:"since"`   // of the present Up value
	Latency  time.Duration `json:"latency"` // of the last call
	Error    string        `json:"error,omitempty"`
	// Next is when the server is asked again while it is not Up, and Tries how often it
	// was asked in vain; zero = not known.
	Next  time.Time `json:"next,omitzero"`
	Tries int       `json:"tries,omitempty"`
}

// Job is one row of the job list and the head of its detail.
type Job struct {
	UID         string    `json:"uid"`
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Repository  string    `json:"repository"`
	Action      string    `json:"action"`
	Detail      string    `json:"detail,omitempty"` // "full", "incr", "#481"
	State       string    `json:"state"`            // pending working success warning error cancelled dead
	Message     string    `json:"message,omitempty"`
	WaitReason  string    `json:"waitReason,omitempty"` // why this agent does not take a pending job
	RetryAt     time.Time `json:"retryAt,omitzero"`     // of a pending job that is tried again then
	Priority    string    `json:"priority,omitempty"`   // "0" to "9"; empty = that of its repository
	Undelivered time.Time `json:"undelivered,omitzero"` // the job is done, its result waits for the API since then
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
	Commit      *Commit   `json:"commit,omitempty"` // RefTo; nil = not known
	Steps       []Step    `json:"steps,omitempty"`  // of the run of this agent, one behind the other
	Log         []Event   `json:"log,omitempty"`    // the last 200 lines of a job of this agent
}

// Commit is what a person tells of a commit in Git.
type Commit struct {
	Subject string    `json:"subject,omitempty"`
	Author  string    `json:"author,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// Step is one part of a run.
type Step struct {
	Text string        `json:"text"`
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took,omitempty"` // 0 while it goes on
}

// Link is a web address that a job has led to, the most telling first.
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
	Path      string    `json:"path"`
	Target    string    `json:"target"`
	Enabled   bool      `json:"enabled"`
	Healthy   bool      `json:"healthy"`
	Checked   time.Time `json:"checked,omitzero"`
	Health    string    `json:"health,omitempty"` // why not healthy, or which mirror serves
	SyncState string    `json:"syncState"`
	SyncJob   string    `json:"syncJob,omitempty"`
	LastRef   string    `json:"lastRef,omitempty"`
	Synced    time.Time `json:"synced,omitzero"`
	Next      time.Time `json:"next,omitzero"`       // when this agent looks at it next, if that is known
	Suspended bool      `json:"suspended,omitempty"` // a person wants this agent to leave it alone, until Next or for ever
	Resources int64     `json:"resources"`
	Contents  []Content `json:"contents,omitempty"` // what Resources are, by their kind
	// Runs holds one letter an hour for the last 24 hours, oldest first:
	// '.' nothing, 'c' cancelled, 's' success, 'w' warning, 'e' error.
	Runs string `json:"runs,omitempty"`

	Interval     time.Duration `json:"interval,omitempty"` // of pulls, as its spec says
	Connection   string        `json:"connection,omitempty"`
	Webhook      *Webhook      `json:"webhook,omitempty"`      // nil = none was made
	TokenEnds    time.Time     `json:"tokenEnds,omitzero"`     // of the one that was minted for it
	MaxResources int64         `json:"maxResources,omitempty"` // 0 = no limit
	Conditions   []Condition   `json:"conditions,omitempty"`
	Deleting     time.Time     `json:"deleting,omitzero"`
	DeleteError  string        `json:"deleteError,omitempty"` // of its deletion
}

// Content counts the objects of one kind that a repository has made.
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
	Repo  string    `json:"repository,omitempty"`
	Text  string    `json:"text"`
}
