package status

import (
	"context"
	"errors"
	"fmt"

	"limpet/sync/control"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// NotifyCommand is 'limpet notify'.
type NotifyCommand struct {
	Test notifyTest `cmd:"" writes:"" help:"Send a test to each target and print what it answers."`
}

type notifyTest struct {
	Target string `arg:"" optional:"" help:"Part of the name of a target. Default: all of them."`
}

func (c notifyTest) Run(ctx context.Context, e *command.Env) error {
	results, err := c.send(ctx, e)
	if err != nil {
		return err
	}
	t, failed := command.Table{Columns: []string{"TARGET", "RESULT", "DETAIL"}}, 0
	for _, r := range results {
		result := "ok"
		if r.Error != "" {
			result = "failed"
			failed++
		}
		t.Add("", r.Target, r.Target, result, text.OrDash(r.Error))
	}
	if err := e.PrintList(results, t); err != nil || failed == 0 {
		return err
	}
	return command.Errorf(command.ExitError, "", "%s failed", text.Plural(failed, "target"))
}

func (c notifyTest) send(ctx context.Context, e *command.Env) ([]notify.Result, error) {
	typed := func(flag string, set bool) bool {
		_, elsewhere := e.Config.From[flag]
		return set && !elsewhere
	}
	own := typed("notify", len(e.Flags.Notify) > 0) || typed("loki-url", e.Flags.LokiURL != "")
	var results []notify.Result
	_, daemon, err := e.Attach(ctx)
	switch {
	case err == nil && !own:
		results, err = daemon.TestNotify(ctx, c.Target)
	case err == nil || errors.Is(err, control.ErrNoDaemon):
		client := &netx.Client{AllowInsecure: true, UserAgent: "limpet/" + command.Version, Timeout: notify.Timeout}
		o := notify.Options{Logger: e.Log, Client: client}
		if o.Targets, err = e.Flags.NotifyTargets(e.Log); err == nil {
			results, err = o.TestNotify(ctx, c.Target)
		}
	}
	if daemon != nil {
		daemon.Close()
	}
	if err == nil && len(results) == 0 {
		what := "no target of notifications is configured"
		if c.Target != "" {
			what = fmt.Sprintf("no target of notifications has %q in its name", c.Target)
		}
		err = command.Errorf(command.ExitUsage, "limpet help notifications", "%s", what)
	}
	return results, err
}
