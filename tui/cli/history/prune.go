package history

import (
	"context"
	"strconv"
	"time"

	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type pruneCmd struct {
	OlderThan *time.Duration `name:"older-than" xor:"what" help:"Remove jobs that finished longer ago than this."`
	Before    string         `xor:"what" help:"Remove jobs that finished before this: RFC 3339 time, or 24h." placeholder:"TIME"`
	Keep      *string        `xor:"what" help:"Keep the newest N, remove the others." placeholder:"N"`
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
			"say which records: --older-than, --before or --keep")
	}
	what := "the records of all jobs that finished before " + before.UTC().Format(time.RFC3339)
	if c.Keep != nil {
		what = "all records but the newest " + strconv.Itoa(keep)
	}
	if err := e.Confirm(ctx, "This removes "+what+" for good."); err != nil {
		return err
	}
	return e.With(ctx, command.Needs{Store: true}, func(s *command.Session) (err error) {
		n := 0
		if c.Keep != nil {
			n, err = s.Store.TrimHistory(ctx, keep)
		} else {
			n, err = s.Store.PruneHistory(ctx, before)
		}
		if err != nil {
			return err
		}
		return e.PrintDone(map[string]int{"removed": n}, strconv.Itoa(n), "%s removed", text.Plural(n, "record"))
	})
}
