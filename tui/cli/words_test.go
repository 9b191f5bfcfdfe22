package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// privateWords are words that no text for users has: programs are no persons, and there is a
// standard term for each.
var privateWords = regexp.MustCompile(`(?i)\b(rests|resting|ill|in order|looked after|gives way|fallen silent|asked for|leads nowhere|picture|` +
	`wants|who are you|all is well|in its place|meant as it stands|breaks none|nobody|a person)\b`)

// privateKept are the texts that have one for a reason.
var privateKept = map[string]string{
	"state/claims.go: resting": "a phase in the state file",
}

// testSupport are the folders whose texts no user reads.
var testSupport = []string{"testdata", "sync/testenv", "tui/cli/clitest"}

// TestPrivateWords reads the string literals of the program, of struct tags the help, and the texts
// of package help.
func TestPrivateWords(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	const root = "../.."
	judge := func(path, text string) {
		path = strings.TrimPrefix(path, root+"/")
		if word := privateWords.FindString(text); word != "" {
			if seen[path+": "+text] = true; privateKept[path+": "+text] == "" {
				t.Errorf("%s: %q in %q", path, word, text)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() && slices.Contains(testSupport, strings.TrimPrefix(path, root+"/")):
			return map[bool]error{true: err, false: fs.SkipDir}[err != nil]
		case strings.HasPrefix(path, root+"/tui/cli/help/") && !d.IsDir() && filepath.Ext(path) != ".go":
			data, err := os.ReadFile(path)
			for line := range strings.Lines(string(data)) {
				judge(path, line)
			}
			return err
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field:
				if n.Tag != nil {
					tag, _ := strconv.Unquote(n.Tag.Value)
					judge(path, reflect.StructTag(tag).Get("help"))
					n.Tag = nil
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					judge(path, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for text := range privateKept {
		if !seen[text] {
			t.Errorf("no text is %q", text)
		}
	}
}
