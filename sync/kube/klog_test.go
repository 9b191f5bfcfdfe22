package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"limpet/sync/text"

	"k8s.io/klog/v2"
)

// klog lines reach the logger of the last Connect, at debug level and redacted.
func TestKlogGoesToSlog(t *testing.T) {
	text.RegisterSecret([]byte(testToken))
	var out bytes.Buffer
	connect(t, Config{Transport: &wire{handler: newShelf(t)}, Logger: slog.New(slog.NewJSONHandler(&out,
		&slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: text.RedactAttr}))})
	klog.ErrorS(errors.New("broken "+testToken), "Failed to watch", "reflector", testToken)
	klog.Background().WithName("name").WithValues("a", 1).Info("from a child")
	klog.Warningf("careful with %s", testToken)
	klog.Background().V(6).Info("every request")
	klogSink.Store(nil)
	klog.Error("nobody hears this")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["level"] != "DEBUG" || strings.Contains(line, testToken) {
			t.Errorf("line %s", line)
		}
	}
	if !strings.Contains(lines[1], `"a":1`) {
		t.Errorf("attributes lost: %s", lines[1])
	}
}
