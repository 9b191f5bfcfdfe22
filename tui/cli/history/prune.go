package history

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// pruneCmd removes records by one of its flags.
type pruneCmd struct {
	OlderThan *time.Duration `name:"older-than" xor:"what" help:"Remove the records of jobs that finished longer ago than this."`
	Before    string         `xor:"what" help:"Remove the records of jobs that finished before this: an RFC 3339 time, or a duration such as 24h." placeholder:"TIME"`
	Keep      *string        `xor:"what" help:"Remove all records but the newest so many." placeholder:"N"`
}

func (c pruneCmd) Run(ctx context.Context, e *command.Env) error {
	keep, before, now := 0, time.Time{}, time.Now()
	var err error
	switch {
	case c.OlderThan != nil && *c.OlderThan < 0:
		return command.Usagef("limpet history prune --older-than 24h", "--older-than must not be negative")
	case c.OlderThan != nil:
		before = now.Add(-*c.OlderThan)
	case c.Before != "":
		if before, err = moment("history prune", "--before", c.Before, now); err != nil {
			return err
		}
	case c.Keep != nil:
		n, err := strconv.ParseUint(*c.Keep, 10, 31)
		if err != nil {
			return command.Usagef("limpet history prune --keep 1000", "--keep is %q: it must be a number of records, 0 or more", *c.Keep)
		}
		keep = int(n)
	default:
		return command.Usagef("limpet history prune --older-than 7d",
			"it is not said which records to remove: --older-than, --before or --keep is missing")
	}
	what := "the records of all jobs that finished before " + before.UTC().Format(time.RFC3339)
	if c.Keep != nil {
		what = "all records but the newest " + strconv.Itoa(keep)
	}
	if err := e.Confirm(ctx, "This removes "+what+" for good."); err != nil {
		return err
	}
	return e.With(ctx, command.Needs{Desk: true}, func(s *command.Session) (err error) {
		n := 0
		if c.Keep != nil {
			n, err = s.Store.TrimHistory(ctx, keep)
		} else {
			n, err = s.Store.PruneHistory(ctx, before)
		}
		if err != nil {
			return err
		}
		return e.PrintOne(map[string]int{"removed": n}, strconv.Itoa(n), func(w io.Writer) {
			fmt.Fprintf(w, "%s removed\n", text.Plural(n, "record"))
		})
	})
}
