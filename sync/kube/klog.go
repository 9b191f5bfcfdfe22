package kube

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// client-go logs through klog, which writes to stderr by default: in the middle of a
// dashboard, and without redaction. What went wrong is in errors and LastError as well.
func init() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }
