package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/screen"
)

// ErrSetUp is returned by Run when the user chooses the setup.
var ErrSetUp = errors.New("setup requested")

// Settings are the answers of the setup. At most one of Token and TokenFile is set.
type Settings struct {
	Server    string
	Token     string
	TokenFile string
}

// SetUp holds the functions of the setup.
type SetUp struct {
	File string // the file that Save writes
	// Try tests the settings against the server and describes the result.
	Try func(ctx context.Context, s Settings) (string, error)
	// Save writes the settings.
	Save func(s Settings) error
}

// testTimeout bounds the test against the server.
const testTimeout = 15 * time.Second

// RunSetUp asks for the server and the token below the last command, tests the answers, and
// writes them after a yes. Ctrl-C, Ctrl-D and the end of ctx leave it without a change.
func RunSetUp(ctx context.Context, u SetUp, o Options) error {
	fd := int(o.In.Fd())
	was, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	defer func() { _ = term.Restore(fd, was) }()
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{o.In, o.Out}, "")
	if w, h, err := term.GetSize(fd); err == nil && w > 0 {
		_ = t.SetSize(w, h)
	}
	end := make(chan error, 1)
	go func() { end <- u.run(ctx, t) }()
	select {
	case err = <-end:
	case <-ctx.Done():
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// run asks until the answers are written; io.EOF means that the user leaves.
func (u SetUp) run(ctx context.Context, t *term.Terminal) error {
	say := func(line string) { fmt.Fprintln(t, text.Clean(line)) }
	say("Ctrl-C leaves without a change.")
	for s := (Settings{}); ; s = (Settings{Server: s.Server}) {
		if s.Server != "" {
			say("Enter alone keeps " + s.Server)
		}
		t.SetPrompt("Address of Grafana, or of a Kubernetes API with its resources: ")
		if err := untilRight(say, t.ReadLine, s.setServer); err != nil {
			return err
		}
		token := func() (string, error) { return t.ReadPassword("Token (not shown), or the path of a file with it: ") }
		if err := untilRight(say, token, s.setToken); err != nil {
			return err
		}
		say("Trying " + s.Server)
		trial, cancel := context.WithTimeout(ctx, testTimeout)
		found, err := u.Try(trial, s)
		cancel()
		if err != nil {
			found = err.Error()
		}
		say(found)
		say("These settings would go to " + u.File + ", and limpet would begin to work with them.")
		t.SetPrompt("Write them? [y/N] ")
		if answer, err := t.ReadLine(); err != nil {
			return err
		} else if strings.EqualFold(strings.TrimSpace(answer), "y") {
			return u.Save(s)
		}
	}
}

// untilRight repeats a question until nothing is wrong with its answer.
func untilRight(say func(string), read func() (string, error), set func(string) (problem string)) error {
	for {
		answer, err := read()
		if err != nil {
			return err
		}
		problem := set(answer)
		if problem == "" {
			return nil
		}
		say(problem)
	}
}

// setServer takes the answer for the server and returns what is wrong with it. An empty one keeps
// the server of before.
func (s *Settings) setServer(answer string) (problem string) {
	s.Server = cmp.Or(text.Clean(strings.Join(strings.Fields(answer), "")), s.Server)
	if s.Server == "" {
		return "an address is needed, such as https://grafana.example.com"
	}
	if !strings.Contains(s.Server, "://") {
		s.Server = "https://" + s.Server
	}
	switch at, err := url.Parse(s.Server); {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return "this is no address of a server; one is https://grafana.example.com"
	case at.User != nil:
		return "a password does not belong into an address; the next question is for the token"
	}
	return ""
}

// setToken takes the answer for the token and returns what is wrong with it. A token is a path when
// it begins with / or ~/; blanks within a path are part of it.
func (s *Settings) setToken(answer string) (problem string) {
	answer = strings.TrimSpace(text.Clean(answer))
	if strings.HasPrefix(answer, "/") || strings.HasPrefix(answer, "~/") {
		s.TokenFile = answer
	} else if s.Token = strings.Join(strings.Fields(answer), ""); s.Token == "" {
		return "a token is needed: the path of a file with it, or the token itself"
	}
	return ""
}

// EditFile is a text in a private directory, where an editor may leave its own files too.
type EditFile string

// NewEditFile writes a text to a new file.
func NewEditFile(text string) (EditFile, error) {
	dir, err := os.MkdirTemp("", "limpet-edit-*")
	if err != nil {
		return "", err
	}
	f := EditFile(filepath.Join(dir, "object.yaml"))
	return f, os.WriteFile(string(f), []byte(text), 0o600)
}

// Editor returns the editor of the user on the file: $VISUAL, $EDITOR, else vi; nil when there is
// none.
func (f EditFile) Editor(ctx context.Context, env func(string) string) *exec.Cmd {
	for _, words := range []string{env("VISUAL"), env("EDITOR"), "vi"} {
		if call := strings.Fields(words); len(call) > 0 {
			if _, err := exec.LookPath(call[0]); err == nil {
				return interruptible(exec.CommandContext(ctx, call[0], append(call[1:], string(f))...))
			}
		}
	}
	return nil
}

// interruptible has a program interrupted when its context ends, and killed when it does not end
// then.
func interruptible(c *exec.Cmd) *exec.Cmd {
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, 2*time.Second
	return c
}

// Text returns the text after the edit. One that is empty is that before: the user gave up.
func (f EditFile) Text(before string) (string, error) {
	data, err := os.ReadFile(string(f))
	if strings.TrimSpace(string(data)) == "" {
		return before, err
	}
	return string(data), err
}

// Remove removes the file and what the editor has left beside it.
func (f EditFile) Remove() error { return os.RemoveAll(filepath.Dir(string(f))) }

type (
	editMsg struct { // the text of the object is known
		edit snapshot.Edit
		file EditFile
		err  error
	}
	editedMsg editMsg // the editor has ended
)

// edit reads the object for the editor, or applies the change of the user.
func (m *model) edit(out screen.Outcome) tea.Cmd {
	e := *out.Edit
	if !e.Apply && EditFile("").Editor(m.ctx, m.env) == nil {
		m.state = m.state.CopyEdit(out, "no editor: set $VISUAL or $EDITOR")
		return tea.SetClipboard(out.EditLine)
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, actTimeout)
		defer cancel()
		if e.Apply {
			_, err := m.src.Edit(ctx, e)
			return actedMsg{err}
		}
		now, err := m.src.Edit(ctx, snapshot.Edit{Subject: e.Subject})
		if e.Before = now.Text; e.After == "" {
			e.After = now.Text
		}
		file := EditFile("")
		if err == nil {
			file, err = NewEditFile(e.After)
		}
		return editMsg{e, file, err}
	}
}

func (m *model) openEditor(msg editMsg) tea.Cmd {
	if msg.err != nil {
		m.state = m.state.Fail(msg.err.Error())
		return nil
	}
	return tea.ExecProcess(msg.file.Editor(m.ctx, m.env), func(err error) tea.Msg {
		if err == nil {
			msg.edit.After, err = msg.file.Text(msg.edit.Before)
		}
		_ = msg.file.Remove() // a file in the temporary directory of the host
		return editedMsg{msg.edit, msg.file, err}
	})
}
