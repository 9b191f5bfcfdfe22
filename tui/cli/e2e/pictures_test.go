package e2e

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/ptytest"
)

var pictures = flag.Bool("pictures", false, "write the pictures of the screens anew, into testdata/pictures")

// pictureLimit bounds a picture, in bytes: README loads them.
const pictureLimit = 40 << 10

var pictureDir = filepath.Join("..", "..", "..", "testdata", "pictures")

// steady replaces what differs from one run to the next, letter for letter.
func steady(h *home, host string) func(string) string {
	replace := map[string]string{
		regexp.QuoteMeta(h.dir) + `[^ …]*`:              "/var/lib/limpet/limpet.db",
		`limpet-demo-[0-9]+`:                            "limpet-demo-0000000000000000",
		`20[0-9]{2}-[01][0-9]-[0-3][0-9]`:               "2026-11-20",
		`[0-2][0-9]:[0-5][0-9]:[0-5][0-9]`:              "14:02:37",
		`\bpid +[0-9]+`:                                 "pid 4121",
		`\bdaemon [0-9]+`:                               "daemon 4121",
		`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`: "0d9c2f4e-1111-4222-8333-444455556666",
		`\b` + regexp.QuoteMeta(host) + `\b`:            "edge-07",
	}
	return func(line string) string {
		for pattern, text := range replace {
			line = regexp.MustCompile(pattern).ReplaceAllStringFunc(line, func(found string) string {
				return (text + strings.Repeat(" ", len(found)))[:len(found)]
			})
		}
		return line
	}
}

// TestPictures holds the pictures of README to XML of a small size. With -pictures it
// makes them: it walks through the demo as a person does.
func TestPictures(t *testing.T) {
	t.Parallel()
	if *pictures {
		takePictures(t)
	}
	files, err := filepath.Glob(filepath.Join(pictureDir, "*.svg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil || len(data) > pictureLimit {
			t.Errorf("%s: %v, %d bytes", path, err, len(data))
		}
		d := xml.NewDecoder(bytes.NewReader(data))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func takePictures(t *testing.T) {
	t.Helper()
	h := newHome(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.command(context.WithoutCancel(t.Context()), t, "demo")
	cmd.Env = append(slices.Clone(cmd.Env), "TERM=xterm-256color")
	tt := ptytest.Start(t, cmd, 120, 32, ptytest.Line{})
	for _, step := range []struct {
		name, title string // of the picture; "" = none is made
		keys        string
		w, h        int
		shows       []string
	}{
		{"overview", "limpet: jobs, repositories, the job under the cursor, events, agent", "", 120, 32,
			[]string{"plant-east", "network", "vessels", "healthy", "pull incr"}},
		{"", "", "3", 100, 28, []string{"[3 Repos 3]"}},
		{"repository", "limpet: a repository", "\r", 100, 28, []string{"health", "Conditions"}},
		{"history", "limpet: the history", "4", 100, 28, []string{"[4 History]", "success"}},
		{"job", "limpet: a job", "\x1b[F\r", 100, 28, []string{"Summary", "success"}},
		{"agent", "limpet: the agent", "5", 100, 28, []string{"Store"}},
		{"palette", "limpet: the command palette", "1:pull net", 100, 28, []string{"limpet repo pull"}},
		{"help", "limpet: the keys of a screen", "\x10?", 100, 28, []string{"Help"}},
	} {
		tt.Resize(t, step.w, step.h)
		if step.keys != "" {
			tt.Press(t, step.keys)
		}
		tt.Await(t, "the screen "+step.name, callTimeout, func(screen string) bool {
			return !slices.ContainsFunc(step.shows, func(w string) bool { return !strings.Contains(screen, w) })
		})
		if step.name == "" {
			continue
		}
		svg, err := tt.SVG(step.title, steady(h, host))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(pictureDir, step.name+".svg"), svg, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
