// Package store has the commands of the state file.
package store

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Command has the commands of 'limpet store'.
type Command struct {
	Info    infoCmd    `cmd:"" help:"Size, schema, counts."`
	Check   checkCmd   `cmd:"" help:"Verify the pages and every record."`
	Compact compactCmd `cmd:"" writes:"" help:"Give free pages back to the file system."`
	Backup  backupCmd  `cmd:"" help:"Write a consistent copy."`
}

type infoCmd struct{}

func (infoCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{Store: true}, func(s *command.Session) error {
		info, err := s.Store.Info(ctx)
		if err != nil {
			return err
		}
		history := strconv.Itoa(info.History)
		if info.History > 0 {
			history += fmt.Sprintf(" (%s to %s)", info.Oldest.UTC().Format(time.RFC3339), info.Newest.UTC().Format(time.RFC3339))
		}
		var f command.Fields
		f.Add("file", info.Path)
		f.Add("size", fmt.Sprintf("%s (%s free inside)", text.Size(info.Bytes), text.Size(info.FreeBytes)))
		f.Add("schema", strconv.Itoa(info.Schema))
		f.Add("claims", strconv.Itoa(info.Claims))
		f.Add("waiting", fmt.Sprintf("%s to retry; attempts and marks are kept", text.Plural(info.Resting, "job")))
		f.Add("history", history)
		f.Add("objects", fmt.Sprintf("%d at revision %d", info.Objects, info.Revision))
		f.Add("secrets", fmt.Sprintf("%d sealed", info.Secrets))
		return e.PrintOne(info, info.Path, f.Write)
	})
}

type checkCmd struct{}

func (checkCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{Store: true})
	if err != nil {
		return err
	}
	defer s.Close()
	report, err := s.Store.Check(ctx)
	if err != nil {
		return err
	}
	report.Problems = command.List(report.Problems)
	mended := command.RebuiltText(s.Opening)
	if mended != "" {
		report.Problems = append([]string{mended}, report.Problems...)
	}
	err = e.PrintOne(report, "", func(w io.Writer) {
		for _, p := range report.Problems {
			fmt.Fprintln(w, text.Clean(p))
		}
		fmt.Fprintf(w, "%s checked, %s\n", text.Plural(report.Frames, "record"), text.Plural(len(report.Problems), "problem"))
	})
	switch {
	case err == nil && len(report.Problems) == 1 && mended != "":
		err = command.Errorf(command.ExitStore, command.RebuiltNext+"    # says what is there; the old file is kept",
			"the state file was damaged; it was rebuilt")
	case err == nil && len(report.Problems) > 0:
		err = command.Errorf(command.ExitStore,
			"limpet store backup FILE    # then start limpet: it puts the damaged file aside and builds a new one", "the state file has %s",
			text.Plural(len(report.Problems), "problem"))
	}
	return err
}

type compactCmd struct{}

func (compactCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{Store: true}, func(s *command.Session) error {
		before, after, err := s.Store.Compact(ctx)
		if err != nil {
			return err
		}
		return e.PrintDone(map[string]int64{"before": before, "after": after}, "", "%s -> %s", text.Size(before), text.Size(after))
	})
}

type backupCmd struct {
	File string `arg:"" help:"Where to write the copy; - is stdout."`
}

func (c backupCmd) Run(ctx context.Context, e *command.Env) error {
	if c.File != "-" {
		if err := command.Writable(c.File, "limpet store backup"); err != nil {
			return err
		}
	}
	s, err := e.Open(ctx, command.Needs{Store: true})
	if err != nil {
		return err
	}
	defer s.Close()
	if c.File == "-" {
		_, err = s.Store.Backup(ctx, e.Out)
		return err
	}
	// The copy has mode 0600, as the file has: it holds sealed secrets.
	n, err := command.WriteAtomic(c.File, func(w io.Writer) (int64, error) { return s.Store.Backup(ctx, w) })
	if err != nil {
		return err
	}
	return e.PrintDone(map[string]any{"file": c.File, "bytes": n}, c.File, "%s written to %s", text.Size(n), c.File)
}
