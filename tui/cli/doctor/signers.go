package doctor

import (
	"context"
	"fmt"

	"limpet/sync/agent"
	"limpet/sync/auth"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

// checkSigners checks the public keys for the policies of the config file and for each repository that
// requires signatures.
func (p *examination) checkSigners(ctx context.Context, repos []repository) check {
	c := check{"signers", checkOK, "", ""}
	policies, err := p.GitVerify()
	var rules []auth.Rule
	if err == nil {
		rules, err = p.GitRules()
	}
	if err != nil {
		return check{c.Name, checkFail, err.Error(), "limpet config validate"}
	}
	dir := p.Flags.CredentialsDir
	if dir == "" {
		dir = p.Getenv("CREDENTIALS_DIRECTORY")
	}
	signers := agent.SignersAt(p.client, dir, rules, policies)
	var found signerResults
	for i := range policies {
		look, err := signers.LookAtRule(&policies[i], p.now)
		found.add("verification rule "+policies[i].Name(), "limpet config show", look, err)
	}
	for _, r := range repos {
		if r.object == nil {
			continue
		}
		look, err := signers.Look(ctx, r.namespace, r.name, *r.object, p.now)
		if err != nil && worker.Passing(err) {
			found.unseen++
			continue
		}
		found.add(r.namespace+"/"+r.name, command.CommandFor(r.namespace, "repo test "+r.name), look, err)
	}
	return found.judge(c, repos == nil)
}

// signerResults collects the results, with the first of each severity.
type signerResults struct {
	asking, bad, soon, unseen int
	badText, badNext          string
	soonText, soonNext        string
}

func (f *signerResults) add(who, next string, look worker.SignersLook, err error) {
	if err == nil && look.Text == "" {
		return
	}
	f.asking++
	switch {
	case err != nil:
		if f.bad++; f.bad == 1 {
			f.badText, f.badNext = who+": "+err.Error(), next
		}
	case look.Soon != "":
		if f.soon++; f.soon == 1 {
			f.soonText, f.soonNext = who+": "+look.Soon, next
		}
	}
}

func (f *signerResults) judge(c check, unknown bool) check {
	switch {
	case f.bad > 0:
		c.Result, c.Next = checkFail, f.badNext
		c.Found = fmt.Sprintf("%d of %d that ask for signatures have no keys of use here, the first is %s", f.bad, f.asking, f.badText)
	case f.soon > 0:
		c.Result, c.Next = checkWarn, f.soonNext
		c.Found = fmt.Sprintf("keys end within %d days, or have ended, for %d of %d that ask for signatures, the first is %s",
			int(worker.EndsSoon.Hours()/24), f.soon, f.asking, f.soonText)
	case f.asking == 0:
		c.Found = "nothing has to be signed"
	default:
		c.Found = fmt.Sprintf("%d of the rules and repositories ask for signatures, and have keys that may sign", f.asking)
	}
	if f.unseen > 0 {
		c.Found += fmt.Sprintf("; of %d the keys cannot be read now", f.unseen)
	}
	if unknown {
		c.Found += "; which repositories ask is not known"
	}
	return c
}
