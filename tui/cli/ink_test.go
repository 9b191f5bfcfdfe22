package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"limpet/state"
)

// tables are the calls that print tables and fields, with words of state that are coloured in the
// rows of tinted.
var tables = map[string][]string{
	"repo list": {"healthy", "failing", "error"}, "repo list -o wide": {"healthy"}, "repo show ill": {"failing", "error", "Ready", "Reachable"},
	"repo show boards": nil,
	"job list":         {"working"}, "job list -o wide": {"working"}, "job show boards-sync": {"working"}, "job show u2": {"error"},
	"history list": {"success", "error"}, "history list -o wide": {"success", "error"}, "history list --no-headers": {"success"},
	"history show u2": {"error", "warning"},
	"connection list": {"failing"}, "connection list -o wide": nil, "connection show lab": {"failing", "Ready"},
	"get jobs": {"working"}, "get job boards-sync": {"working"}, "get repositories": nil, "get connections -o wide": nil, "get secrets": nil,
	"status": nil, "doctor": {"ok", "fail"}, "repo test near": {"ok", "failed"}, "config show": nil, "store info": nil,
	"store check": nil, "version": nil,
}

// stateless are those of them that tell no state.
var stateless = map[string]bool{"get repositories": true, "get connections -o wide": true, "get secrets": true, "config show": true,
	"store info": true, "store check": true, "version": true}

