package snapshot

// Kinds of Subject, as 'limpet get' calls them.
const (
	SubjectRepository = "repository"
	SubjectSource     = "gitrepository"
	SubjectJob        = "job" // of the queue, else of the history
)

// Subject is one object that a person asks about.
type Subject struct {
	Kind      string
	Namespace string
	Name      string
	UID       string // of what Name means; that may be another's by now. "" = whatever has the name
}

// Finding is one thing that a test has looked at.
type Finding struct {
	Name   string
	Result string // of repos.StepOK and its kin
	Detail string
}
