// Package pr renders the comment on a pull request: what its merge would change, and which files
// are not valid. It is pure. Titles, paths and errors are foreign: they are escaped and cut.
package pr

import (
	"fmt"
	"net/url"
	"strings"

	"limpet/sync/text"
)

// File is one resource file that a pull request changes.
type File struct {
	Action   string // added, modified, deleted or renamed
	Kind     string // "" = it could not be read
	Title    string
	Path     string // in the directory of the Repository
	Current  string // page of what the API has now; "" = none
	Preview  string // page that shows the file; "" = none
	Problems []string
}

// Review is the result for a pull request.
type Review struct {
	Repository string // namespace/name
	Commit     string
	Files      []File
	Unchecked  int  // files beside Files
	Fork       bool // its branch is in another repository
	Parsed     bool // the API has no dry run: files were parsed alone
}

// Bounds of a comment.
const (
	maxRows  = 10  // of each table; source: Grafana
	maxCell  = 200 // bytes of a title or a path
	maxIssue = 253 // bytes of a problem, and the sign of a cut; source: Grafana has 256
	maxLink  = 1500
	// maxFiles and maxText end the tables, in bytes of the comment. Bitbucket takes 32 KiB, the others
	// 64 and more.
	maxFiles = 16_000
	maxText  = 24_000
)

// Markdown returns the comment.
func (r Review) Markdown() string {
	var b strings.Builder
	shown, all := 0, len(r.Files)+r.Unchecked
	switch all {
	case 0:
		b.WriteString("This pull request changes no resource file.\n")
	case 1:
		f := r.Files[0]
		fmt.Fprintf(&b, "This pull request changes one resource file: %s, %s.\n", cell(f.Path, maxCell), f.Action)
		if f.Kind != "" {
			fmt.Fprintf(&b, "\n%s %s%s: %s.\n", cell(f.Kind, maxCell), link(cell(f.Title, maxCell), f.Current), preview(f, " (", ")"), r.status(f))
		}
	default:
		fmt.Fprintf(&b, "This pull request changes %d resource files.\n\n", all)
		b.WriteString("| Action | Kind | Resource | File | Preview | Status |\n|---|---|---|---|---|---|\n")
		for _, f := range r.Files[:min(len(r.Files), maxRows)] {
			if b.Len() > maxFiles {
				break
			}
			shown++
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", f.Action, cell(f.Kind, maxCell), link(cell(f.Title, maxCell), f.Current),
				cell(f.Path, maxCell), preview(f, "", ""), r.status(f))
		}
		more(&b, len(r.Files)-shown, "file", "")
		more(&b, r.Unchecked, "file", ", not checked")
	}
	n := 0
	shown = 0
	for _, f := range r.Files {
		for _, problem := range f.Problems {
			if n++; n == 1 {
				b.WriteString("\n| File | Validation issue |\n|---|---|\n")
			}
			if n <= maxRows && b.Len() <= maxText {
				shown++
				fmt.Fprintf(&b, "| %s | %s |\n", cell(f.Path, maxCell), cell(problem, maxIssue))
			}
		}
	}
	more(&b, n-shown, "issue", "")
	if r.Fork {
		b.WriteString("\nPreviews are not supported for pull requests of forks.\n")
	}
	fmt.Fprintf(&b, "\n---\nChecked commit %s for repository %s.", cell(text.ShortRef(r.Commit), maxCell), cell(r.Repository, maxCell))
	if r.Parsed {
		b.WriteString(" The API does not support dry runs: files were validated by parse only.")
	}
	return b.String()
}

// more is the line that n are left out.
func more(b *strings.Builder, n int, what, why string) {
	if n > 0 {
		fmt.Fprintf(b, "\nand %s%s\n", text.Plural(n, "more "+what), why)
	}
}

func (r Review) status(f File) string {
	switch {
	case len(f.Problems) > 0:
		return "not valid"
	case r.Parsed:
		return "parsed"
	}
	return "valid"
}

func preview(f File, before, after string) string {
	if f.Preview == "" {
		return ""
	}
	return before + link("preview", f.Preview) + after
}

// link writes a link; the text is escaped, the page percent-encoded. Without a page, or with one
// that is too long, it is the text.
func link(text, page string) string {
	if page == "" || len(page) > maxLink {
		return text
	}
	return "[" + text + "](" + page + ")"
}

// cell makes foreign text safe in a line or a cell of Markdown: it is one line, shows each
// character as it is, and mentions, links and references do not work.
func cell(s string, max int) string {
	var b strings.Builder
	s = text.Line(s, max)
	for i, r := range s {
		switch {
		case r == '&':
			b.WriteString("&#38;\u200b") // &12 is a reference
		case r == '<' || r == '|': // a cell ends at a bar even after a backslash on some hosts
			fmt.Fprintf(&b, "&#%d;", r)
		case strings.ContainsRune("@#!~$%", r), r == '-' && i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '9': // GH-12
			// Hosts find mentions and references in the text that a reader sees: an invisible space ends
			// them.
			b.WriteString(`\` + string(r) + "\u200b")
		case strings.ContainsRune("\\`*_{}[]()>+-.:", r):
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Current returns the page of a resource in Grafana.
func Current(base, kind, name, title string) string {
	path := "/d/"
	if kind == "Folder" {
		path = "/dashboards/f/"
	}
	slug := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.TrimSuffix(base+path+url.PathEscape(name)+"/"+strings.Join(slug, "-"), "/")
}

// Preview returns the page of Grafana that shows a file as it is in a branch.
func Preview(base, repository, path, branch, pullRequest string) string {
	path = strings.ReplaceAll(url.PathEscape(path), "%2F", "/")
	query := url.Values{"ref": {branch}, "pull_request_url": {pullRequest}}
	return base + "/admin/provisioning/" + url.PathEscape(repository) + "/dashboard/preview/" + path + "?" + query.Encode()
}
