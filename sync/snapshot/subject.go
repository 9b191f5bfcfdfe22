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

// Finding is the result of one check.
type Finding struct {
	Name   string
	Result string // such as repos.StepOK
	Detail string
}
