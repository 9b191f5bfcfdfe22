package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dashboardSync is a first sync of an agent that shows its dashboard on a terminal.
func dashboardSync(b *bench, binary string) (step, error) {
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
		if err := a.declare(intoDirectory.object(a, "r", url)); err != nil {
			return sample{}, err
		}
		outer, inner, err := terminal()
		if err != nil {
			return sample{}, err
		}
		defer outer.Close()
		a.cmd = a.command(a.flags[1:]...) // without --daemon
		a.cmd.Env = append(a.cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8")
		a.cmd.Stdin = inner
		a.cmd.Stdout = inner
		a.cmd.Stderr = inner
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true, Setctty: true}
		a.began = time.Now()
		err = a.cmd.Start()
		inner.Close()
		if err != nil {
			return sample{}, err
		}
		go io.Copy(io.Discard, outer) // until the terminal is closed
		err = a.await(repositories, "r", pulled(head))
		s, killed := a.kill()
		if err == nil {
			err = killed
		}
		return s, err
	}, nil
}

// terminal opens a pseudo-terminal of 120x40 and returns its two ends.
func terminal() (outer, inner *os.File, err error) {
	outer, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(outer.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	inner, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	return outer, inner, unix.IoctlSetWinsize(int(inner.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
}
