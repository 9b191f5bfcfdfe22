package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/testenv/suite"
)

// pkg is what go list says of one package.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// packages lists the packages of the module, or with deps everything that is
// linked into the binary.
func packages(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)...)
	var errText bytes.Buffer
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &errText)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestSetup: where the tests have all programs nothing is done; another user than root gets one line that says what to run.
func TestSetup(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command(".ci/setup").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("nothing to install: %v\n%s", err, out)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // has no program but this one
	if err := os.WriteFile(filepath.Join(dir, "id"), []byte("#!/bin/sh\necho 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, ".ci/setup")
	cmd.Env = []string{"PATH=" + dir}
	out, err := cmd.CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed || exit.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range []string{"apt-get install", "git", "gnupg", "groff-base", "openssh-client", "zsh", "fish"} {
		if !strings.Contains(string(out), name) {
			t.Errorf("%s is not in %s", name, out)
		}
	}
}

// TestDoors keeps each heavy dependency behind one package and those below it.
// TestSize keeps the direction of the imports.
func TestDoors(t *testing.T) {
	t.Parallel()
	doors := []struct{ dependency, door string }{
		{"go.etcd.io/bbolt", "limpet/state"},
		{"k8s.io/client-go", "limpet/sync/kube"},
		{"github.com/go-git/", "limpet/sync/git"},
		{"charm.land/", "limpet/tui"},
		{"github.com/charmbracelet/", "limpet/tui"},
		{"github.com/alecthomas/kong", "limpet/tui/cli"},
		{"github.com/prometheus/", "limpet/sync/metrics"},
		{"golang.org/x/oauth2", "limpet/sync/identity"},
		{"github.com/Azure/", "limpet/sync/identity"},
		{"github.com/google/go-github", "limpet/sync/forge"},
		{"github.com/ProtonMail/go-crypto", "limpet/sync/signature"},
		{"github.com/hiddeco/sshsig", "limpet/sync/signature"},
		{"code.dny.dev/ssrf", "limpet/sync/netx"},
		{"github.com/aymanbagabas/go-udiff", "limpet/sync/snapshot"},
	}
	behind := func(path, door string) bool { return path == door || strings.HasPrefix(path, door+"/") }
	for _, p := range packages(t, "./...") {
		for _, imp := range p.Imports {
			for _, d := range doors {
				// The work queue of client-go may stand where it is used.
				if strings.HasPrefix(imp, d.dependency) && !behind(p.ImportPath, d.door) && imp != "k8s.io/client-go/util/workqueue" {
					t.Errorf("%s imports %s, whose door is %s", p.ImportPath, imp, d.door)
				}
			}
		}
	}
}

// TestLean keeps out of the binary what makes it heavy.
func TestLean(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, "-deps", ".") {
		for _, heavy := range []string{"k8s.io/api/", "k8s.io/client-go/informers", "k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic/dynamicinformer", "k8s.io/apiserver", "sigs.k8s.io/controller-runtime", "net/http/cgi"} {
			if strings.HasPrefix(p.ImportPath, heavy) {
				t.Errorf("%s is linked into the binary", p.ImportPath)
			}
		}
	}
}

// maxBinary is the size that the stripped static binary may have, in bytes.
const maxBinary = 40 << 20

// TestBinaryIsStaticAndSmall builds the binary as a release does.
func TestBinaryIsStaticAndSmall(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "limpet")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > maxBinary {
		t.Errorf("the binary has %d bytes, more than %d", info.Size(), maxBinary)
	}
	text, err := exec.Command("go", "version", "-m", out).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "CGO_ENABLED=0") {
		t.Errorf("the binary was not built without cgo: %v\n%s", err, text)
	}
}

// scripts stops the shared API server after the tests.
type scripts struct{ *testing.M }

func (s scripts) Run() int { return testenv.Main(s.M) }

func TestMain(m *testing.M) {
	testscript.Main(scripts{m}, map[string]func(){"limpet": main})
}

