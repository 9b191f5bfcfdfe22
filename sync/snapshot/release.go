package snapshot

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
)

// releaseMemory gives unused heap back to the system, and the pages of the program file that the start and a burst of
// work have mapped: of 34 MiB an idle agent uses a few. The page cache keeps what it has memory for, so that a later call
// maps its code again without a read from disk.
func releaseMemory() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var mode string
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %4s", &from, &to, &mode)
		// Pages that may be written are not those of the file any more.
		if err != nil || mode[1] == 'w' || !strings.HasSuffix(lines.Text(), " "+exe) {
			continue
		}
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
	}
}
