package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"

	"limpet/sync/api"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/tui/cli/command"
)

// program is how the name of a target begins that is a program.
const program = "exec:"

// checkNotifications looks for the targets of notifications and the heartbeat, of this command and
// of the daemon. It sends nothing: 'limpet notify test' does.
func (p *examination) checkNotifications(ctx context.Context) check {
	targets, err := p.env.Flags.NotifyTargets(p.env.Log)
	if p.env.Flags.Heartbeat != "" && err == nil {
		var beat *notify.Target
		beat, err = notify.ParseHeartbeat(p.env.Flags.Heartbeat, p.env.Flags.AllowInsecureGit)
		targets = append(targets, beat)
	}
	if err != nil {
		return failed("limpet help notifications", "%s", command.ErrorText(err))
	}
	var names []string
	for _, t := range targets {
		names = append(names, t.Name)
	}
	if p.snap != nil {
		for _, t := range p.snap.Agent.Notifications {
			names = append(names, t.Target)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, ":") }) // the API itself
	return findAll(ctx, names, failed("limpet notify test", ""))
}

// checkPrograms looks for the programs of sinks, those that are permitted and those that objects
// name.
func (p *examination) checkPrograms(ctx context.Context) check {
	programs := slices.Clone(p.env.Flags.SinkExec)
	for _, kind := range []command.Resource{api.Repositories, api.GitRepositories} {
		if !p.api.usable() {
			break
		}
		objects, _ := p.s.List(ctx, kind, p.env.Flags.ListNamespace(), "", nil, maxRepositories) // other checks tell why not
		for i := range objects {
			if argv, err := api.ParseExec(api.Annotation(&objects[i], api.AnnoSinkExec)); err == nil {
				programs = append(programs, argv[0])
			}
		}
	}
	for i := range programs {
		programs[i] = program + programs[i]
	}
	return findAll(ctx, programs, warned("limpet help sinks", ""))
}

// findAll looks for all targets. When some are missing it returns bad with their number and the
// first error.
func findAll(ctx context.Context, names []string, bad check) check {
	slices.Sort(names)
	names = slices.Compact(names)
	errs := forEach(names, func(_ int, name string) error {
		err := find(ctx, name)
		if err != nil {
			err = fmt.Errorf("%s (%s)", name, command.ErrorText(err))
		}
		return err
	})
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		bad.Found = fmt.Sprintf("%d of %d not there, the first is %v", len(errs), len(names), errs[0])
		return bad
	}
	return passed("%s", cmp.Or(strings.Join(names, ", "), "none"))
}

// find looks for a program, or opens and closes a connection to the host of a target, or to its
// proxy.
func find(ctx context.Context, name string) error {
	name = name[:cmp.Or(max(strings.LastIndexByte(name, '#'), 0), len(name))] // without its number
	if file, ok := strings.CutPrefix(name, program); ok {
		_, err := exec.LookPath(file)
		return err
	}
	u, err := url.Parse(name[strings.IndexByte(name, '+')+1:]) // without its kind
	if err != nil {
		return err
	}
	proxy, err := netx.FromEnvironment(&http.Request{URL: u})
	if err != nil {
		return err
	}
	if proxy != nil || u.Scheme == "http" {
		_, err = dial(ctx, withPort(cmp.Or(proxy, u)))
		return err
	}
	conn, err := new(tls.Dialer).DialContext(ctx, "tcp", withPort(u))
	if err != nil {
		return err
	}
	return conn.Close()
}
