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

// Finding is the result of one check.
type Finding struct {
	Name   string
	Result string // such as repos.StepOK
	Detail string
}
