package snapshot

import (
	"slices"
	"time"

	"limpet/state"
)

// Verb names an action of a dashboard.
type Verb string

// Verbs of an Action.
const (
	Pull     Verb = "pull"      // incremental; cheap and harmless when repeated
	PullFull Verb = "pull-full" // compares every file
	Cancel   Verb = "cancel"    // stops a job, or deletes a pending one
	Retry    Verb = "retry"     // ends the backoff of a job, or runs a finished one again
	Suspend  Verb = "suspend"   // suspends a repository for this agent for SuspendFor
	Resume   Verb = "resume"    // ends the suspension
	Drain    Verb = "drain"     // finish running jobs, claim no new ones
	Undrain  Verb = "undrain"   // claim jobs again
	Hurry    Verb = "hurry"     // retries an unavailable API now

	Reconcile     Verb = "reconcile"      // requests a reconciliation of a source
	SuspendSource Verb = "suspend-source" // sets suspend in the spec of the source
	ResumeSource  Verb = "resume-source"  // clears it

	CreateJob Verb = "create-job" // creates a job with Action.Spec
)

// SuspendFor is the duration of a suspension: one day, so that a forgotten one ends by itself.
const SuspendFor = 24 * time.Hour

// Action is one request of a dashboard to the agent, sent once.
type Action struct {
	Verb      Verb
	Namespace string
	Name      string // of the repository or the job; "" for the agent itself
	UID       string // of the object when the key was pressed, in case the name is reused; "" for new jobs
	Spec      string `json:",omitempty"` // of a new job, as JSON
	Source    string `json:",omitempty"` // see Subject
}

// Kinds of a Subject, as in 'limpet get'.
const (
	SubjectRepository = "repository"
	SubjectSource     = "gitrepository"
	SubjectJob        = "job" // in the queue, else in the history
)

// Subject names one object for inspection.
type Subject struct {
	Kind      string
	Namespace string
	Name      string
	UID       string // guards against a new object of the same name; "" = any
	Source    string `json:",omitempty"` // kind of a source; "" = GitRepository
}

// Edit is one step of an edit of an object: without Before the text of the object is read; else the
// change to After is checked, and with Apply written.
type Edit struct {
	Subject
	Before, After string
	Apply         bool
}

// Edited is the result of a step.
type Edited struct {
	Text string // of the object as it is
	Diff TextChange
}

// RepoFile is a file of a repository. Its UID is that of the object that is made of it.
type RepoFile struct {
	Path   string `json:"path"`
	Kind   string `json:"kind,omitempty"`
	Title  string `json:"title,omitempty"`
	UID    string `json:"uid,omitempty"`
	Folder string `json:"folder,omitempty"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is not synced
}

// States of a RepoFile.
const (
	FileSynced  = "synced"
	FileUnread  = "unread"
	FileLeftOut = "left-out"
	FileDrifted = "drifted" // in the last check, which an hour may have passed since
)

// FileQuery asks for the files of a repository at the commit that was synced last.
type FileQuery struct {
	Subject
	Path string // of the file to read; "" = list them all
	// Drift asks for the objects that differ from the API, or for the difference of one, instead.
	Drift bool
}

// FileList is the answer.
type FileList struct {
	Commit string     `json:"commit"`
	Files  []RepoFile `json:"files,omitempty"` // by path; the first MaxRepoFiles
	All    int        `json:"all,omitempty"`   // number of files
	Text   string     `json:"text,omitempty"`  // of the file that was asked for
	// Diff is the difference of the object that was asked for.
	Diff *TextChange `json:"diff,omitempty"`
}

// MaxRepoFiles bounds the listed files of a repository.
const MaxRepoFiles = 20_000

// Finding is the result of one check.
type Finding struct {
	Name   string
	Result string // such as repos.StepOK
	Detail string
}

// CompareQuery selects the changes between two commits below the path of a repository, or between
// two artifacts.
type CompareQuery struct {
	Namespace  string
	Repository string
	From       string // "" = the empty tree
	To         string
	Path       string // file to compare; "" = only list files
	// Source says that From and To are revisions of the artifacts of the source of that name; From ""
	// is the one before To. Kind is its kind, "" = GitRepository.
	Source bool
	Kind   string `json:",omitempty"`
}

// Comparison is the difference between two commits.
type Comparison struct {
	Files []FileChange `json:"files"`          // by path; the first MaxFiles
	All   int          `json:"all"`            // number of changed files
	Text  *TextChange  `json:"text,omitempty"` // of the requested file
	// From and To are the compared revisions of artifacts; From "" = the empty tree.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// FileChange is one file that has changed.
type FileChange struct {
	Type string `json:"type"`           // added, modified, deleted or renamed
	Path string `json:"path"`           // below the path of the repository
	From string `json:"from,omitempty"` // old path of a renamed file
	// Diff is the difference of a file of an artifact, where all were asked for.
	Diff *TextChange `json:"diff,omitempty"`
}

// TextChange is the difference in one file, as hunks.
type TextChange struct {
	Form    string     `json:"form,omitempty"` // compared form, or why it was not compared
	Added   int        `json:"added"`          // lines
	Deleted int        `json:"deleted"`
	Lines   []TextLine `json:"lines,omitempty"`
	More    int        `json:"more,omitempty"` // lines omitted at the end
}

// TextLine is one line or the header of a hunk.
type TextLine struct {
	Op   string `json:"op"` // "-" deleted, "+" added, " " context, "@" header of a hunk
	Text string `json:"text"`
}

// Bounds of a comparison.
const (
	// MaxFiles bounds the listed files.
	MaxFiles = 1000
	// MaxFileBytes bounds the size of a compared file.
	MaxFileBytes = 1 << 20
)

// HistoryRow is one row of the history, as in the answer to a brief query.
type HistoryRow = state.Record

// HistoryQuery selects rows of the history.
type HistoryQuery = state.Query

// HistoryPage is one page of the history, newest first.
type HistoryPage struct {
	Rows []HistoryRow
	Next string // Before of the query for the next page; "" = last page
	All  int    // number of records in the history
}

// ExpandStates returns the states that the words of a person select: "error" includes dead jobs,
// because they ended with an error.
func ExpandStates(words []string) []string {
	if slices.Contains(words, "error") && !slices.Contains(words, "dead") {
		return append(slices.Clone(words), "dead")
	}
	return words
}
