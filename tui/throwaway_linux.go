package tui

import (
	"os"

	"golang.org/x/sys/unix"
)

// throwAway drops what was written to a terminal and has not been taken, and wakes
// who waits for room there: tcflush alone leaves a writer to a pseudo terminal
// asleep, going on after a stop wakes it. A process in the background is stopped when
// it does that, so it does not.
func throwAway(out *os.File) {
	fd := int(out.Fd())
	if front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || front != unix.Getpgrp() {
		return
	}
	const tcooff, tcoon = 0, 1 // of termios.h; x/sys has them not
	_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCOFLUSH)
	_ = unix.IoctlSetInt(fd, unix.TCXONC, tcooff)
	_ = unix.IoctlSetInt(fd, unix.TCXONC, tcoon)
}
