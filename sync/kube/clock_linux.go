package kube

import "golang.org/x/sys/unix"

const (
	clockAlways = unix.CLOCK_BOOTTIME
	clockAwake  = unix.CLOCK_MONOTONIC
)
