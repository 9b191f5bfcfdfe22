package doctor

import (
	"context"
	"fmt"

	"limpet/sync/agent"
	"limpet/sync/apiserver"
	"limpet/sync/signature"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

// checkSigning checks the keys that sign commits, for each repository that has one, requires one, or verifies
// its commits and is written to.
func (p *examination) checkSigning(ctx context.Context, repos []repository) check {
	c := check{"signing", checkOK, "", ""}
	policies, err := p.GitVerify()
	rules, rulesErr := p.GitRules()
	if err != nil || rulesErr != nil {
		c.Found = "not looked at: the config file is not good"
		return c // the check of signers reports the error
	}
	dir := p.Flags.CredentialsDir
	if dir == "" {
		dir = p.Getenv("CREDENTIALS_DIRECTORY")
	}
	keys, signers := agent.SigningAt(p.client, dir, rules), agent.SignersAt(p.client, dir, rules, policies)
	var found signingResults
	for _, r := range repos {
		if r.object == nil {
			continue
		}
		if apiserver.IsSealed(r.object.Secure[signature.SigningKeyName].Name) {
			found.sealed++ // only its agent can read it
			continue
		}
		look, err := keys.Look(ctx, r.namespace, r.name, *r.object, signers, p.now)
		if err != nil && worker.Passing(err) {
			found.unseen++
			continue
		}
		found.add(r.namespace+"/"+r.name, command.CommandFor(r.namespace, "repo test "+r.name), look, err)
	}
	return found.judge(c, repos == nil)
}

// signingResults collects the results, with the first of each severity.
type signingResults struct {
	signing, bad, soon, unseen, sealed int
	badText, badNext                   string
	soonText, soonNext                 string
}

func (f *signingResults) add(who, next string, look worker.SigningLook, err error) {
	if err == nil && look.Text == "" {
		return
	}
	f.signing++
	switch {
	case err != nil:
		if f.bad++; f.bad == 1 {
			f.badText, f.badNext = who+": "+err.Error(), next
		}
	case look.Soon != "":
		if f.soon++; f.soon == 1 {
			f.soonText, f.soonNext = who+": "+look.Text+"; but "+look.Soon, next
		}
	}
}

func (f *signingResults) judge(c check, unknown bool) check {
	switch {
	case f.bad > 0:
		c.Result, c.Next = checkFail, f.badNext
		c.Found = fmt.Sprintf("%d of %d keys that sign commits are of no use here, the first is that of %s", f.bad, f.signing, f.badText)
	case f.soon > 0:
		c.Result, c.Next = checkWarn, f.soonNext
		c.Found = fmt.Sprintf("%d of %d keys that sign commits need a look, the first is that of %s", f.soon, f.signing, f.soonText)
	case f.signing == 0:
		c.Found = "no commits are signed"
	default:
		c.Found = fmt.Sprintf("%d repositories have keys that sign commits", f.signing)
	}
	if f.sealed > 0 {
		c.Found += fmt.Sprintf("; %d are sealed, 'limpet repo test' looks at those", f.sealed)
	}
	if f.unseen > 0 {
		c.Found += fmt.Sprintf("; of %d the keys cannot be read now", f.unseen)
	}
	if unknown {
		c.Found += "; which repositories sign is not known"
	}
	return c
}
