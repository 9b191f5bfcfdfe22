package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// generation names the layout of the repositories: a cache of another one is not used.
const generation = 1

// size is a reference repository: dashboards in nested folders, and small edits of them.
type size struct {
	name    string
	files   int
	bytes   int // of a file, about
	commits int
	folders int // below each of the 40 folders of the root
}

var sizes = map[string]size{
	"small":  {"small", 50, 42_000, 200, 1},
	"medium": {"medium", 1_000, 39_000, 2_000, 7},
	"large":  {"large", 20_000, 26_000, 300, 13},
}

// epoch is the time of the first commit; each later one comes a minute after the last.
const epoch = 1_700_000_000

// build makes the repository below cache, unless it is there, and returns its directory. Its
// bytes depend on the size alone.
func (s size) build(cache string) (string, error) {
	dir := filepath.Join(cache, fmt.Sprintf("%s-%d.git", s.name, generation))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	making := dir + ".new"
	if err := os.RemoveAll(making); err != nil {
		return "", err
	}
	if err := git("", nil, "init", "--quiet", "--bare", "--initial-branch=main", making); err != nil {
		return "", err
	}
	stream, in := io.Pipe()
	go func() { in.CloseWithError(s.write(in)) }()
	if err := git(making, stream, "fast-import", "--quiet", "--depth=50"); err != nil {
		return "", err
	}
	// The answer to a shallow clone is copied from the pack: the server is to cost little.
	for _, args := range [][]string{
		{"repack", "-adfq", "--window=10", "--write-bitmap-index"},
		{"config", "pack.window", "0"},
		{"update-server-info"},
	} {
		if err := git(making, nil, args...); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(making, dir)
}

// write writes the history in the language of git fast-import.
func (s size) write(to io.Writer) error {
	w := bufio.NewWriterSize(to, 1<<20)
	revisions := make([]int, s.files)
	changed := make([]int, s.files)
	for i := range changed {
		changed[i] = i
	}
	draw := rand.New(rand.NewPCG(uint64(s.files), 0))
	for n := range s.commits {
		s.commit(w, n, changed, revisions)
		changed = changed[:1+draw.IntN(3)]
		for i := range changed {
			changed[i] = draw.IntN(s.files)
			revisions[changed[i]]++
		}
	}
	return w.Flush()
}

// commit writes commit n, with the changed files at their revisions.
func (s size) commit(w *bufio.Writer, n int, changed, revisions []int) {
	message := fmt.Sprintf("Edit %d", n)
	fmt.Fprintf(w, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\n", epoch+60*n)
	fmt.Fprintf(w, "data %d\n%s\n", len(message), message)
	for _, i := range changed {
		data := s.dashboard(i, revisions[i])
		fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n", s.path(i), len(data))
		w.Write(data)
		w.WriteByte('\n')
	}
}

// path returns the path of file i.
func (s size) path(i int) string {
	return fmt.Sprintf("f%02d/s%02d/d%05d.json", i%40, i/40%s.folders, i)
}

// dashboard returns file i as its edits up to a revision have left it. Each panel has prose of
// its own, so that a pack of them shrinks as far as real ones do.
func (s size) dashboard(i, revision int) []byte {
	draw := rand.New(rand.NewPCG(uint64(i), 1))
	var b bytes.Buffer
	fmt.Fprintf(&b, dashboardHead, i, i, words(draw, 1), revision)
	for panel := 0; b.Len() < s.bytes*(80+draw.IntN(40))/100; panel++ {
		if panel > 0 {
			b.WriteString(",")
		}
		prose := words(draw, 40)
		if panel == 0 {
			prose += fmt.Sprintf(" edit %d", revision)
		}
		fmt.Fprintf(&b, panelText, panel, panel%2*12, panel/2*8, prose,
			words(draw, 1), words(draw, 1), words(draw, 1), panel, panel)
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes()
}

var vocabulary = func() []string {
	draw := rand.New(rand.NewPCG(7, 7))
	all := make([]string, 3000)
	for i := range all {
		word := make([]byte, 3+draw.IntN(8))
		for j := range word {
			word[j] = byte('a' + draw.IntN(26))
		}
		all[i] = string(word)
	}
	return all
}()

func words(draw *rand.Rand, n int) string {
	drawn := make([]string, n)
	for i := range drawn {
		drawn[i] = vocabulary[draw.IntN(len(vocabulary))]
	}
	return strings.Join(drawn, " ")
}

const dashboardHead = `{
  "uid": "uid-%06d",
  "title": "Dashboard %d",
  "tags": ["edge", "%s"],
  "schemaVersion": 39,
  "version": %d,
  "time": {"from": "now-6h", "to": "now"},
  "templating": {"list": []},
  "panels": [`

const panelText = `
    {
      "id": %d,
      "type": "timeseries",
      "gridPos": {"h": 8, "w": 12, "x": %d, "y": %d},
      "datasource": {"type": "prometheus", "uid": "${datasource}"},
      "description": "%s",
      "fieldConfig": {
        "defaults": {
          "color": {"mode": "palette-classic"},
          "custom": {
            "axisLabel": "",
            "axisPlacement": "auto",
            "drawStyle": "line",
            "fillOpacity": 10,
            "lineWidth": 1,
            "pointSize": 5,
            "showPoints": "never",
            "spanNulls": false
          },
          "mappings": [],
          "thresholds": {
            "mode": "absolute",
            "steps": [{"color": "green", "value": null}, {"color": "red", "value": 80}]
          },
          "unit": "reqps"
        },
        "overrides": []
      },
      "targets": [
        {
          "expr": "sum by (%s) (rate(%s_total{job=\"%s\", instance=~\"$instance\"}[$__rate_interval]))",
          "legendFormat": "panel %d",
          "refId": "A"
        }
      ],
      "title": "Panel %d"
    }`

// origin is a copy of a reference repository that may be committed to.
type origin struct {
	size
	dir       string
	next      int // number of the next commit
	revisions []int
}

// origin copies the repository in from to dir, pack by pack.
func (s size) origin(from, dir string) (*origin, error) {
	if err := git("", nil, "clone", "--quiet", "--bare", "--no-hardlinks", from, dir); err != nil {
		return nil, err
	}
	if err := git(dir, nil, "config", "pack.window", "0"); err != nil {
		return nil, err
	}
	return &origin{size: s, dir: dir, next: s.commits, revisions: make([]int, s.files)}, nil
}

// edit commits a change of n files and returns the commit.
func (o *origin) edit(n int) (string, error) {
	changed := make([]int, n)
	for i := range changed {
		changed[i] = (o.next*7919 + i) % o.files
		o.revisions[changed[i]] = o.next
	}
	var in bytes.Buffer
	w := bufio.NewWriter(&in)
	o.commit(w, o.next, changed, o.revisions)
	if err := w.Flush(); err != nil {
		return "", err
	}
	// The parent is the commit of the branch.
	text := strings.Replace(in.String(), "\nM 100644", "\nfrom refs/heads/main^0\nM 100644", 1)
	// Each blob would be a delta against the one before it in the stream, of another file, which no
	// push does.
	if err := git(o.dir, strings.NewReader(text), "fast-import", "--quiet", "--depth=0"); err != nil {
		return "", err
	}
	o.next++
	return o.head()
}

func (o *origin) head() (string, error) {
	out, err := exec.Command("git", "-C", o.dir, "rev-parse", "main").Output()
	return strings.TrimSpace(string(out)), err
}

// git runs git in dir; "" is the working directory.
func git(dir string, in io.Reader, args ...string) error {
	if dir != "" {
		args = append([]string{"-C", dir}, args...)
	}
	cmd := exec.Command("git", args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
