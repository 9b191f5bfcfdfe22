package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"limpet/state"
	"limpet/sync/netx"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Checks of this host.

func (p *examination) checkConfig(context.Context) check {
	c := check{"config", checkOK, "", ""}
	switch {
	case p.Config.Bad != nil:
		_, next := command.Classify(p.Config.Bad)
		return check{"config", checkFail, p.Config.Bad.Error(), cmp.Or(next, "limpet config validate")}
	case p.Config.Path == "":
		c.Found = "no config file; flags, LIMPET_ variables and defaults"
	default:
		c.Found = fmt.Sprintf("%s, %s", p.Config.Path, text.Plural(len(p.Config.Values), "setting"))
	}
	var proxies []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if p.Getenv(name) != "" || p.Getenv(strings.ToLower(name)) != "" {
			proxies = append(proxies, name)
		}
	}
	if len(proxies) > 0 {
		c.Found += "; through a proxy: " + strings.Join(proxies, ", ")
	}
	// Faults of proxies come before those of NO_PROXY and are more severe.
	if faults := netx.ReadEnvironment(p.Getenv).Faults(); len(faults) > 0 {
		c.Result, c.Found, c.Next = checkFail, faults[0].Error(), "correct "+faults[0].Name+" here, and for the daemon: systemctl edit limpet"
		if strings.EqualFold(faults[0].Name, "NO_PROXY") {
			c.Result = checkWarn
		}
	}
	return c
}

// largeState is the size from which a state file is a warning: it is verified after each power cut, at about
// 100 MB/s.
const largeState = 1 << 30

func (p *examination) checkState(context.Context) check {
	c := check{"state", checkOK, p.path, ""}
	switch {
	case !p.exists && p.daemon == nil:
		c.Found += " is made at the first start"
		return c
	case p.openErr != nil:
		c.Result, c.Found = checkFail, p.openErr.Error()
		if c.Next, _ = command.StoreHint(p.openErr); c.Next == "" {
			c.Next = "limpet store check"
		}
		if locked, ok := errors.AsType[*state.LockedError](p.openErr); ok {
			c.Result, c.Found = checkWarn, locked.Error()
		}
		return c
	case p.report.Quarantined != "":
		c.Result, c.Found, c.Next = checkFail, command.RebuiltText(p.report), command.RebuiltNext+"    # says what is there; the old file is kept"
		return c
	}
	if p.info != nil {
		c.Found += fmt.Sprintf(", %s, %s in the history", text.Size(p.info.Bytes), text.Plural(p.info.History, "job"))
		if p.info.Bytes > largeState {
			c.Result, c.Next = checkWarn, "limpet history prune --older-than 7d"
		}
	}
	if p.report.Unclean {
		c.Found += "; it was not closed last time, and is sound"
	}
	if p.exposed != "" {
		c.Result, c.Found, c.Next = checkFail, p.exposed, p.exposedFix
	}
	if again, _ := p.tooOpen(); p.exposed != "" && again == "" {
		c.Result, c.Found, c.Next = checkWarn, p.exposed+"; opening it has put that right", ""
	}
	return c
}

// tooOpen returns which of the state file, its key and their directory is open to others, and the fix.
func (p *examination) tooOpen() (fault, next string) {
	for _, place := range p.places() {
		if fault, next = tooOpen(place.path, place.never); fault != "" {
			break
		}
	}
	return fault, next
}

// place is a file or directory with the rights that only its owner may have.
type place struct {
	path  string
	never fs.FileMode
}

// places are those of the state.
func (p *examination) places() []place {
	return []place{{filepath.Dir(p.path), 0o022}, {p.path, 0o077}, {p.path + ".key", 0o077}}
}

// tooOpen reports a file that is open to others, and the fix; "" when it is not, or does not exist.
func tooOpen(path string, never fs.FileMode) (fault, next string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&never == 0 {
		return "", ""
	}
	next = fmt.Sprintf("chmod %o %s", info.Mode().Perm()&^never, command.ShellWord(path))
	if info.Mode()&fs.ModeSticky != 0 { // it is shared on purpose
		next = "limpet --state /var/lib/limpet/limpet.db"
	}
	return fmt.Sprintf("%s is open to others (mode %04o)", path, info.Mode().Perm()), next
}

const (
	// lowDisk is the free space below which a state file may not be able to grow: bbolt doubles its file.
	lowDisk = 256 << 20
	// noDisk is too little for any mirror.
	noDisk = 32 << 20
)

func (p *examination) checkDisk(context.Context) check {
	dir := filepath.Dir(p.path)
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return diskText(dir, diskOf(dir))
}

