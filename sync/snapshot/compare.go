package snapshot

// CompareQuery asks what has changed in Git from one commit to another, below the
// path of a repository.
type CompareQuery struct {
	Namespace  string
	Repository string
	From       string // "" = nothing was there before
	To         string
	Path       string // of the file whose content is compared; "" = none
}

// Comparison is what has changed.
type Comparison struct {
	Files []FileChange `json:"files"`          // by path; the first MostFiles
	All   int          `json:"all"`            // how many there are
	Text  *TextChange  `json:"text,omitempty"` // of the file that was asked for
}

// FileChange is one file that has changed.
type FileChange struct {
	Type string `json:"type"`           // added, modified, deleted or renamed
	Path string `json:"path"`           // below the path of the repository
	From string `json:"from,omitempty"` // what a renamed file was called
}

// TextChange is how a file has changed, as the pieces around what is different.
type TextChange struct {
	Form    string     `json:"form,omitempty"` // in which form it was compared, or why it was not
	Added   int        `json:"added"`          // lines
	Deleted int        `json:"deleted"`
	Lines   []TextLine `json:"lines,omitempty"`
	More    int        `json:"more,omitempty"` // lines that are left out at the end
}

// TextLine is one line of a piece, or the head of one.
type TextLine struct {
	Op   string `json:"op"` // "-" gone, "+" new, " " as before, "@" the head of a piece
	Text string `json:"text"`
}

// Bounds of a comparison.
const (
	// MaxFiles are listed; who has changed more looks with git.
	MaxFiles = 1000
	// MaxFileBytes is the size of a file whose content is compared.
	MaxFileBytes = 1 << 20
)
