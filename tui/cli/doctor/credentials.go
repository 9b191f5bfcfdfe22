package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// The check of the credentials directory.

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
		return failed("ls -la "+text.ShellWord(dir), "%v", err)
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
		return failed("ls -la "+text.ShellWord(dir), "%v", err)
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
	path := text.ShellWord(filepath.Join(root.Name(), name))
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