// TestScripts runs the transcripts of testdata/script: the real binary, real
// servers, an empty home. Beside the commands of testscript they know
//
//	api                     a real API server; sets $API_URL $API_CA $SIGN_URL
//	githost NAME [BOARDS [TOKEN]]
//	                        a repository behind a real Git host, which may ask for a token; sets $GIT_NAME, its
//	                        URL, and $DIR_NAME, where it is. With 0 boards it is empty
//	busy NAME               a Git host that asks to be left alone for an hour; sets $BUSY_NAME. With ! it ends
//	forge NAME [TOKEN]      the REST of a forge, a fake; sets $FORGE_NAME, and knows TOKEN from then on
//	commit NAME FILE        the next commit: FILE of the script, at the same path
//	exits CODE ARGS...      runs limpet, which has to end with that code
//	until [!] COMMAND...    repeats the command until it ends well, or with ! badly
//	post URL FILE HEADER... sends FILE; the body of the answer is the stdout
//
// and have two free ports of loopback in $API_PORT and $SIGN_PORT. The condition
// [full] holds in the full lane, where alone there is a real API server.
func TestScripts(t *testing.T) {
	t.Parallel()
	repos := map[string]*testenv.Repository{}
	hosts := map[string]*forgetest.Host{}
	busy := map[string]*httptest.Server{}
	var mu sync.Mutex // guards repos, hosts and busy
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Condition: func(name string) (bool, error) {
			if name != "full" {
				return false, fmt.Errorf("condition %q is not known", name)
			}
			return suite.HasAll(), nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("LANG", "C.UTF-8")
			e.Setenv("LIMPET_TELEMETRY_LISTEN", "")
			for _, name := range []string{"API_PORT", "SIGN_PORT"} {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				_, port, err := net.SplitHostPort(ln.Addr().String())
				if err = errors.Join(err, ln.Close()); err != nil {
					return err
				}
				e.Setenv(name, port)
			}
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"api": func(ts *testscript.TestScript, _ bool, _ []string) {
				s := testenv.Real(t)
				ts.Setenv("API_URL", s.URL)
				ts.Setenv("API_CA", s.CAFile)
				ts.Setenv("SIGN_URL", s.SignURL)
			},
			"githost": func(ts *testscript.TestScript, _ bool, args []string) {
				boards := 4
				if len(args) > 1 {
					n, err := strconv.Atoi(args[1])
					ts.Check(err)
					boards = n
				}
				repo := testenv.EmptyRepo(t)
				if boards > 0 {
					repo = testenv.Repo(t, 3, boards)
				}
				repo.Git(t, "config", "http.receivepack", "true")
				ts.Setenv("DIR_"+strings.ToUpper(args[0]), repo.Dir)
				var o testenv.GitOptions
				if len(args) > 2 {
					o.User, o.Password = "git", args[2]
				}
				ts.Setenv("GIT_"+strings.ToUpper(args[0]), testenv.Git(t, o).Serve(args[0]+".git", repo.Dir))
				mu.Lock()
				defer mu.Unlock()
				repos[ts.Name()+args[0]] = repo
			},
			"busy": func(ts *testscript.TestScript, neg bool, args []string) {
				mu.Lock()
				defer mu.Unlock()
				key := ts.Name() + args[0]
				if neg {
					busy[key].Close()
					return
				}
				busy[key] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", "3600")
					w.WriteHeader(http.StatusServiceUnavailable)
				}))
				ts.Defer(busy[key].Close)
				ts.Setenv("BUSY_"+strings.ToUpper(args[0]), busy[key].URL)
			},
			"forge": func(ts *testscript.TestScript, _ bool, args []string) {
				mu.Lock()
				defer mu.Unlock()
				key := ts.Name() + args[0]
				if hosts[key] == nil {
					hosts[key] = forgetest.New(t, forgetest.Options{})
					ts.Setenv("FORGE_"+strings.ToUpper(args[0]), hosts[key].URL)
				}
				if len(args) > 1 {
					hosts[key].Token(args[1], forgetest.Rights{Hooks: true})
				}
			},
			"commit": func(ts *testscript.TestScript, _ bool, args []string) {
				mu.Lock()
				repo := repos[ts.Name()+args[0]]
				mu.Unlock()
				repo.Commit(t, "Change "+args[1], testenv.Change{Path: args[1], Data: []byte(ts.ReadFile(args[1]))})
			},
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				code, err := 0, ts.Exec("limpet", args[1:]...)
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					code, err = exit.ExitCode(), nil
				}
				ts.Check(err)
				if want, err := strconv.Atoi(args[0]); err != nil || code != want {
					ts.Fatalf("limpet %s: exit %d, want %s", strings.Join(args[1:], " "), code, args[0])
				}
			},
			"until": func(ts *testscript.TestScript, _ bool, args []string) {
				deadline, tick := time.After(time.Minute), time.NewTicker(50*time.Millisecond)
				defer tick.Stop()
				want := true
				if args[0] == "!" {
					want, args = false, args[1:]
				}
				for (ts.Exec(args[0], args[1:]...) == nil) != want {
					select {
					case <-deadline:
						ts.Fatalf("never ended well: %s", strings.Join(args, " "))
					case <-tick.C:
					}
				}
			},
			"post": post,
		},
	})
}

