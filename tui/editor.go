package tui

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"limpet/sync/snapshot"
	"limpet/tui/screen"
)

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

// Editor returns the editor of the user on the file: $VISUAL, $EDITOR, else vi; nil when there is none.
func (f EditFile) Editor(ctx context.Context, env func(string) string) *exec.Cmd {
	for _, words := range []string{env("VISUAL"), env("EDITOR"), "vi"} {
		if call := strings.Fields(words); len(call) > 0 {
			if _, err := exec.LookPath(call[0]); err == nil {
				c := exec.CommandContext(ctx, call[0], append(call[1:], string(f))...)
				c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, 2*time.Second
				return c
			}
		}
	}
	return nil
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
