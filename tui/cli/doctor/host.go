package doctor

import (
	"cmp"
	"context"
	"os"
	"strings"

	"golang.org/x/term"

	"limpet/sync/netx"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/service"
)

// Checks of this host.

func (p *examination) checkConfig(context.Context) check {
	if bad := p.env.Config.Bad; bad != nil {
		_, next := command.Classify(bad)
		return failed(cmp.Or(next, "limpet config validate"), "%v", bad)
	}
	_, err := p.env.GitRules()
	if err == nil {
		_, err = p.env.GitVerify()
	}
	if err != nil {
		return failed("limpet config validate", "%v", err)
	}
	// Faults of proxies come before those of NO_PROXY and are more severe.
	if faults := netx.ReadEnvironment(p.env.Getenv).Faults(); len(faults) > 0 {
		next := "correct " + faults[0].Name + " here, and for the daemon: systemctl edit limpet"
		if strings.EqualFold(faults[0].Name, "NO_PROXY") {
			return warned(next, "%v", faults[0])
		}
		return failed(next, "%v", faults[0])
	}
	if p.env.Config.Path == "" {
		return passed("no config file; flags, LIMPET_ variables and defaults")
	}
	return passed("%s, %s", p.env.Config.Path, text.Plural(len(p.env.Config.Values), "setting"))
}

func (p *examination) checkTerminal(context.Context) check {
	f, ok := p.env.In.(*os.File)
	if !command.IsTerminal(p.env.Out) || !ok || !term.IsTerminal(int(f.Fd())) {
		return passed("none: without one 'limpet' prints the status")
	}
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return warned("", "its size is not known: %v", err)
	}
	return judgeTerminal(w, h, p.env.Getenv)
}

func judgeTerminal(w, h int, env func(string) string) check {
	c := passed("%dx%d, TERM %s", w, h, text.OrDash(env("TERM")))
	switch {
	case command.PrintsOnly(env):
		return c.but("TERM=xterm-256color limpet", ": it can only print, so there is no dashboard")
	case w < 40 || h < 10:
		return c.but("", ": the dashboard needs 40x10")
	case !text.UTF8(env):
		return c.but("LC_ALL=C.UTF-8 limpet", ", no UTF-8: the dashboard draws in ASCII")
	}
	return c
}

// checkService finds the unit of this user, else of the host, and compares its program with this
// one.
func (p *examination) checkService(ctx context.Context) check {
	for _, user := range []bool{true, false} {
		switch unit, fault, next := service.Examine(ctx, user, p.env.Getenv); {
		case fault != "":
			return warned(next, "%s: %s", unit, fault)
		case unit != "":
			return passed("%s starts this program", unit)
		}
	}
	return skipped("no systemd unit is installed")
}
