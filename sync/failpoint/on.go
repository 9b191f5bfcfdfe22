//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

const env = "LIMPET_FAILPOINTS"

// ErrFail is what Pass returns at a point with the action error.
var ErrFail = errors.New("failpoint")

// armed are the points at which something happens. Written at the start only.
var armed = map[string]*trap{}

// trap is what happens at a point, at its n-th passage.
type trap struct {
	act  func(point string) error
	at   int64
	seen atomic.Int64
}

var acts = map[string]func(point string) error{
	"kill": func(string) error {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	},
	"exit":  func(string) error { os.Exit(99); return nil },
	"stall": func(string) error { select {} },
	"error": func(point string) error { return fmt.Errorf("%w %s", ErrFail, point) },
}

func init() {
	traps, err := parse(os.Getenv(env))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", env, err)
		os.Exit(2)
	}
	armed = traps
}

// parse reads "point=action[@n],...".
func parse(text string) (map[string]*trap, error) {
	traps := map[string]*trap{}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		point, what, _ := strings.Cut(part, "=")
		action, at, counted := strings.Cut(what, "@")
		n := 1
		var err error
		if counted {
			n, err = strconv.Atoi(at)
		}
		switch {
		case !slices.Contains(Points, point):
			return nil, fmt.Errorf("no point %q", point)
		case acts[action] == nil:
			return nil, fmt.Errorf("no action %q", action)
		case err != nil || n < 1:
			return nil, fmt.Errorf("no passage %q", at)
		}
		traps[point] = &trap{act: acts[action], at: int64(n)}
	}
	return traps, nil
}

// Pass does what is asked for at a point, at the passage it is asked for.
func Pass(point string) error {
	t := armed[point]
	if t == nil || t.seen.Add(1) != t.at {
		return nil
	}
	return t.act(point)
}
