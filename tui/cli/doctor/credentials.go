package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/signature"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

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
			case strings.HasPrefix(d.Name(), ".."): // the targets of the links in Kubernetes' mounts
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case d.IsDir():
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

func (p *examination) checkCredentials(ctx context.Context) check {
	c := check{"credentials", checkOK, "no --credentials-dir; credentials come from Secrets, Connections or the config file", ""}
	dir := p.Flags.CredentialsDir
	if dir == "" {
		dir = p.Getenv("CREDENTIALS_DIRECTORY")
	}
	if dir == "" {
		return c
	}
	files, bad := 0, 0
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		if p.fix {
			p.recordFixes(fixCredentials(ctx, root))
		}
		err = eachCredential(ctx, root, func(name string, _ fs.DirEntry) {
			files++
			if _, err := readCredential(root, name); err != nil {
				if bad++; bad == 1 {
					c.Result, c.Found, c.Next = checkFail, dir+": "+err.Error(), credentialFix(root, name)
				}
			}
		})
	}
	switch {
	case err != nil:
		c.Result, c.Found, c.Next = checkFail, err.Error(), "ls -la "+command.ShellWord(dir)
	case ctx.Err() != nil:
		c.Result, c.Found, c.Next = checkFail, context.Cause(ctx).Error(), "ls -la "+command.ShellWord(dir)
	case bad > 1:
		c.Found += fmt.Sprintf("; and %d more", bad-1)
	case bad == 0:
		c.Found = fmt.Sprintf("%s, %s", dir, text.Plural(files, "file"))
	}
	return c
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
