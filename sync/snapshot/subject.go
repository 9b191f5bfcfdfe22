package snapshot

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
}

// Edit is one step of an edit of an object: without Before the text of the object is read; else the change to After is
// checked, and with Apply written.
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
