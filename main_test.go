package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

// TestSetup: where the tests have all programs nothing is done; another user than root gets one
// line that says what to run.
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
//	                        and takes pushes
//	busy NAME               a Git host that asks to be left alone for an hour; sets $BUSY_NAME. With ! it ends
//	forge NAME [TOKEN]      the REST of a forge, a fake; sets $FORGE_NAME, and knows TOKEN from then on
//	commit NAME FILE        the next commit: FILE of the script, at the same path
//	exits CODE ARGS...      runs limpet, which has to end with that code
//	until [!] COMMAND...    repeats the command until it ends well, or with ! badly
//	post URL FILE HEADER... sends FILE; the body of the answer is the stdout
//	setenv NAME FILE        sets $NAME to the text of FILE
//
// The condition [full] holds in the full lane, where alone there is a real API server.
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
				} else {
					repo.Git(t, "config", "http.receivepack", "true")
				}
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
				deadline := time.After(time.Minute)
				// Each start of a program takes the processor from what is waited for.
				pause := 50 * time.Millisecond
				want := true
				if args[0] == "!" {
					want, args = false, args[1:]
				}
				for (ts.Exec(args[0], args[1:]...) == nil) != want {
					select {
					case <-deadline:
						ts.Fatalf("never ended well: %s", strings.Join(args, " "))
					case <-time.After(pause):
						pause = min(2*pause, 400*time.Millisecond)
					}
				}
			},
			"post": post,
			"setenv": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
			},
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
