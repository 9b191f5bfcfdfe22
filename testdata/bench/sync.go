package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// origin is a copy of the repository of this goal, and its URL.
func (b *bench) origin() (*origin, string, error) {
	from, err := b.size.build(b.cache)
	if err != nil {
		return nil, "", err
	}
	b.origins++
	name := fmt.Sprintf("%s-%d.git", b.size.name, b.origins)
	o, err := b.size.origin(from, filepath.Join(b.git.root, name))
	return o, b.git.url + "/" + name, err
}

// firstSync is a sync of an agent that starts for the first time, from its start on: into a
// directory, or into its API.
func firstSync(directory bool) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		o, url, err := b.origin()
		if err != nil {
			return nil, err
		}
		head, err := o.head()
		if err != nil {
			return nil, err
		}
		return func() (sample, error) {
			a, err := b.agent(binary)
			if err != nil {
				return sample{}, err
			}
			defer os.RemoveAll(a.home)
			dir := ""
			if directory {
				dir = filepath.Join(a.home, "boards")
			}
			if err := a.declare(repository("r", url, dir)); err != nil {
				return sample{}, err
			}
			if err := a.start(); err != nil {
				return sample{}, err
			}
			err = a.await(repositories, "r", pulled(head))
			s, killed := a.kill()
			if err == nil {
				err = killed
			}
			return s, err
		}, nil
	}
}

// clone runs a reference that gets the repository into an empty directory.
func clone(name string) func(*bench) (step, error) {
	return func(b *bench) (step, error) {
		_, url, err := b.origin()
		if err != nil {
			return nil, err
		}
		return func() (sample, error) {
			dir := filepath.Join(b.scratch, "clone")
			defer os.RemoveAll(dir)
			return reference(name, url, dir)
		}, nil
	}
}
