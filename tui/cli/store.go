package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"limpet/sync/text"
)

type storeCmd struct {
	Info    storeInfoCmd    `cmd:"" help:"Size, schema, counts."`
	Check   storeCheckCmd   `cmd:"" help:"Verify the pages and every record."`
	Compact storeCompactCmd `cmd:"" writes:"" help:"Give free pages back to the file system."`
	Backup  storeBackupCmd  `cmd:"" help:"Write a consistent copy."`
}

type storeInfoCmd struct{}

func (storeInfoCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	info, err := s.Desk.Info(ctx)
	if err != nil {
		return err
	}
	return r.printOne(info, info.Path, func(w io.Writer) {
		history := strconv.Itoa(info.History)
		if info.History > 0 {
			history += fmt.Sprintf(" (%s to %s)", info.Oldest.UTC().Format(time.RFC3339), info.Newest.UTC().Format(time.RFC3339))
		}
		var f fields
		f.add("file", info.Path)
		f.add("size", fmt.Sprintf("%s (%s free inside)", text.Size(info.Bytes), text.Size(info.FreeBytes)))
		f.add("schema", strconv.Itoa(info.Schema))
		f.add("claims", strconv.Itoa(info.Claims))
		f.add("resting", fmt.Sprintf("%s given back, whose attempts and marks are kept", text.Plural(info.Resting, "job")))
		f.add("history", history)
		f.add("objects", fmt.Sprintf("%d at revision %d", info.Objects, info.Revision))
		f.add("secrets", fmt.Sprintf("%d sealed", info.Secrets))
		f.write(w)
	})
}

type storeCheckCmd struct{}

func (storeCheckCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	report, err := s.Desk.Check(ctx)
	if err != nil {
		return err
	}
	if report.Problems == nil {
		report.Problems = []string{}
	}
	mended := rebuiltText(s.report)
	if mended != "" {
		report.Problems = append([]string{mended}, report.Problems...)
	}
	err = r.printOne(report, "", func(w io.Writer) {
		for _, p := range report.Problems {
			fmt.Fprintln(w, text.Clean(p))
		}
		fmt.Fprintf(w, "%s checked, %s\n", text.Plural(report.Frames, "record"), text.Plural(len(report.Problems), "problem"))
	})
	switch {
	case err == nil && len(report.Problems) == 1 && mended != "":
		err = fail(ExitStore, rebuiltNext+"    # says what is there; the old file is kept", "the state file was damaged; a new one is in its place, and is sound")
	case err == nil && len(report.Problems) > 0:
		err = fail(ExitStore, "limpet store backup FILE    # then start limpet: it puts the damaged file aside and builds a new one", "the state file has %s", text.Plural(len(report.Problems), "problem"))
	}
	return err
}

type storeCompactCmd struct{}

func (storeCompactCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	before, after, err := s.Desk.Compact(ctx)
	if err != nil {
		return err
	}
	return r.printOne(map[string]int64{"before": before, "after": after}, "", func(w io.Writer) {
		fmt.Fprintf(w, "%s -> %s\n", text.Size(before), text.Size(after))
	})
}

type storeBackupCmd struct {
	File string `arg:"" help:"Where to write the copy; - is stdout."`
}

func (c storeBackupCmd) Run(ctx context.Context, r *run) error {
	if c.File != "-" {
		if err := writable(c.File, "limpet store backup"); err != nil {
			return err
		}
	}
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	if c.File == "-" {
		_, err = s.Desk.Backup(ctx, r.Out)
		return err
	}
	// The copy is 0600, as the file is: it holds sealed secrets.
	n, err := writeAtomic(c.File, func(w io.Writer) (int64, error) { return s.Desk.Backup(ctx, w) })
	if err != nil {
		return err
	}
	return r.printOne(map[string]any{"file": c.File, "bytes": n}, c.File, func(w io.Writer) {
		fmt.Fprintf(w, "%s written to %s\n", text.Size(n), c.File)
	})
}
