package main

import (
	"os/exec"
	"path/filepath"
)

// worktree checks the repository of this goal out.
func (b *bench) worktree() (string, error) {
	_, url, err := b.origin(b.size)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.scratch, "worktree"+filepath.Base(url))
	return dir, git("", nil, "clone", "--quiet", "--depth", "1", url, dir)
}

// validate judges the files of a directory as a pull does.
func validate(b *bench, binary string) (step, error) {
	dir, err := b.worktree()
	if err != nil {
		return nil, err
	}
	return func() (sample, error) { return run(exec.Command(binary, "validate", dir)) }, nil
}

// jsonValid has encoding/json check them.
func jsonValid(b *bench) (step, error) {
	dir, err := b.worktree()
	if err != nil {
		return nil, err
	}
	return func() (sample, error) { return reference("valid", dir) }, nil
}
