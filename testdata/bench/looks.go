package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// looksOfARound are as many as the processor time of one can be told from.
const looksOfARound = 40

// looks asks a running agent again and again for a source that does not change, of a repository
// with this many refs besides.
func looks(refs int) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		o, url, err := b.origin(sizes["small"])
		if err != nil {
			return nil, err
		}
		head, err := o.head()
		if err != nil {
			return nil, err
		}
		if err := o.refs(refs, head); err != nil {
			return nil, err
		}
		a, err := b.agent(binary)
		if err != nil {
			return nil, err
		}
		if err := a.declare(source("s", url, "1h")); err != nil {
			return nil, err
		}
		if err := a.start(); err != nil {
			return nil, err
		}
		if err := a.await(sources, "s", packed(head)); err != nil {
			return nil, err
		}
		asked := 0
		return func() (sample, error) {
			return b.timed(a, looksOfARound, func() error {
				for range looksOfARound {
					asked++
					token := fmt.Sprint(asked)
					if err := a.reconcile("s", token); err != nil {
						return err
					}
					if err := a.await(sources, "s", handled(token)); err != nil {
						return err
					}
				}
				return nil
			})
		}, nil
	}
}

// refs adds refs of pull requests, as busy hosts have them.
func (o *origin) refs(n int, head string) error {
	var in bytes.Buffer
	for i := range n {
		fmt.Fprintf(&in, "create refs/pull/%d/head %s\n", i+1, head)
	}
	if err := git(o.dir, &in, "update-ref", "--stdin"); err != nil {
		return err
	}
	return git(o.dir, nil, "pack-refs", "--all")
}

// lsRemote asks with git.
func lsRemote(b *bench) (step, error) {
	_, url, err := b.origin(sizes["small"])
	if err != nil {
		return nil, err
	}
	return func() (sample, error) { return run(exec.Command("git", "ls-remote", url, "refs/heads/main")) }, nil
}

// idle watches an agent with many sources, each looked at once a minute, while nothing changes.
func idle(b *bench, binary string) (step, error) {
	o, _, err := b.origin(sizes["small"])
	if err != nil {
		return nil, err
	}
	head, err := o.head()
	if err != nil {
		return nil, err
	}
	a, err := b.agent(binary)
	if err != nil {
		return nil, err
	}
	for i := range b.many {
		link := fmt.Sprintf("%d-of-%s", i, filepath.Base(o.dir)) // a repository for each agent
		if err := os.Symlink(o.dir, filepath.Join(b.git.root, link)); err != nil {
			return nil, err
		}
		if err := a.declare(source(fmt.Sprintf("s%04d", i), b.git.url+"/"+link, "1m")); err != nil {
			return nil, err
		}
	}
	if err := a.start(); err != nil {
		return nil, err
	}
	ready := packed(head)
	for until := time.Now().Add(patience); ; time.Sleep(time.Second) {
		list, err := a.client.Resource(sources).Namespace(namespace).List(context.Background(), metav1.ListOptions{})
		n := 0
		if err == nil {
			for i := range list.Items {
				if ready(&list.Items[i]) {
					n++
				}
			}
		}
		if err == nil && n == b.many {
			break
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%d of %d sources are ready: %w", n, b.many, err)
		}
	}
	time.Sleep(75 * time.Second) // from the first looks to the rhythm of the interval
	return func() (sample, error) {
		expected := float64(b.many) * b.idle.Minutes()
		s, err := b.timed(a, expected, func() error { time.Sleep(b.idle); return nil })
		if err != nil {
			return s, err
		}
		s.rss, err = memory(a.cmd.Process.Pid, "VmRSS")
		return s, err
	}, nil
}
