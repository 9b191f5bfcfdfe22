// The program bench measures limpet beside others that do the same, in turns, and prints how
// it stands to its goals. It is a module of its own, so that what it compares with is no part of
// the product. README.md says how to run it and what each row is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is a run: where and with what the goals are measured.
type bench struct {
	limpet string
	vs     string
	rounds int
	cache  string
	idle   time.Duration
	many   int

	// Of the goal at work.
	size    size
	medium  string // tmpfs or disk
	scratch string
	git     *gitServer
	origins int // made
	cleanup []func()
}

// after has a goal clean up at its end.
func (b *bench) after(do func()) { b.cleanup = append(b.cleanup, do) }

func (b *bench) clean() {
	for _, do := range slices.Backward(b.cleanup) {
		do()
	}
	b.cleanup = nil
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == referenceCommand {
		exit(references[os.Args[2]](os.Args[3:]))
	}
	exit(runGoals())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runGoals() error {
	caches, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	b := &bench{}
	flag.StringVar(&b.limpet, "limpet", "limpet", "the built program")
	flag.StringVar(&b.vs, "vs", "", "another build, which takes turns with it")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of each side")
	flag.StringVar(&b.cache, "cache", filepath.Join(caches, "limpet-bench"), "directory that keeps the repositories; it is on the disk that is measured")
	flag.DurationVar(&b.idle, "idle", 2*time.Minute, "how long an idle agent is watched")
	flag.IntVar(&b.many, "many", 1000, "sources that an idle agent watches")
	kept := flag.String("baseline", "", "file of ratios; a goal that it names is measured, and fails when it has become worse")
	update := flag.Bool("update", false, "write the ratios of -run to -baseline instead")
	repos := flag.String("repo", "medium", "sizes of the repositories: small, medium, large")
	media := flag.String("media", "tmpfs,disk", "where limpet and the references keep their files")
	only := flag.String("run", ".", "goals to measure, a regexp of rows such as 'G3 medium tmpfs'")
	flag.Parse()
	matches, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	for _, binary := range []*string{&b.limpet, &b.vs} {
		if *binary == "" {
			continue
		}
		if *binary, err = filepath.Abs(*binary); err != nil {
			return err
		}
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		os.RemoveAll(b.scratch)
		exit(errors.New("interrupted"))
	}()
	rows, err := b.all(matches, strings.Split(*repos, ","), strings.Split(*media, ","))
	if err != nil {
		return err
	}
	print(os.Stdout, b, rows)
	var failed []error
	for _, r := range rows {
		failed = append(failed, r.err)
	}
	switch {
	case *kept == "" || errors.Join(failed...) != nil:
	case *update:
		failed = append(failed, writeBaseline(*kept, rows))
	default:
		failed = append(failed, compareBaseline(*kept, rows))
	}
	return errors.Join(failed...)
}

// all runs the races that have a goal that matches, in each size and on each medium.
func (b *bench) all(matches *regexp.Regexp, repos, media []string) ([]row, error) {
	var rows []row
	for i := range races {
		r := &races[i]
		names := []string{""}
		if len(r.sizes) > 0 {
			names = slices.DeleteFunc(slices.Clone(repos), func(s string) bool { return !slices.Contains(r.sizes, s) })
		}
		for _, name := range names {
			for n, medium := range media {
				b.size, b.medium = sizes[name], medium
				wanted := slices.ContainsFunc(r.goals, func(g goal) bool { return matches.MatchString(b.title(g.id)) })
				if r.once && n > 0 || !wanted {
					continue
				}
				done, err := b.one(r)
				if err != nil {
					return nil, err
				}
				rows = append(rows, done...)
			}
		}
	}
	return rows, nil
}

// title names a row: the goal, the repository and the medium.
func (b *bench) title(id string) string {
	return strings.Join(strings.Fields(id+" "+b.size.name+" "+b.medium), " ")
}

// one runs a race on the medium.
func (b *bench) one(r *race) ([]row, error) {
	if r.limpet == nil {
		var rows []row
		for _, g := range r.goals {
			rows = append(rows, row{goal: g, name: g.id})
		}
		return rows, nil
	}
	root := b.cache
	if b.medium == "tmpfs" {
		root = "/dev/shm"
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	var err error
	if b.scratch, err = os.MkdirTemp(root, "limpet-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.scratch)
	if b.git, err = serveGit(filepath.Join(b.scratch, "git")); err != nil {
		return nil, err
	}
	defer b.git.http.Close()
	return b.run(r), nil
}
