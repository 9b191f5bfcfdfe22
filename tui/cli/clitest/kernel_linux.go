package clitest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seccomp_notif and seccomp_notif_resp of <linux/seccomp.h>.
type (
	askedCall struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	answeredCall struct {
		id    uint64
		val   int64
		err   int32
		flags uint32
	}
)

// verbs are the system calls that watched tells.
var verbs = map[int32]string{unix.SYS_FSYNC: "sync", unix.SYS_RENAMEAT: "rename", unix.SYS_FCHMODAT: "chmod", unix.SYS_UNLINKAT: "remove"}

// Trace runs work on a thread of its own, of which the kernel tells the calls that
// change names and rights or make something safe, before it does them. They are returned
// in their order; sync has the name of its file behind it. What answer gives an error
// number is not done and fails with it.
func Trace(t *testing.T, work func(), answer func(call string) syscall.Errno) (calls []string) {
	t.Helper()
	listeners, worked := make(chan int), make(chan struct{})
	over, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	go func() {
		// The thread is never unlocked: nobody else gets one with a filter. Nor does it end:
		// with it would end the processes that it has started for other tests.
		runtime.LockOSThread()
		defer func() { select {} }()
		defer close(worked)
		defer end.Close()
		const number = 0 // of the call, in seccomp_data
		filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number}}
		left := len(verbs)
		for nr := range verbs { // one of them jumps over those behind it, and over "allow"
			filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jt: uint8(left)})
			left--
		}
		filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
		}
		fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
			uintptr(unsafe.Pointer(&program)))
		if errno != 0 {
			t.Error("seccomp:", errno)
			close(listeners)
			return
		}
		listeners <- int(fd)
		work()
	}()
	fd, ok := <-listeners
	if !ok {
		t.FailNow()
	}
	defer unix.Close(fd)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			var ask askedCall
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(over.Fd())}}
			if _, err := unix.Poll(ready, -1); err != nil {
				continue // a signal
			}
			if ready[0].Revents&unix.POLLIN == 0 { // there is no more work
				return
			}
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
				uintptr(unsafe.Pointer(&ask))); errno != 0 {
				continue
			}
			call := verbs[ask.nr]
			if ask.nr == unix.SYS_FSYNC {
				name, _ := os.Readlink(fmt.Sprintf("/proc/self/task/%d/fd/%d", ask.pid, ask.args[0]))
				call += " " + filepath.Base(name)
			}
			calls = append(calls, call)
			reply := answeredCall{id: ask.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			if errno := answer(call); errno != 0 {
				reply.err, reply.flags = -int32(errno), 0
			}
			unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&reply)))
		}
	}()
	<-worked
	<-done
	return calls
}
