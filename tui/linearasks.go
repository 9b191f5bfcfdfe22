package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"limpet/sync/text"
)

// The blocked screen and the set-up for who has them read out: their words, and
// numbered lists in the place of keys.

// blockedWords are what may be typed for a key of the blocked screen.
var blockedWords = map[string][]string{"w": {"w", "wait", "open"}, "o": {"o", "copy"}, "q": {"q", "quit", "exit"}}

// spoken is the screen as it is read out.
func (b blocked) spoken() []string {
	var out []string
	for _, l := range b.lines() {
		if l.text != "" {
			out = append(out, l.text)
		}
	}
	if !b.waiting.IsZero() && !b.free || b.copying {
		return out
	}
	for i, hint := range b.hints() {
		out = append(out, fmt.Sprintf("%d: %s", i+1, hint[1]))
	}
	return append(out, "Type a number.")
}

// differs says that there is something new to be said: another try alone is not.
func (b blocked) differs(was blocked) bool {
	return b.holder != was.holder || b.free != was.free || b.copying != was.copying || b.failed != was.failed || b.waiting != was.waiting
}

// typed is the key that a line means; "" = none.
func (b blocked) typed(line string) string {
	line = strings.ToLower(strings.TrimSpace(line))
	hints := b.hints()
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(hints) {
		return hints[n-1][0]
	}
	for key, words := range blockedWords {
		if slices.Contains(words, line) {
			return key
		}
	}
	return ""
}

// runBlockedLinear is RunBlocked for who has it read out. The end of the input
// leaves.
func runBlockedLinear(ctx context.Context, d Door, o Options) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	in := readTyped(o.In)
	defer in.stop()
	b := blocked{holder: d.Holder.clean(), works: d.Works, canCopy: d.Copy != nil, now: time.Now()}
	looks, copies := make(chan Look), make(chan error, 1)
	beside.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case looks <- d.Look(ctx):
			case <-ctx.Done():
				return
			}
		}
	})
	was := b
	for first := true; ; first = false {
		if first || b.differs(was) {
			for _, line := range b.spoken() {
				if _, err := fmt.Fprintln(o.text(), line); err != nil {
					return Leave, fmt.Errorf("dashboard: %w", err)
				}
			}
		}
		was = b
		select {
		case <-ctx.Done():
			return Leave, nil
		case look := <-looks:
			var enter bool
			if b, enter = b.looked(look, time.Now()); enter {
				return Enter, nil
			}
		case err := <-copies:
			if err == nil {
				return Copied, nil
			}
			b.copying, b.failed = false, text.Clean(err.Error())
		case line, more := <-in.next():
			in.took()
			key := "q"
			if more {
				key = b.typed(line)
			}
			next, copying, answer, ends := b.press(key)
			b = next
			if ends {
				return answer, nil
			}
			if copying {
				beside.Go(func() { copies <- d.Copy(ctx) })
			}
		}
	}
}

// setUpQuestions are what is asked for, one after the other.
var setUpQuestions = [...]string{
	askServer: "1 of 3. Where is the server? Type the address of Grafana, or of a Kubernetes API with its resources. The word leave changes nothing.",
	askToken:  "2 of 3. Who are you? Type the path of a file with the token; it begins with /. The word back leads back.",
}

// spoken is what is asked, or what was found.
func (u setUp) spoken() []string {
	var out []string
	if u.wrong != "" {
		out = append(out, u.wrong+".")
	}
	switch {
	case u.step != askTrial:
		return append(out, setUpQuestions[u.step])
	case u.busy && u.tried:
		return append(out, "Writing "+u.file+".")
	case u.busy:
		return append(out, "3 of 3. Trying "+u.server+".")
	case u.failed:
		return append(out, "It does not work: "+u.found, "1: back to the answers", "2: write them all the same to "+u.file, "Type a number, or leave.")
	}
	return append(out, "It works: "+u.found, "1: back to the answers", "2: write "+u.file+"; limpet then begins to work with it", "Type a number, or leave.")
}

// enter takes a typed line. A token itself is not taken: it would be on the terminal,
// and be read out.
func (u setUp) enter(line string) (setUp, wish) {
	line = strings.TrimSpace(text.Clean(line))
	switch word := strings.ToLower(line); {
	case word == "leave" || word == "quit":
		return u, wishLeave
	case line == "" || u.busy:
		return u, wishNothing
	case word == "back" || u.step == askTrial && word == "1":
		return u.press("esc", "")
	case u.step == askTrial && word == "2":
		return u.press("y", "")
	case u.step == askTrial:
		return u, wishNothing
	case u.step == askServer:
		u.server = line
	default:
		u.token = line
		if !u.isPath() {
			u.token, u.wrong = "", "a token that is typed would be read out: put it into a file that only you can read, and type the path of that"
			return u, wishNothing
		}
	}
	return u.press("enter", "")
}

// runSetUpLinear is RunSetUp for who has it read out. The end of the input leaves.
func runSetUpLinear(ctx context.Context, do SetUp, o Options) (saved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	in := readTyped(o.In)
	defer in.stop()
	u := setUp{file: text.Clean(do.File)}
	tries, saves := make(chan triedMsg), make(chan error)
	for said := (setUp{busy: true}); ; {
		if u != said {
			for _, line := range u.spoken() {
				if _, err := fmt.Fprintln(o.text(), line); err != nil {
					return false, fmt.Errorf("dashboard: %w", err)
				}
			}
		}
		u.wrong = ""
		said = u
		var lines <-chan string
		if !u.busy { // the next answer is to what is found
			lines = in.next()
		}
		select {
		case <-ctx.Done():
			return false, nil
		case msg := <-tries:
			u = u.took(msg)
		case err := <-saves:
			if err == nil {
				return true, nil
			}
			u.busy, u.failed, u.found = false, true, text.Clean(err.Error())
		case line, more := <-lines:
			in.took()
			want := wishLeave
			if more {
				u, want = u.enter(line)
			}
			asked := u
			switch want {
			case wishLeave:
				return false, nil
			case wishTry:
				beside.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, trialTimeout)
					defer cancel()
					found, err := do.Try(ctx, asked.settings())
					select {
					case tries <- triedMsg{asked, found, err}:
					case <-ctx.Done():
					}
				})
			case wishSave:
				beside.Go(func() {
					err := do.Save(asked.settings())
					select {
					case saves <- err:
					case <-ctx.Done():
					}
				})
			}
		}
	}
}
