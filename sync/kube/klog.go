package kube

import (
	"context"
	"log/slog"
	"sync/atomic"

	"limpet/sync/text"

	"k8s.io/klog/v2"
)

// client-go logs through klog, which writes to stderr by default: in the
// middle of a dashboard, and without redaction. From the start of the process
// every klog line goes to the logger of the last Connect instead, at debug
// level, and nowhere before the first one.

// klogSink is the logger that klog lines go to; nil drops them.
var klogSink atomic.Pointer[slog.Logger]

// quietestKlog is the lowest level of klog lines that are kept: its -v=0. The
// levels below it are for people who debug client-go.
const quietestKlog = slog.LevelInfo

func init() { klog.SetSlogLogger(slog.New(klogHandler{})) }

// klogHandler passes records to klogSink as debug lines. The operations hold
// the attributes and groups that were added, in order, because the sink may
// change after they were.
type klogHandler struct {
	ops []func(slog.Handler) slog.Handler
}

func (h klogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	sink := klogSink.Load()
	return sink != nil && level >= quietestKlog && sink.Enabled(ctx, slog.LevelDebug)
}

func (h klogHandler) Handle(ctx context.Context, r slog.Record) error {
	sink := klogSink.Load()
	if sink == nil {
		return nil
	}
	r.Level = slog.LevelDebug
	r.Message = text.Redact(r.Message)
	target := sink.Handler()
	for _, op := range h.ops {
		target = op(target)
	}
	return target.Handle(ctx, r)
}

func (h klogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(t slog.Handler) slog.Handler { return t.WithAttrs(attrs) })
}

func (h klogHandler) WithGroup(name string) slog.Handler {
	return h.with(func(t slog.Handler) slog.Handler { return t.WithGroup(name) })
}

func (h klogHandler) with(op func(slog.Handler) slog.Handler) slog.Handler {
	ops := make([]func(slog.Handler) slog.Handler, 0, len(h.ops)+1)
	return klogHandler{ops: append(append(ops, h.ops...), op)}
}
