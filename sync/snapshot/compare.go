package snapshot

// CompareQuery selects the changes between two commits below the path of a repository.
type CompareQuery struct {
	Namespace  string
	Repository string
	From       string // "" = the empty tree
	To         string
	Path       string // file to compare; "" = only list files
}

// Comparison is the difference between two commits.
type Comparison struct {
	Files []FileChange `json:"files"`          // by path; the first MaxFiles
	All   int          `json:"all"`            // number of changed files
	Text  *TextChange  `json:"text,omitempty"` // of the requested file
}

// FileChange is one file that has changed.
type FileChange struct {
	Type string `json:"type"`           // added, modified, deleted or renamed
	Path string `json:"path"`           // below the path of the repository
	From string `json:"from,omitempty"` // old path of a renamed file
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