// tinted is a site with objects in good and bad states, and with names that are words of state.
func tinted(t *testing.T) *site {
	t.Helper()
	s := seeded(t)
	s.Must(t, 0, "repo", "create", "error", "--url", "https://git.example.com/error.git", "--disabled")
	const kind = `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":`
	s.status(t, "jobs", "boards-sync", `{"state":"working","message":"working on it","progress":50}`)
	s.status(t, "repositories", "boards", `{"health":{"healthy":true,"checked":1700000000000},"sync":{"state":"success"}}`)
	s.status(t, "connections", "lab", `{"health":{"healthy":false,"checked":1700000000000,"message":["error: no"]},"conditions":[{"type":"Ready","status":"Unknown","reason":"Failed","message":"no"}]}`)
	s.Apply(t, kind+`"Repository","metadata":{"name":"ill"},"spec":{"title":"success","type":"git","git":{"url":"https://git.example.com/ill.git","branch":"main"},"sync":{"enabled":false,"target":"folder"}}}`)
	s.status(t, "repositories", "ill", `{"health":{"healthy":false,"checked":1700000000000,"message":["working no more"]},"sync":{"state":"error","started":1700000000000,"finished":1700000001000,"message":["success is elsewhere"]},
		"conditions":[{"type":"Ready","status":"False","reason":"Failed","message":"True no more"},{"type":"Reachable","status":"True","reason":"Fine"}]}`)
	s.Apply(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"success"},"stringData":{"k":"v"}}`)
	return s
}

// status gives an object a status, as an agent does.
func (s *site) status(t *testing.T, plural, name, status string) {
	t.Helper()
	s.Store(t, func(store *state.Store) {
		key := state.ObjectKey{Resource: "provisioning.grafana.app/" + plural, Namespace: "default", Name: name}
		_, err := store.Mutate(t.Context(), key, func(cur *state.Object, rev uint64) (state.Mutation, error) {
			var object map[string]any
			if err := json.Unmarshal(cur.Data, &object); err != nil {
				return state.Mutation{}, err
			}
			object["status"] = json.RawMessage(status)
			object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(rev)
			data, err := json.Marshal(object)
			return state.Mutation{Data: data}, err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

var sgr = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// age is what a second call may print otherwise.
var age = regexp.MustCompile(`\b\d+s\b *`)

// onTerminal runs a command of a site with a terminal as its output.
func (s *site) onTerminal(t *testing.T, args ...string) (out string) {
	t.Helper()
	keyboard, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	var screen, errs bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&screen, keyboard) // until nobody has it open
	}()
	streams := s.streams("", tty, &errs)
	s.main(args, streams)
	tty.Close()
	<-read
	return strings.ReplaceAll(screen.String(), "\r\n", "\n")
}

// TestTablesAreColoured: words of state have the colours of the theme, on a terminal
// and where it is asked for. Names and messages have none, and nothing moves by it.
func TestTablesAreColoured(t *testing.T) {
	t.Parallel()
	s := tinted(t)
	s.Env["TERM"] = "xterm-256color"
	for call, words := range tables {
		args := strings.Fields(call)
		_, plain, _ := s.Call(append(args, "--color", "never")...)
		_, always, _ := s.Call(append(args, "--color", "always")...)
		for form, out := range map[string]string{"always": always, "auto": s.onTerminal(t, args...)} {
			// which look at the clock and at --color
			if got, want := age.ReplaceAllString(sgr.ReplaceAllString(out, ""), "AGE "), age.ReplaceAllString(plain, "AGE "); got != want &&
				call != "doctor" && call != "config show" {
				t.Errorf("%s: the text with --color %s is\n%swithout\n%s", call, form, got, want)
			}
			for _, word := range words {
				if !regexp.MustCompile(`\x1b\[[0-9;]+m` + word + `\x1b\[0m`).MatchString(out) {
					t.Errorf("%s --color %s: no colour for %s:\n%q", call, form, word, out)
				}
			}
			if stateless[call] && strings.Contains(out, "\x1b") {
				t.Errorf("%s --color %s: %q", call, form, out)
			}
			for line := range strings.Lines(out) {
				on := false
				for _, code := range sgr.FindAllStringSubmatch(line, -1) {
					if on == (code[1] != "0") {
						t.Errorf("%s --color %s: not closed at the end of its word: %q", call, form, line)
					}
					on = !on
				}
				if on {
					t.Errorf("%s --color %s: a colour goes on at the end of %q", call, form, line)
				}
			}
		}
	}
	out, _ := s.Must(t, 0, "repo", "list", "--color", "always", "-o", "wide")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "default     error ") && sgr.MatchString(line) || strings.Contains(line, "ill") &&
			strings.Contains(line, "msuccess") {
			t.Errorf("a name is no state: %q", line)
		}
	}
}

// TestNoColours: where none may be there is no escape byte, whatever is printed.
func TestNoColours(t *testing.T) {
	t.Parallel()
	s := tinted(t)
	type way struct {
		env      map[string]string
		terminal bool
		args     string
	}
	ways := map[string]way{
		"on a pipe":            {},
		"NO_COLOR":             {terminal: true, env: map[string]string{"NO_COLOR": "1"}},
		"TERM=dumb":            {terminal: true, env: map[string]string{"TERM": "dumb"}},
		"--theme mono, always": {args: "--theme mono --color always"},
		"--accessible, always": {args: "--accessible --color always"},
		"-o json":              {args: "--color always -o json"},
		"-o yaml":              {args: "--color always -o yaml"},
		"-o name":              {args: "--color always -o name"},
	}
	for name, how := range ways {
		of := newSite(t)
		of.Dir, of.Env = s.Dir, maps.Clone(s.Env)
		of.Env["TERM"] = "xterm-256color"
		maps.Copy(of.Env, how.env)
		for call := range tables {
			if call == "doctor" || strings.Contains(call, " -o ") && strings.Contains(how.args, "-o ") {
				continue
			}
			args := append(strings.Fields(call), strings.Fields(how.args)...)
			var out string
			if how.terminal {
				out = of.onTerminal(t, args...)
			} else {
				_, out, _ = of.Call(args...)
			}
			if strings.Contains(out, "\x1b") || out == "" && !strings.Contains(how.args, "name") {
				t.Errorf("%s, %s: %q", name, call, out)
			}
		}
	}
}

// TestErrorsAreColoured: the first word of an error and of a warning, on a terminal and
// where it is asked for; and nowhere else.
func TestErrorsAreColoured(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const red = "\x1b[1;31mlimpet:\x1b[0m"
	for name, c := range map[string]struct {
		args, env string // NAME=value
		pipe      bool
		want      string
	}{
		"a terminal":             {want: red},
		"a pipe":                 {pipe: true, want: "limpet:"},
		"a pipe, always":         {args: "--color always", pipe: true, want: red},
		"a pipe, LIMPET_COLOR":   {env: "LIMPET_COLOR=always", pipe: true, want: red},
		"a pipe, CLICOLOR_FORCE": {env: "CLICOLOR_FORCE=1", pipe: true, want: red},
		"never":                  {args: "--color=never", want: "limpet:"},
		"NO_COLOR":               {env: "NO_COLOR=1", want: "limpet:"},
		"no TERM":                {env: "TERM=", want: "limpet:"},
		"a theme":                {args: "--theme blue-orange", want: "\x1b[1;33mlimpet:\x1b[0m"},
		"accessible":             {args: "--accessible", want: "limpet:"},
	} {
		call, text := "job show nothing", "limpet: job \"nothing\" not found\n"
		of := newSite(t)
		of.Dir, of.Env = s.Dir, maps.Clone(s.Env)
		of.Env["TERM"] = "xterm-256color"
		if k, v, ok := strings.Cut(c.env, "="); ok {
			of.Env[k] = v
		}
		args := append(strings.Fields(c.args), strings.Fields(call)...)
		var got string
		if c.pipe {
			_, _, got = of.Call(args...)
		} else {
			keyboard, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			var screen bytes.Buffer
			read := make(chan struct{})
			go func() { defer close(read); _, _ = io.Copy(&screen, keyboard) }()
			of.main(args, of.streams("", io.Discard, tty))
			tty.Close()
			<-read
			keyboard.Close()
			got = strings.ReplaceAll(screen.String(), "\r\n", "\n")
		}
		if want := strings.Replace(text, "limpet:", c.want, 1); !strings.HasPrefix(got, want) {
			t.Errorf("%s, %s: %q, want %q", name, call, got, want)
		}
	}
	if _, _, errs := s.Call("job", "show", "nothing", "-o", "json", "--color", "always"); strings.Contains(errs, "\x1b") ||
		!json.Valid([]byte(errs)) {
		t.Errorf("a document: %q", errs)
	}
}
