package kube

import "golang.org/x/sys/unix"

const (
	clockAlways = unix.CLOCK_MONOTONIC
	clockAwake  = unix.CLOCK_UPTIME_RAW
)
