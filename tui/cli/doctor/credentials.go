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

// credentialFiles lists the files of a credentials directory as an agent finds them: through links,
// as in Kubernetes' mounts, but never outside. An object has one directory; deeper ones are not
// used.
func credentialFiles(root *os.Root, dir string) (files []string, err error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		info, err := root.Stat(name)
		switch {
		case strings.HasPrefix(entry.Name(), ".."): // the targets of the links in Kubernetes' mounts
		case err != nil || !info.IsDir():
			files = append(files, name)
		case dir == ".":
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
	dir := cmp.Or(p.env.Flags.CredentialsDir, p.env.Getenv("CREDENTIALS_DIRECTORY"))
	if dir == "" {
		return passed("no --credentials-dir; credentials come from Secrets, Connections or the config file")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return failed("ls -la "+text.ShellWord(dir), "%v", err)
	}
	defer root.Close()
	files, err := credentialFiles(root, ".")
	if p.fix { // all of them first, because links may lead from one to another
		for _, name := range files {
			p.checkCredential(root, name, true)
		}
	}
	bad, first := 0, check{}
	for _, name := range files {
		c := p.checkCredential(root, name, false)
		if c.Result == checkFail {
			bad++
			first = cmp.Or(first, c)
		}
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			break
		}
	}
	switch {
	case err != nil:
		return failed("ls -la "+text.ShellWord(dir), "%v", err)
	case bad == 0:
		return passed("%s, %s", dir, text.Plural(len(files), "file"))
	case bad > 1:
		first.Found += fmt.Sprintf("; and %d more", bad-1)
	}
	return first
}

// checkCredential reads a file of a credentials directory as an agent does. With mend it removes
// the rights of others from one that is rejected, unless a link leads to it.
func (p *examination) checkCredential(root *os.Root, name string, mend bool) check {
	read, fix, never := auth.ReadPrivateIn, "chmod 600 ", fs.FileMode(0o077)
	if base := filepath.Base(name); auth.IsPublic(base) || signature.IsKeys(base) || strings.HasSuffix(base, "_"+signature.AllowedSigners) {
		read, fix, never = auth.ReadPublicIn, "chmod go-w ", 0o022 // it holds no secret
	}
	_, fault := read(root, name)
	path := filepath.Join(root.Name(), name)
	top, _, _ := strings.Cut(name, "/")
	if info, err := root.Lstat(top); mend && fault != nil && err == nil && info.Mode()&fs.ModeSymlink == 0 {
		p.fixPermissions(place{path, never})
	}
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() {
		fix = "ls -la "
	}
	if fault != nil {
		return failed(fix+text.ShellWord(path), "%s: %v", root.Name(), fault)
	}
	return check{}
}
