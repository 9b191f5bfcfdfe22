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

// maxCredentials bounds the files that are examined.
const maxCredentials = 10_000

// eachCredential calls look for the files of a credentials directory as an agent finds them: through links, as
// in Kubernetes' mounts, but never outside.
func eachCredential(ctx context.Context, root *os.Root, look func(name string, d fs.DirEntry)) error {
	files := 0
	var walk func(from string) error
	walk = func(from string) error {
		return fs.WalkDir(root.FS(), from, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case ctx.Err() != nil || files >= maxCredentials:
				return fs.SkipAll
			case strings.HasPrefix(d.Name(), "..") && d.IsDir(): // the targets of the links in Kubernetes' mounts
				return fs.SkipDir
			case strings.HasPrefix(d.Name(), "..") || d.IsDir():
				return nil
			}
			// An object has one directory; deeper ones are not used.
			if d.Type()&fs.ModeSymlink != 0 && !strings.Contains(name, "/") {
				if info, err := root.Stat(name); err == nil && info.IsDir() {
					return walk(name)
				}
			}
			files++
			look(name, d)
			return nil
		})
	}
	return walk(".")
}

// credentialsDir returns the directory of credentials, "" for none.
func (p *examination) credentialsDir() string {
	return cmp.Or(p.Flags.CredentialsDir, p.Getenv("CREDENTIALS_DIRECTORY"))
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
	if p.fix {
		p.recordFixes(fixCredentials(ctx, root))
	}
	files, bad, first := 0, 0, check{}
	err = eachCredential(ctx, root, func(name string, _ fs.DirEntry) {
		files++
		if _, err := readCredential(root, name); err != nil {
			if bad++; bad == 1 {
				first = failed(credentialFix(root, name), "%s: %v", dir, err)
			}
		}
	})
	switch err = cmp.Or(err, context.Cause(ctx)); {
	case err != nil:
		return failed("ls -la "+command.ShellWord(dir), "%v", err)
	case bad > 1:
		first.Found += fmt.Sprintf("; and %d more", bad-1)
	case bad == 0:
		return passed("%s, %s", dir, text.Plural(files, "file"))
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

// fixCredentials removes the rights of others from files that are rejected for them.
func fixCredentials(ctx context.Context, root *os.Root) []fix {
	var places []place
	// The check that follows reports the error.
	_ = eachCredential(ctx, root, func(name string, d fs.DirEntry) {
		never := fs.FileMode(0o077)
		if publicKeys(name) {
			never = 0o022
		}
		top, _, _ := strings.Cut(name, "/")
		if info, err := root.Lstat(top); err != nil || info.Mode()&fs.ModeSymlink != 0 || !d.Type().IsRegular() {
			return // it is outside
		}
		if _, err := readCredential(root, name); err != nil {
			places = append(places, place{filepath.Join(root.Name(), name), never})
		}
	})
	return fixPermissions(places)
}

// publicKeys reports whether a file of a credentials directory holds no secret.
func publicKeys(name string) bool {
	name = filepath.Base(name)
	return signature.IsKeys(name) || strings.HasSuffix(name, "_"+signature.AllowedSigners)
}

// checkSigners checks the public keys for the policies of the config file and for each repository that
// requires signatures.
func (p *examination) checkSigners(ctx context.Context) check {
	policies, err := p.GitVerify()
	var rules []auth.Rule
	if err == nil {
		rules, err = p.GitRules()
	}
	if err != nil {
		return failed("limpet config validate", "%v", err)
	}
	signers := agent.SignersAt(p.client, p.credentialsDir(), rules, policies)
	found := keyResults{unknown: p.repos == nil}
	for i := range policies {
		look, err := signers.LookAtRule(&policies[i], p.now)
		found.add("verification rule "+policies[i].Name(), "limpet config show", look.Text, look.Soon, err)
	}
	for _, r := range p.repos {
		if r.object != nil && worker.HasSource(*r.object) {
			look, err := signers.Look(ctx, r.Namespace, r.Name, *r.object, p.now)
			found.addOf(r, look.Text, look.Soon, err)
		}
	}
	return found.judge(keyTexts{
		bad: "%d of %d that require signatures have no usable keys here, the first is %s",
		soon: fmt.Sprintf("keys end within %d days, or have ended, ", int(worker.EndsSoon.Hours()/24)) +
			"for %d of %d that require signatures, the first is %s",
		none:    "nothing has to be signed",
		good:    "%d of the rules and repositories require signatures, and have keys that may sign",
		unknown: "which repositories require signatures is not known",
	})
}

// checkSigning checks the keys that sign commits, for each repository that has one, requires one, or verifies
// its commits and is written to.
func (p *examination) checkSigning(ctx context.Context) check {
	policies, err := p.GitVerify()
	rules, rulesErr := p.GitRules()
	if err != nil || rulesErr != nil { // the check of signers reports the error
		return passed("not checked: the config file is invalid")
	}
	dir := p.credentialsDir()
	keys, signers := agent.SigningAt(p.client, dir, rules), agent.SignersAt(p.client, dir, rules, policies)
	found := keyResults{unknown: p.repos == nil}
	for _, r := range p.repos {
		switch {
		case r.object == nil || !worker.HasSource(*r.object):
		case apiserver.IsSealed(r.object.Secure[signature.SigningKeyName].Name):
			found.sealed++ // only its agent can read it
		default:
			look, err := keys.Look(ctx, r.Namespace, r.Name, *r.object, signers, p.now)
			if look.Soon != "" {
				look.Soon = look.Text + "; but " + look.Soon
			}
			found.addOf(r, look.Text, look.Soon, err)
		}
	}
	return found.judge(keyTexts{
		bad:     "%d of %d keys that sign commits cannot be used here, the first is that of %s",
		soon:    "%d of %d keys that sign commits need attention, the first is that of %s",
		none:    "no commits are signed",
		good:    "%d repositories have keys that sign commits",
		unknown: "which repositories sign is not known",
	})
}

// keyResults counts the results for keys, with the first of each severity.
type keyResults struct {
	used, bad, soon, unseen, sealed int
	unknown                         bool // the repositories are not known
	firstBad, firstSoon             check
}

// keyTexts are the texts of a check of keys. Those of bad and soon take two counts and the first result, that of good
// one count.
type keyTexts struct{ bad, soon, none, good, unknown string }

// add adds the keys of one rule or repository: none without a text.
func (f *keyResults) add(owner, next, text, soon string, err error) {
	if err == nil && text == "" {
		return
	}
	f.used++
	switch {
	case err != nil:
		if f.bad++; f.bad == 1 {
			f.firstBad = check{Found: owner + ": " + err.Error(), Next: next}
		}
	case soon != "":
		if f.soon++; f.soon == 1 {
			f.firstSoon = check{Found: owner + ": " + soon, Next: next}
		}
	}
}

// addOf adds the keys of a repository, unless they cannot be read at present.
func (f *keyResults) addOf(r repository, text, soon string, err error) {
	if err != nil && worker.Passing(err) {
		f.unseen++
		return
	}
	f.add(r.Namespace+"/"+r.Name, r.test(), text, soon, err)
}

func (f *keyResults) judge(texts keyTexts) check {
	c := check{Result: checkOK, Found: texts.none}
	switch {
	case f.bad > 0:
		c = failed(f.firstBad.Next, texts.bad, f.bad, f.used, f.firstBad.Found)
	case f.soon > 0:
		c = warned(f.firstSoon.Next, texts.soon, f.soon, f.used, f.firstSoon.Found)
	case f.used > 0:
		c = passed(texts.good, f.used)
	}
	if f.sealed > 0 {
		c.Found += fmt.Sprintf("; %d are sealed, 'limpet repo test' checks those", f.sealed)
	}
	if f.unseen > 0 {
		c.Found += fmt.Sprintf("; of %d the keys cannot be read now", f.unseen)
	}
	if f.unknown {
		c.Found += "; " + texts.unknown
	}
	return c
}
