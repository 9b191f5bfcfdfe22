package e2e

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/sync/testenv/ptytest"
)

var pictures = flag.Bool("pictures", false, "write the pictures of the screens anew, into testdata/pictures")

// pictureLimit bounds a picture, in bytes: README loads them.
const pictureLimit = 40 << 10

// steady makes what differs from one run to the next the same, letter for letter.
func steady(h *home, host string) func(string) string {
	as := func(pattern, text string) func(string) string {
		re := regexp.MustCompile(pattern)
		return func(line string) string {
			return re.ReplaceAllStringFunc(line, func(found string) string {
				return (text + strings.Repeat(" ", len(found)))[:len(found)]
			})
		}
	}
	digits := regexp.MustCompile(`\bpid +[0-9]+`)
	pid := func(line string) string { // which stands in a column too
		return digits.ReplaceAllStringFunc(line, func(found string) string {
			n := len(strings.TrimLeft(found, "pid "))
			return found[:len(found)-n] + "4121000000"[:min(n, 10)]
		})
	}
	changes := []func(string) string{
		as(regexp.QuoteMeta(h.dir)+`[^ …]*`, "/var/lib/limpet/limpet.db"),
		as(`limpet-demo-[0-9]+`, "limpet-demo-0000000000000000"),
		as(`20[0-9]{2}-[01][0-9]-[0-3][0-9]`, "2026-11-20"),
		as(`[0-2][0-9]:[0-5][0-9]:[0-5][0-9]`, "14:02:37"),
		as(`[0-2][0-9]:[0-5][0-9]…`, "14:02…"),
		pid,
		as(`\bdaemon [0-9]+`, "daemon 4121"),
		as(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`, "0d9c2f4e-1111-4222-8333-444455556666"),
	}
	if len(host) > 3 { // a shorter name tells nothing, and is part of words
		changes = append(changes, as(`\b`+regexp.QuoteMeta(host)+`\b`, "edge-07"))
	}
	return func(line string) string {
		for _, change := range changes {
			line = change(line)
		}
		return line
	}
}

// heads are the titles of the boxes of a screen, which begin at its left edge.
var heads = regexp.MustCompile(`(?m)^╭ ([A-Z][a-z]+)`)

// TestPictures walks through the demo as a person does and looks whether the
// pictures of README are those of the present screens: the same boxes, in files
// that are XML and small. With -pictures it makes them.
func TestPictures(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tt := h.show(t, 120, 32, ptytest.Line{}, "demo")
	has := func(words ...string) func(string) bool {
		return func(screen string) bool {
			for _, w := range words {
				if !strings.Contains(screen, w) {
					return false
				}
			}
			return true
		}
	}
	change := steady(h, host)
	for _, step := range []struct {
		name, title string // of the picture; "" = none is made
		keys        string
		w, h        int
		shows       []string // of it the last line, which is drawn last
	}{
		{"overview", "limpet: jobs, repositories, the job under the cursor, events, agent", "", 120, 32, []string{"just done", "plant-east", "network", "vessels", "healthy", "tab pane"}},
		{"", "", "3", 100, 28, []string{"[3 Repos 3]", "embedded API"}},
		{"repository", "limpet: a repository", "\r", 100, 28, []string{"health", "Conditions", "enter job"}},
		{"history", "limpet: the history", "4", 100, 28, []string{"[4 History]", "success", "newest first", "+ unfold"}},
		{"job", "limpet: a job", "\x1b[F\r", 100, 28, []string{"Summary", "success", "tab section"}},
		{"agent", "limpet: the agent", "5", 100, 28, []string{"Store", "free of", "scroll  esc back"}},
		{"palette", "limpet: the command palette", "1:pull net", 100, 28, []string{": pull net", "same as: limpet repo pull", "enter run"}},
		{"help", "limpet: the keys of a screen", "\x10?", 100, 28, []string{"Help: Overview", "esc closes", "letters search"}},
	} {
		tt.Resize(t, step.w, step.h)
		if step.keys != "" {
			tt.Press(t, step.keys)
		}
		if *pictures && step.name == "overview" {
			step.shows = append(step.shows, "pull incr") // it has run for a while
		}
		tt.Await(t, "the screen "+step.name, callTimeout, has(step.shows...))
		if step.name == "" {
			continue
		}
		text := tt.Text()
		svg, err := tt.SVG(step.title, change)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("..", "..", "..", "testdata", "pictures", step.name+".svg")
		if *pictures {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, svg, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v; make pictures", err)
		}
		if len(svg) > pictureLimit || len(kept) > pictureLimit {
			t.Errorf("%s has %d bytes, one made now %d; at most %d", path, len(kept), len(svg), pictureLimit)
		}
		words := textsOf(t, kept)
		if !strings.Contains(words, step.title) {
			t.Errorf("%s has another title", path)
		}
		for _, head := range heads.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(words, head[1]) {
				t.Errorf("%s has no box %s, which is on the screen now; look at it and run make pictures\n%s", path, head[1], text)
			}
		}
		if strings.Contains(words, h.dir) || len(host) > 3 && strings.Contains(words, host) {
			t.Errorf("%s tells of the machine that it was made on", path)
		}
	}
}

// textsOf are the texts of a picture.
func textsOf(t *testing.T, svg []byte) string {
	t.Helper()
	var out strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			out.Write(append(text, '\n'))
		}
	}
}