// post sends a file; certificates are not looked at, as with curl --insecure.
func post(ts *testscript.TestScript, neg bool, args []string) {
	req, err := http.NewRequest(http.MethodPost, args[0], strings.NewReader(ts.ReadFile(args[1])))
	ts.Check(err)
	for _, h := range args[2:] {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s", resp.StatusCode, body)
	if neg == (resp.StatusCode < 300) {
		ts.Fatalf("POST %s: %s: %s", args[0], resp.Status, body)
	}
	var token struct{ Data struct{ Token string } }
	if json.Unmarshal(body, &token) == nil && token.Data.Token != "" {
		ts.Setenv("ACCESS_TOKEN", token.Data.Token)
	}
}

const (
	mostFiles = 40  // Go files of a folder, tests included
	mostLines = 600 // of a file
)

// layers are the packages from the bottom to the top, each with those below its
// folder that have no row of their own. A package imports from its own row and from
// rows above it. aim is the number of source lines without tests; 0 = none was set.
var layers = []struct {
	path string
	aim  int
}{
	{"sync/failpoint", 0},
	{"sync/text", 300},
	{"sync/program", 0},
	{"state/frame", 0},
	{"state/repair", 1200},
	{"state", 2800},
	{"sync/netx", 700},
	{"sync/api", 1000},
	{"sync/kube", 3200},
	{"sync/signature", 1100},
	{"sync/auth", 1900},
	{"sync/identity", 1000},
	{"sync/dependency", 700},
	{"sync/forge", 1800},
	{"sync/notify", 600},
	{"sync/git", 7500},
	{"sync/api/admission", 1200},
	{"sync/resources", 2800},
	{"sync/jobs", 5000},
	{"sync/worker", 3800},
	{"sync/source", 800},
	{"sync/source/upstream", 200},
	{"sync/reconcile", 450},
	{"sync/repos", 3300},
	{"sync/source/controller", 1300},
	{"sync/apiserver", 5000},
	{"sync/webhook", 1300},
	{"sync/metrics", 900},
	{"sync/snapshot", 2000},
	{"sync/control", 1300},
	{"sync/agent", 1000},
	{"tui/widget", 2000},
	{"tui/screen", 4000},
	{"tui", 1500},
	{"tui/cli/clitest", 0}, // for tests alone
	{"tui/cli/help", 0},
	{"tui/cli/command", 1600},
	{"tui/cli/history", 0},
	{"tui/cli/job", 0},
	{"tui/cli/object", 0},
	{"tui/cli/repo", 0},
	{"tui/cli/source", 0},
	{"tui/cli/config", 0},
	{"tui/cli/service", 0},
	{"tui/cli/doctor", 0},
	{"tui/cli/store", 0},
	{"tui/cli/status", 0},
	{"tui/cli/complete", 0},
	{"tui/cli/daemon", 0},
	{"tui/cli", 400},
	{".", 0},
	{"sync/testenv", 4500}, // for tests alone
}

// layerOf returns the row of a folder of the module, -1 when it has none.
func layerOf(dir string) int {
	found, length := -1, -1
	for i, l := range layers {
		if (dir == l.path || strings.HasPrefix(dir, l.path+"/")) && len(l.path) > length {
			found, length = i, len(l.path)
		}
	}
	return found
}

// measure is what a row consists of.
type measure struct{ source, tests, files int }

// TestMap: the files that the package documentation names are there.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ := strings.Cut(string(text), "\npackage main")
	for _, name := range regexp.MustCompile(`[a-z/]+\.go\b`).FindAllString(doc, -1) {
		if !strings.Contains("\n"+string(out), "\n"+name+"\n") && !strings.Contains(string(out), "/"+name+"\n") {
			t.Errorf("%s is no file", name)
		}
	}
}

