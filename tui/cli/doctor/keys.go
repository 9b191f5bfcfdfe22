package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/agent"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/signature"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

// Checks of credentials, of the keys that verify commits, and of those that sign them.

// credentialsDir returns the directory of credentials, "" for none.
func (p *examination) credentialsDir() string {
	return cmp.Or(p.Flags.CredentialsDir, p.Getenv("CREDENTIALS_DIRECTORY"))
}

// credentialFiles lists the files of a credentials directory as an agent finds them: through links, as in Kubernetes'
// mounts, but never outside. An object has one directory; deeper ones are not used.
func credentialFiles(root *os.Root, dir string) (files []string, err error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), "..") { // the targets of the links in Kubernetes' mounts
			continue
		}
		info, err := root.Stat(name)
		if err != nil || !info.IsDir() {
			files = append(files, name)
			continue
		}
		if dir == "." {
			below, err := credentialFiles(root, name)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
		}
	}
	return files, nil
}

func (p *examination) checkCredentials(ctx context.Context) check {
	dir := p.credentialsDir()
	if dir == "" {
		return passed("no --credentials-dir; credentials come from Secrets, Connections or the config file")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return failed("ls -la "+command.ShellWord(dir), "%v", err)
	}
	defer root.Close()
	files, err := credentialFiles(root, ".")
	if p.fix {
		p.fixCredentials(root, files)
	}
	bad, first := 0, check{}
	for _, name := range files {
		if _, fault := readCredential(root, name); fault != nil {
			if bad++; bad == 1 {
				first = failed(credentialFix(root, name), "%s: %v", dir, fault)
			}
		}
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			break
		}
	}
	switch {
	case err != nil:
		return failed("ls -la "+command.ShellWord(dir), "%v", err)
	case bad > 1:
		first.Found += fmt.Sprintf("; and %d more", bad-1)
	case bad == 0:
		return passed("%s, %s", dir, text.Plural(len(files), "file"))
	}
	return first
}

// readCredential reads a file of a credentials directory as an agent does.
func readCredential(root *os.Root, name string) ([]byte, error) {
	if publicKeys(name) {
		return auth.ReadPublicIn(root, name)
	}
	return auth.ReadPrivateIn(root, name)
}

// credentialFix returns the next command for a file that cannot be read.
func credentialFix(root *os.Root, name string) string {
	path := command.ShellWord(filepath.Join(root.Name(), name))
	info, err := root.Stat(name)
	switch {
	case err != nil || !info.Mode().IsRegular():
		return "ls -la " + path
	case publicKeys(name):
		return "chmod go-w " + path
	}
	return "chmod 600 " + path
}

// fixCredentials removes the rights of others from files that are rejected for them, unless a link leads to them.
func (p *examination) fixCredentials(root *os.Root, files []string) {
	for _, name := range files {
		never := fs.FileMode(0o077)
		if publicKeys(name) {
			never = 0o022
		}
		top, _, _ := strings.Cut(name, "/")
		if info, err := root.Lstat(top); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			continue // it is outside
		}
		if _, err := readCredential(root, name); err != nil {
			p.fixPermissions(place{filepath.Join(root.Name(), name), never})
		}
	}
}

// publicKeys reports whether a file of a credentials directory holds no secret.
func publicKeys(name string) bool {
	name = filepath.Base(name)
	return signature.IsKeys(name) || strings.HasSuffix(name, "_"+signature.AllowedSigners)
}

// keyRules returns the rules of the config file for credentials and for signatures.
func (p *examination) keyRules() (rules []auth.Rule, policies []auth.VerificationPolicy, err error) {
	if policies, err = p.GitVerify(); err == nil {
		rules, err = p.GitRules()
	}
	return rules, policies, err
}

// checkSigners checks the public keys for the policies of the config file and for each repository that
// requires signatures.
func (p *examination) checkSigners(ctx context.Context) check {
	rules, policies, err := p.keyRules()
	if err != nil {
		return failed("limpet config validate", "%v", err)
	}
	var found keyResults
	signers := agent.SignersAt(p.client, p.credentialsDir(), rules, policies)
	for i := range policies {
		look, err := signers.LookAtRule(&policies[i], p.now)
		found.add("verification rule "+policies[i].Name(), "limpet config show", look.Text, look.Soon, err)
	}
	for _, r := range p.repos {
		if r.object != nil && worker.HasSource(*r.object) {
			look, err := signers.Look(ctx, r.Namespace, r.Name, *r.object, p.now)
			found.add(r.Namespace+"/"+r.Name, r.test(), look.Text, look.Soon, err)
		}
	}
	return found.judge("signers of rules and repositories", "nothing has to be signed", p.repos != nil)
}

// checkSigning checks the keys that sign commits, for each repository that has one, requires one, or verifies
// its commits and is written to.
func (p *examination) checkSigning(ctx context.Context) check {
	rules, policies, err := p.keyRules()
	if err != nil { // the check of signers reports the error
		return passed("not checked: the config file is invalid")
	}
	var found keyResults
	dir := p.credentialsDir()
	keys, signers := agent.SigningAt(p.client, dir, rules), agent.SignersAt(p.client, dir, rules, policies)
	for _, r := range p.repos {
		switch {
		case r.object == nil || !worker.HasSource(*r.object):
		case apiserver.IsSealed(r.object.Secure[signature.SigningKeyName].Name):
			found.unread++ // only its agent can read it
		default:
			look, err := keys.Look(ctx, r.Namespace, r.Name, *r.object, signers, p.now)
			found.add(r.Namespace+"/"+r.Name, r.test(), look.Text, look.Soon, err)
		}
	}
	return found.judge("keys that sign commits", "no commits are signed", p.repos != nil)
}

// keyResults counts the results for keys, with the first of those that cannot be used, else of those that end soon.
type keyResults struct {
	used, bad, soon, unread int
	first                   check
}

// add adds the keys of one rule or repository: none without a text.
func (f *keyResults) add(owner, next, text, soon string, err error) {
	switch {
	case err != nil && worker.Passing(err):
		f.unread++
		return
	case err == nil && text == "":
		return
	case err != nil:
		if f.bad++; f.bad == 1 {
			f.first = failed(next, "%s: %v", owner, err)
		}
	case soon != "":
		if f.soon++; f.bad == 0 && f.soon == 1 {
			f.first = warned(next, "%s: %s", owner, soon)
		}
	}
	f.used++
}

// judge judges the keys of the kind that what names.
func (f *keyResults) judge(what, none string, known bool) check {
	c := passed("%d %s can be used", f.used, what)
	switch {
	case f.bad > 0:
		c = failed(f.first.Next, "%d of %d %s cannot be used here, the first: %s", f.bad, f.used, what, f.first.Found)
	case f.soon > 0:
		c = warned(f.first.Next, "%d of %d %s need attention, the first: %s", f.soon, f.used, what, f.first.Found)
	case f.used == 0:
		c = passed("%s", none)
	}
	if f.unread > 0 {
		c.Found += fmt.Sprintf("; %d cannot be read from here: 'limpet repo test' checks those", f.unread)
	}
	if !known {
		c.Found += "; those of repositories are not known"
	}
	return c
}
