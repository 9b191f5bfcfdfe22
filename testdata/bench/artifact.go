package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sourced starts an agent with a source and waits for its artifact.
func (b *bench) sourced(binary string) (*agent, *origin, error) {
	o, url, err := b.origin(b.size)
	if err != nil {
		return nil, nil, err
	}
	head, err := o.head()
	if err != nil {
		return nil, nil, err
	}
	a, err := b.agent(binary)
	if err != nil {
		return nil, nil, err
	}
	if err := a.declare(source("s", url, "1h")); err != nil {
		return nil, nil, err
	}
	if err := a.start(); err != nil {
		return nil, nil, err
	}
	return a, o, a.await(sources, "s", packed(head))
}

// firstArtifact is the artifact of an agent that starts for the first time, from its start on.
func firstArtifact(b *bench, binary string) (step, error) {
	return func() (sample, error) {
		a, _, err := b.sourced(binary)
		if err != nil {
			return sample{}, err
		}
		defer os.RemoveAll(a.home)
		return a.kill()
	}, nil
}

// gitArchive makes an archive with git and gzip.
func gitArchive(b *bench) (step, error) {
	_, url, err := b.origin(b.size)
	if err != nil {
		return nil, err
	}
	return func() (sample, error) {
		dir := filepath.Join(b.scratch, "bare")
		defer os.RemoveAll(dir)
		return run(exec.Command("sh", "-c", `git clone --quiet --bare "$0" "$1" && git -C "$1" archive main | gzip > "$1/tar.gz"`, url, dir))
	}, nil
}

// nextArtifact is the artifact of a commit that changes one file.
func nextArtifact(b *bench, binary string) (step, error) {
	a, o, err := b.sourced(binary)
	if err != nil {
		return nil, err
	}
	return func() (sample, error) {
		commit, err := o.edit(1)
		if err != nil {
			return sample{}, err
		}
		return b.timed(a, 0, func() error {
			if err := a.reconcile("s", commit); err != nil {
				return err
			}
			return a.await(sources, "s", packed(commit))
		})
	}, nil
}

// repack makes the artifact of the same commit anew from the mirror, with another file left out and
// without the pieces of the one before.
func repack(b *bench, binary string) (step, error) {
	a, _, err := b.sourced(binary)
	if err != nil {
		return nil, err
	}
	round := 0
	last := ""
	return func() (sample, error) {
		round++
		if err := a.forgetPieces(); err != nil {
			return sample{}, err
		}
		return b.timed(a, 0, func() error {
			ignore := fmt.Sprintf("/%s\n", b.size.path(round))
			if err := a.patch("s", object{"spec": object{"ignore": ignore}}); err != nil {
				return err
			}
			return a.await(sources, "s", func(u *unstructured.Unstructured) bool {
				digest, _, _ := unstructured.NestedString(u.Object, "status", "artifact", "digest")
				seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
				made := digest != last && seen == u.GetGeneration() && u.GetGeneration() > int64(round)
				if made {
					last = digest
				}
				return made
			})
		})
	}, nil
}

// forgetPieces removes what an artifact could copy from the one before.
func (a *agent) forgetPieces() error {
	indexes, err := filepath.Glob(filepath.Join(a.home, "artifacts", "*", "*", "*", "*.index"))
	for _, path := range indexes {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// stdGzip compresses the tar of the artifact with compress/gzip, in one stream, and hashes it.
func stdGzip(b *bench) (step, error) {
	a, _, err := b.sourced(b.limpet)
	if err != nil {
		return nil, err
	}
	tar, err := a.artifact()
	if err != nil {
		return nil, err
	}
	if _, err := a.kill(); err != nil {
		return nil, err
	}
	return func() (sample, error) {
		began := time.Now()
		sum := sha256.New()
		w, err := gzip.NewWriterLevel(sum, 6)
		if err != nil {
			return sample{}, err
		}
		if _, err := w.Write(tar); err != nil {
			return sample{}, err
		}
		err = w.Close()
		return sample{wall: time.Since(began)}, err
	}, nil
}

// artifact returns the tar of the archive that the agent keeps.
func (a *agent) artifact() ([]byte, error) {
	var data []byte
	err := filepath.WalkDir(filepath.Join(a.home, "artifacts"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".tar.gz") || !d.Type().IsRegular() {
			return err
		}
		data, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