// TestSize holds the rules about files, folders and the direction of imports. With -v
// it prints the lines of each package beside its aim.
func TestSize(t *testing.T) {
	t.Parallel()
	var wrong []string
	rows, folders := map[int]*measure{}, map[string]int{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "dist") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, n := filepath.ToSlash(filepath.Dir(path)), bytes.Count(data, []byte("\n"))
		if folders[dir]++; n > mostLines {
			wrong = append(wrong, "long file: "+filepath.ToSlash(path))
		}
		row := layerOf(dir)
		if rows[row] == nil {
			rows[row] = &measure{}
		}
		rows[row].files++
		if strings.HasSuffix(path, "_test.go") {
			rows[row].tests += n
		} else {
			rows[row].source += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, n := range folders {
		if n > mostFiles {
			wrong = append(wrong, "full folder: "+dir)
		}
		if layerOf(dir) < 0 {
			wrong = append(wrong, "no row: "+dir)
		}
	}
	for _, p := range packages(t, "./...") {
		from := dirOf(p.ImportPath)
		for _, imp := range p.Imports {
			if to := dirOf(imp); to != "" && layerOf(from) < layerOf(to) && layerOf(from) >= 0 {
				wrong = append(wrong, "upward import: "+from+" -> "+to)
			}
		}
	}
	slices.Sort(wrong)
	for _, w := range wrong {
		t.Error(w)
	}
	t.Logf("\n%s", table(rows, folders))
}

// dirOf returns the folder of a package of the module, "" for others.
func dirOf(path string) string {
	if path == "limpet" {
		return "."
	}
	dir, ok := strings.CutPrefix(path, "limpet/")
	if !ok {
		return ""
	}
	return dir
}

// support are the packages that only tests import, and failpoint, of which the program has nothing.
var support = []string{"sync/testenv", "tui/cli/clitest", "sync/failpoint"}

// table prints the rows, and the fullest folders.
func table(rows map[int]*measure, folders map[string]int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-18s %7s %7s %7s %6s\n", "package", "source", "aim", "tests", "files")
	var sum measure
	aims := 0
	line := func(name string, aim int, m measure) {
		fmt.Fprintf(&out, "%-18s %7d %7d %7d %6d\n", name, m.source, aim, m.tests, m.files)
	}
	for i, l := range layers {
		m := rows[i]
		if m == nil {
			m = &measure{}
		}
		line(l.path, l.aim, *m)
		if !slices.Contains(support, l.path) {
			sum.source, aims = sum.source+m.source, aims+l.aim
		}
		sum.tests, sum.files = sum.tests+m.tests, sum.files+m.files
	}
	if m := rows[-1]; m != nil {
		line("without a row", 0, *m)
		sum = measure{sum.source + m.source, sum.tests + m.tests, sum.files + m.files}
	}
	line("without support", aims, sum)
	full := slices.SortedFunc(maps.Keys(folders), func(a, b string) int { return folders[b] - folders[a] })
	for _, dir := range full[:min(5, len(full))] {
		fmt.Fprintf(&out, "%d files in %s\n", folders[dir], dir)
	}
	return out.String()
}
