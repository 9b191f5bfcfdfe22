package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAway(t *testing.T) {
	t.Parallel()
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "put", schema.GroupResource{Resource: "dashboards"}, "a", "", 0, true)
	}
	for name, c := range map[string]struct {
		err  error
		away bool
	}{
		"nothing":             {nil, false},
		"no connection":       {&url.Error{Op: "Put", URL: "https://a", Err: syscall.ECONNREFUSED}, true},
		"connection cut":      {fmt.Errorf("update a: %w", io.ErrUnexpectedEOF), true},
		"no answer in time":   {&timeoutError{}, true},
		"deadline of a call":  {fmt.Errorf("get a: %w", context.DeadlineExceeded), true},
		"token exchange":      {&ExchangeError{Err: errors.New("status 403: no")}, true},
		"a captive portal":    {&NotKubernetesError{URL: "https://a", Status: 200}, true},
		"401":                 {fmt.Errorf("update a: %w", status(http.StatusUnauthorized)), true},
		"429":                 {status(http.StatusTooManyRequests), true},
		"502":                 {status(http.StatusBadGateway), true},
		"503":                 {status(http.StatusServiceUnavailable), true},
		"504":                 {status(http.StatusGatewayTimeout), true},
		"400":                 {status(http.StatusBadRequest), false},
		"403":                 {status(http.StatusForbidden), false},
		"404":                 {status(http.StatusNotFound), false},
		"409":                 {status(http.StatusConflict), false},
		"422":                 {status(http.StatusUnprocessableEntity), false},
		"500 is an answer":    {status(http.StatusInternalServerError), false},
		"somebody cancelled":  {fmt.Errorf("get a: %w", context.Canceled), false},
		"an answer too large": {fmt.Errorf("list: %w", errTooLarge), false},
		"another error":       {errors.New("no such file"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := AsUnavailable(c.err)
			if away := errors.As(got, new(*UnavailableError)); away != c.away {
				t.Errorf("away %v, want %v: %v", away, c.away, got)
			}
			if !errors.Is(got, c.err) {
				t.Errorf("%v does not wrap %v", got, c.err)
			}
			if AsUnavailable(got) != got {
				t.Error("wrapped twice")
			}
		})
	}
}
