package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	git5 "github.com/go-git/go-git/v5"
	object5 "github.com/go-git/go-git/v5/plumbing/object"
	git6 "github.com/go-git/go-git/v6"
	object6 "github.com/go-git/go-git/v6/plumbing/object"
)

// referenceCommand is the first argument of this program that has it be a reference itself, so
// that its processor time and memory are those of a process.
const referenceCommand = "reference"

// references take arguments and do what limpet does, in another way.
var references = map[string]func(args []string) error{
	"clone":  cloneAndRead,  // URL DIR
	"fetch":  fetchAndRead,  // MIRROR
	"gogit5": cloneGoGit5,   // URL DIR
	"gogit6": cloneGoGit6,   // URL DIR
	"valid":  validateFiles, // DIR
}

// reference runs one in a process of its own.
func reference(args ...string) (sample, error) {
	self, err := os.Executable()
	if err != nil {
		return sample{}, err
	}
	return run(exec.Command(self, append([]string{referenceCommand}, args...)...))
}

// dashboard is what decides about a file.
type dashboard struct {
	UID   string `json:"uid"`
	Title string `json:"title"`
}

func parse(data []byte) error {
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	if d.UID == "" {
		return fmt.Errorf("no uid")
	}
	return nil
}

// cloneAndRead clones the newest commit and parses each file, in two threads.
func cloneAndRead(args []string) error {
	if err := git("", nil, "clone", "--quiet", "--depth", "1", args[0], args[1]); err != nil {
		return err
	}
	return eachFile(args[1], 2, parse)
}

// validateFiles has encoding/json check each file, in one thread.
func validateFiles(args []string) error {
	return eachFile(args[0], 1, func(data []byte) error {
		if !json.Valid(data) {
			return fmt.Errorf("not JSON")
		}
		return nil
	})
}

func eachFile(dir string, threads int, do func([]byte) error) error {
	paths := make(chan string, 1024)
	failed := make(chan error, threads)
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for path := range paths {
				data, err := os.ReadFile(path)
				if err == nil {
					err = do(data)
				}
				if err != nil {
					select {
					case failed <- fmt.Errorf("%s: %w", path, err):
					default:
					}
				}
			}
		})
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".json") && d.Type().IsRegular() {
			paths <- path
		}
		return err
	})
	close(paths)
	all.Wait()
	close(failed)
	if err != nil {
		return err
	}
	return <-failed
}

// fetchAndRead fetches into a mirror and reads what has changed.
func fetchAndRead(args []string) error {
	at := func(rest ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-C", args[0]}, rest...)...)
	}
	old, err := at("rev-parse", "main").Output()
	if err != nil {
		return err
	}
	if out, err := at("fetch", "--quiet", "origin", "+main:main").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	diff, err := at("diff-tree", "-r", strings.TrimSpace(string(old)), "main").Output()
	if err != nil {
		return err
	}
	var blobs strings.Builder
	for line := range strings.Lines(string(diff)) {
		fmt.Fprintln(&blobs, strings.Fields(line)[3])
	}
	if blobs.Len() == 0 {
		return fmt.Errorf("nothing was fetched")
	}
	cat := at("cat-file", "--batch")
	cat.Stdin = strings.NewReader(blobs.String())
	_, err = cat.Output()
	return err
}

func cloneGoGit5(args []string) error {
	r, err := git5.PlainClone(args[1], true, &git5.CloneOptions{URL: args[0], Depth: 1, SingleBranch: true})
	if err != nil {
		return err
	}
	head, err := r.Head()
	if err != nil {
		return err
	}
	c, err := r.CommitObject(head.Hash())
	if err != nil {
		return err
	}
	files, err := c.Files()
	if err != nil {
		return err
	}
	return files.ForEach(func(f *object5.File) error { return parseBlob(f.Reader()) })
}

func cloneGoGit6(args []string) error {
	r, err := git6.PlainClone(args[1], &git6.CloneOptions{URL: args[0], Depth: 1, SingleBranch: true, Bare: true})
	if err != nil {
		return err
	}
	head, err := r.Head()
	if err != nil {
		return err
	}
	c, err := r.CommitObject(head.Hash())
	if err != nil {
		return err
	}
	files, err := c.Files()
	if err != nil {
		return err
	}
	return files.ForEach(func(f *object6.File) error { return parseBlob(f.Reader()) })
}

func parseBlob(r io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return parse(data)
}
