package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// origin is a copy of a repository for this goal, and its URL.
func (b *bench) origin(of size) (*origin, string, error) {
	from, err := of.build(b.cache)
	if err != nil {
		return nil, "", err
	}
	b.origins++
	name := fmt.Sprintf("%s-%d.git", of.name, b.origins)
	o, err := of.origin(from, filepath.Join(b.git.root, name))
	return o, b.git.url + "/" + name, err
}

// firstSync is a sync of an agent that starts for the first time, from its start on: into a
// directory, or into its API.
func firstSync(to target) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		o, url, err := b.origin(b.size)
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
			if err := a.declare(to.object(a, "r", url)); err != nil {
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

// target is where a Repository goes.
type target bool

const (
	intoAPI       target = false
	intoDirectory target = true
)

// object returns the Repository of an agent that goes there.
func (t target) object(a *agent, name, url string) object {
	if t == intoDirectory {
		return repository(name, url, filepath.Join(a.home, name))
	}
	return repository(name, url, "")
}

// synced starts an agent and waits until it has pulled the newest commit.
func (b *bench) synced(binary string, to target, of size) (*agent, *origin, error) {
	o, url, err := b.origin(of)
	if err != nil {
		return nil, nil, err
	}
	a, err := b.agent(binary)
	if err != nil {
		return nil, nil, err
	}
	if err := a.declare(to.object(a, "r", url)); err != nil {
		return nil, nil, err
	}
	head, err := o.head()
	if err != nil {
		return nil, nil, err
	}
	if err := a.start(); err != nil {
		return nil, nil, err
	}
	return a, o, a.await(repositories, "r", pulled(head))
}

// increment is a pull of one commit that changes one file, in an agent that runs, after others.
func increment(to target, of func(*bench) size, others int) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		a, o, err := b.synced(binary, to, of(b))
		if err != nil {
			return nil, err
		}
		one := func() (sample, error) {
			commit, err := o.edit(1)
			if err != nil {
				return sample{}, err
			}
			return b.timed(a, 0, func() error {
				if err := a.pull("r"); err != nil {
					return err
				}
				return a.await(repositories, "r", pulled(commit))
			})
		}
		for range others {
			if _, err := one(); err != nil {
				return nil, err
			}
		}
		return one, nil
	}
}

func thisSize(b *bench) size { return b.size }

func mediumSize(*bench) size { return sizes["medium"] }

// limpetToo has limpet itself be the other side.
func limpetToo(side func(*bench, string) (step, error)) func(*bench) (step, error) {
	return func(b *bench) (step, error) { return side(b, b.limpet) }
}

// gitFetch fetches the same change into a full mirror and reads it.
func gitFetch(b *bench) (step, error) {
	o, url, err := b.origin(b.size)
	if err != nil {
		return nil, err
	}
	mirror := filepath.Join(b.scratch, "mirror.git")
	if err := git("", nil, "clone", "--quiet", "--bare", url, mirror); err != nil {
		return nil, err
	}
	return func() (sample, error) {
		if _, err := o.edit(1); err != nil {
			return sample{}, err
		}
		received := b.git.sent.Load()
		s, err := reference("fetch", mirror)
		s.bytes = b.git.sent.Load() - received
		return s, err
	}, nil
}

// growth is the peak of one agent that syncs the repositories of some sizes, one after the other.
func growth(names ...string) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		return func() (sample, error) {
			a, err := b.agent(binary)
			if err != nil {
				return sample{}, err
			}
			if err := a.start(); err != nil {
				return sample{}, err
			}
			for _, name := range names {
				o, url, err := b.origin(sizes[name])
				if err != nil {
					return sample{}, err
				}
				head, err := o.head()
				if err != nil {
					return sample{}, err
				}
				if err := a.declare(intoDirectory.object(a, name, url)); err != nil {
					return sample{}, err
				}
				if err := a.await(repositories, name, pulled(head)); err != nil {
					return sample{}, err
				}
			}
			return a.kill()
		}, nil
	}
}

// clone runs a reference that gets the repository into an empty directory.
func clone(name string) func(*bench) (step, error) {
	return func(b *bench) (step, error) {
		_, url, err := b.origin(b.size)
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
