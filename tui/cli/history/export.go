package history

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"limpet/state"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type exportCmd struct {
	filter
	File string `help:"Write to this file, atomically. Default: stdout." placeholder:"FILE" type:"path"`
}

// exportPage is how many records are in memory at once. A record has some kilobytes, at most about
// 300.
const exportPage = 100

// Run writes page by page, also over the socket of a daemon, so that neither process holds more
// than one page and no read of the state file takes longer than a page. Jobs that end during the
// export are not included.
func (c exportCmd) Run(ctx context.Context, e *command.Env) error {
	form, ok := exportForms[e.Flags.Output]
	if !ok {
		return command.Usagef("limpet history export -o jsonl", "history export writes JSON: -o jsonl or -o json, not -o %s",
			e.Flags.Output)
	}
	q, err := c.query(e.Flags)
	if err != nil {
		return err
	}
	if c.File != "" {
		if err := command.Writable(c.File, "limpet history export --file"); err != nil {
			return err
		}
	}
	form.pick = e.Flags.PickEach
	return e.With(ctx, command.Needs{Store: true}, func(s *command.Session) error {
		if c.File == "" {
			_, err := form.export(ctx, e.Out, q, s.Store)
			return err
		}
		n := 0
		_, err = command.WriteAtomic(c.File, func(w io.Writer) (_ int64, err error) {
			n, err = form.export(ctx, w, q, s.Store)
			return 0, err
		})
		if err != nil {
			return fmt.Errorf("export history: %w", err)
		}
		e.Notef("%s written to %s", text.Plural(n, "record"), c.File)
		return nil
	})
}

// exportForm is what stands around and between the records, one on each line.
type exportForm struct {
	begin, between, end string
	pick                func(records any) ([]any, error)
}

var exportForms = map[string]exportForm{
	"table": {}, // the default
	"jsonl": {},
	"json":  {begin: "{\"items\":[\n", between: ",", end: "]}\n"},
}

// export writes all records that q selects and returns their number.
func (f exportForm) export(ctx context.Context, w io.Writer, q state.Query, store control.History) (n int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	lines := command.NewJSON(out)
	_, _ = out.WriteString(f.begin) // the first error is kept and returned by Flush
	for page, err := range control.Pages(ctx, store, q, exportPage) {
		if err != nil {
			return n, err
		}
		for i := range page {
			control.RedactRecord(&page[i])
		}
		items, err := f.pick(page)
		if err != nil {
			return n, err
		}
		for _, rec := range items {
			if n > 0 {
				_, _ = out.WriteString(f.between)
			}
			if err := lines.Encode(rec); err != nil {
				return n, err
			}
			n++
		}
	}
	_, _ = out.WriteString(f.end)
	return n, out.Flush()
}
