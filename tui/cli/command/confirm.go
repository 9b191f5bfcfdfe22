package command

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"limpet/sync/text"
)

// Confirm asks on a terminal whether to go on; any answer but yes ends the command with nothing changed. Off a
// terminal, and with --yes, it does not ask.
func (e *Env) Confirm(ctx context.Context, consequence string) error {
	if e.Flags.Yes || !IsTerminal(e.In) || !IsTerminal(e.Err) {
		return nil
	}
	fmt.Fprintf(e.Err, "%s Go on? [y/N] ", text.Clean(consequence))
	answer := make(chan string, 1)
	// A read of a terminal cannot be cancelled: after Ctrl-C it ends with the process.
	go func() {
		line, _ := bufio.NewReader(e.In).ReadString('\n') // no answer before the end of input is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(e.Err)
		return context.Cause(ctx)
	case txt := <-answer:
		if txt == "y" || txt == "yes" {
			return nil
		}
	}
	return Errorf(ExitCancelled, e.Invocation.Again("--yes", "")+"    # does not ask", "nothing was changed")
}
