package command

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
)

// TestExitCodes keeps what each kind of error means to a script.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	group := api.Jobs.GroupResource()
	for _, tt := range []struct {
		err  error
		code int
		hint string
	}{
		{nil, ExitOK, ""},
		{errors.New("odd"), ExitError, ""},
		{Usagef("h", "bad"), ExitUsage, "h"},
		{fmt.Errorf("wrapped: %w", Usagef("h", "bad")), ExitUsage, "h"},
		{WithHint(apierrors.NewUnauthorized("no"), "h"), ExitAuth, "h"},
		{apierrors.NewForbidden(group, "x", errors.New("no")), ExitAuth, "--namespace"},
		{&kube.ExchangeError{Status: 401, Err: errors.New("no")}, ExitAuth, "--token"},
		{&kube.NotKubernetesError{URL: "u", Got: "a web page"}, ExitVersion, "--provisioning-server-url"},
		{&state.SchemaError{Have: 9, Want: 1}, ExitVersion, "newer"},
		{&url.Error{Op: "Get", URL: "https://h/x", Err: syscall.ECONNREFUSED}, ExitUnreachable, "--provisioning-server-url"},
		{apierrors.NewServiceUnavailable("away"), ExitUnreachable, "limpet status"},
		{fmt.Errorf("%w: gone", control.ErrNoDaemon), ExitUnreachable, ""},
		{&state.LockedError{Path: "p", PID: 7}, ExitStore, "process 7"},
		{&state.LockedError{Path: "p", PID: 7, Socket: "s"}, ExitStore, "limpet --state p status"},
		{fmt.Errorf("open: %w", &state.SharedDirectoryError{Dir: "/a b"}), ExitStore, "chmod go-w '/a b'"},
		{&state.SharedDirectoryError{Dir: "/tmp", Mode: fs.ModeSticky | 0o777}, ExitStore, "a directory of your own"},
		{fmt.Errorf("open: %w", syscall.ELOOP), ExitStore, "remove the link"},
		{fmt.Errorf("write: %w", state.ErrFull), ExitStore, "history prune"},
		{fmt.Errorf("write: %w", syscall.ENOSPC), ExitStore, "free space"},
		{Unwritten("/a b/file", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}), ExitError, "df -h '/a b'"},
		{Unwritten("/a/file", fs.ErrPermission), ExitError, "ls -ld /a"},
		{fmt.Errorf("write: %w", state.ErrReadOnly), ExitStore, "give a file in a directory that can be written: --state FILE"},
		{fmt.Errorf("open: %w: %w", state.ErrReadOnly, syscall.EACCES), ExitStore, "sudo -u USER; or give another: --state FILE"},
		{fmt.Errorf("open: %w: %w", state.ErrReadOnly, &fs.PathError{Op: "chmod", Path: "x", Err: syscall.EPERM}), ExitStore, "sudo -u USER"},
		{fmt.Errorf("read: %w", state.ErrCorrupt), ExitStore, "store check"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 507, Message: "the disk is full"}}, ExitStore, "store info"},
		{context.DeadlineExceeded, ExitTimeout, ""},
		{context.Canceled, ExitCancelled, ""},
	} {
		var b bytes.Buffer
		if code := new(Env).report(&b, "table", tt.err); code != tt.code || !strings.Contains(b.String(), tt.hint) {
			t.Errorf("%v: exit %d, want %d and a hint with %q: %s", tt.err, code, tt.code, tt.hint, &b)
		}
	}
	var b bytes.Buffer
	new(Env).report(&b, "table", &url.Error{Op: "Get", URL: "https://grafana.example:6446/apis/x?limit=500", Err: syscall.ECONNREFUSED})
	if !strings.HasPrefix(b.String(), "limpet: https://grafana.example:6446 does not answer: connection refused\n") {
		t.Errorf("an unreachable server is told so: %s", &b)
	}
}

func TestPersonLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := NewLogger(&Flags{LogLevel: "info"}, &b, false)
	log.With("component", "api").Warn("the certificate is not\nchecked", "server", "127.0.0.1", "kept_as", "a\x1b[2Jb")
	log.Debug("not shown")
	log.Info("done")
	if want := "limpet: warning: the certificate is not checked (server 127.0.0.1, kept as a[2Jb)\nlimpet: done\n"; b.String() != want {
		t.Errorf("got %q\nwant %q", b.String(), want)
	}
	b.Reset()
	NewLogger(&Flags{LogLevel: "warn", LogFormat: "json"}, &b, false).Warn("x")
	var line map[string]any
	if json.Unmarshal(b.Bytes(), &line) != nil || line["msg"] != "x" {
		t.Errorf("--log-format json: %s", &b)
	}
}