// disk describes a file system.
type disk struct {
	free int64  // available to this user; negative = unknown
	kind string // "" = an ordinary one, or not known
	gone string // when all of it goes; "" = it stays
}

func diskText(dir string, d disk) check {
	c := check{"disk", checkOK, "", ""}
	if d.free < 0 {
		c.Result, c.Found = checkSkipped, "this system does not tell how full it is"
		return c
	}
	c.Found = fmt.Sprintf("%s free at %s", text.Size(d.free), dir)
	if d.kind != "" {
		c.Found += ", " + d.kind
	}
	switch {
	case d.free < noDisk:
		c.Result, c.Next = checkFail, "df -h "+command.ShellWord(dir)
	case d.free < lowDisk:
		c.Result, c.Next = checkWarn, "df -h "+command.ShellWord(dir)
	case d.gone != "":
		c.Result, c.Next = checkWarn, "limpet --state /var/lib/limpet/limpet.db"
		c.Found += ": all is gone " + d.gone
	case d.kind != "":
		c.Result, c.Next = checkWarn, "limpet --state /var/lib/limpet/limpet.db"
		c.Found += ": locks and power cuts are another matter there"
	}
	return c
}

func (p *examination) checkDaemon(context.Context) check {
	c := check{"daemon", checkOK, "", ""}
	if p.unresponsive != nil {
		c.Result, c.Found, c.Next = checkFail, p.unresponsive.Error(), command.UnresponsiveHint(p.unresponsive)
		return c
	}
	if p.daemon == nil {
		c.Result, c.Found, c.Next = checkWarn, "none answers on the socket beside the state file", "limpet --daemon"
		return c
	}
	h := p.daemon.Hello()
	c.Found = fmt.Sprintf("limpet %s, pid %d, up %s", h.Version, h.PID, text.Age(p.now.Sub(h.Started)))
	switch {
	case p.snap == nil:
		c.Result, c.Next = checkFail, "limpet status"
		c.Found += ", but it does not say what it does"
	case h.Version != command.Version:
		c.Result, c.Next = checkWarn, "limpet version    # the daemon is restarted to become this one"
		c.Found += ", and this is " + command.Version
	case p.snap.Problem != "":
		c.Result, c.Next = checkFail, "limpet status"
		c.Found += ": " + p.snap.Problem
	case !p.snap.Agent.Draining.IsZero():
		c.Result, c.Next = checkWarn, "limpet drain --off"
		c.Found += ", drained: it claims nothing"
	}
	return c
}

func (p *examination) checkTerminal(context.Context) check {
	c := check{"terminal", checkOK, "", ""}
	f, ok := p.In.(*os.File)
	if !command.IsTerminal(p.Out) || !ok || !term.IsTerminal(int(f.Fd())) {
		c.Found = "none: without one 'limpet' prints the status"
		return c
	}
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil {
		c.Result, c.Found = checkWarn, "its size is not known: "+err.Error()
		return c
	}
	c = terminalText(c, w, h, p.Getenv)
	out, ok := command.OutFile(p.Out)
	if command.PrintsOnly(p.Getenv) || !ok {
		return c
	}
	if answered, known := answers(f, out, answerTimeout); known && !answered {
		c.Found += ", answers no query, as a serial console does: nothing is asked of it"
	}
	return c
}

// answerTimeout bounds the answer of a terminal: enough for a slow link.
const answerTimeout = 200 * time.Millisecond

// coloursText describes the colours of a terminal by its environment.
func coloursText(env func(string) string) string {
	switch truecolor := env("COLORTERM"); {
	case env("NO_COLOR") != "":
		return "no colours (NO_COLOR)"
	case truecolor == "truecolor" || truecolor == "24bit":
		return "all colours"
	case strings.Contains(env("TERM"), "256color"):
		return "256 colours"
	}
	return "16 colours"
}

// terminalText judges a terminal by its size and environment.
func terminalText(c check, w, h int, env func(string) string) check {
	c.Found = fmt.Sprintf("%dx%d, TERM %s, %s", w, h, text.OrDash(env("TERM")), coloursText(env))
	switch {
	case command.PrintsOnly(env):
		c.Result, c.Next = checkWarn, "TERM=xterm-256color limpet"
		c.Found += ": it can only print, so there is no dashboard"
	case w < 40 || h < 10:
		c.Result, c.Found = checkWarn, c.Found+": the dashboard needs 40x10"
	case !text.UTF8(env):
		c.Result, c.Next = checkWarn, "LC_ALL=C.UTF-8 limpet"
		c.Found += ", no UTF-8: the dashboard draws in ASCII"
	}
	return c
}
