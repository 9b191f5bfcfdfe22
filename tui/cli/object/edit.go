package object

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui"
	"limpet/tui/cli/command"
)

// EditCommand is 'limpet edit'.
type EditCommand struct {
	Kind string `arg:"" help:"Kind of the object, as for get."`
	Name string `arg:"" help:"Name of the object."`

	Force bool `help:"Change an object that a file of --manifests declares, too."`
}

func (c EditCommand) Run(ctx context.Context, e *command.Env) (err error) {
	k, version, err := KindNamed(c.Kind)
	if err != nil {
		return err
	}
	again := "limpet apply -f FILE"
	if !e.Flags.Yes && (!command.IsTerminal(e.In) || !command.IsTerminal(e.Err)) {
		return command.Usagef(again, "edit asks on a terminal, and there is none; --yes does not ask")
	}
	if k.Kind == "Secret" {
		return command.Usagef(again, "a Secret cannot be edited: its values would be in the file and in the difference")
	}
	edit := snapshot.Edit{Subject: snapshot.Subject{Kind: k.Singular, Name: c.Name}}
	step := func(out *snapshot.Edited) error {
		return e.With(ctx, command.Needs{API: true, Group: k.Group}, func(s *command.Session) error {
			res, err := Resource(ctx, s, k, version)
			if err != nil {
				return err
			}
			if edit.Before == "" {
				u, err := e.FindObject(ctx, s, res, c.Name)
				if err == nil {
					err = OwnedByFile(u, k, "edit "+k.Singular+" "+text.ShellWord(c.Name), c.Force)
				}
				if err != nil {
					return err
				}
				edit.Namespace, edit.UID = u.GetNamespace(), string(u.GetUID())
			}
			*out, err = control.Edit(ctx, s.Client, res, edit)
			return err
		})
	}
	var got snapshot.Edited
	if err := step(&got); err != nil {
		return err
	}
	edit.Before = got.Text
	file, err := tui.NewEditFile(got.Text)
	if err != nil {
		return err
	}
	defer func() {
		now, _ := file.Text(edit.Before)
		no, is := errors.AsType[*command.Error](err)
		if err == nil || now == edit.Before || is && no.Code == command.ExitCancelled {
			_ = file.Remove()
			return
		}
		err = fmt.Errorf("%w; your text is in %s", err, file)
	}()
	editor := file.Editor(ctx, e.Getenv)
	if editor == nil {
		return command.Usagef(again, "no editor: set $VISUAL or $EDITOR")
	}
	editor.Stdin, editor.Stdout, editor.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := editor.Run(); err != nil {
		return fmt.Errorf("editor: %w", err)
	}
	if edit.After, err = file.Text(edit.Before); err != nil {
		return err
	}
	if err := step(&got); err != nil { // a dry run
		return err
	}
	line := k.Singular + "/" + c.Name
	if len(got.Diff.Lines) == 0 {
		return e.PrintDone(map[string]string{"name": c.Name, "namespace": edit.Namespace, "result": "unchanged"}, line, "%s unchanged", line)
	}
	for _, l := range got.Diff.Lines {
		fmt.Fprintln(e.Err, text.Clean(strings.TrimPrefix(l.Op, "@")+l.Text))
	}
	// The state file is free for others while the question is open.
	if err := e.Confirm(ctx, "This changes "+line+" in namespace "+edit.Namespace+"."); err != nil {
		return err
	}
	edit.Apply = true
	if err := step(&got); err != nil {
		return err
	}
	return e.PrintDone(map[string]string{"name": c.Name, "namespace": edit.Namespace, "result": "configured"}, line, "%s configured", line)
}
