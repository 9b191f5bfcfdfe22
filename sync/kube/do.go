package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"limpet/sync/text"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mostAnswer bounds what Do reads of one answer, in bytes.
const mostAnswer = 64 << 20

// Do makes a raw call: path is below the base URL and begins with a slash,
// body may be nil. contentType is that of the body; without a body it is the
// form in which the answer is wanted ("" = JSON). It repeats like Retry; POST
// and PATCH are repeated only when the server says that it did not take them
// (429, 503) or was not reached.
//
// When the server answers with 400 or more, err is an API status error (see
// apierrors), and status and answer are filled in as well. status is 0 when
// there was no answer.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	return c.do(ctx, method, path, query, contentType, body, repeatable)
}

// DoIdempotent is Do for a call that is harmless when it is carried out twice,
// whatever its method: POST and PATCH are repeated like the others.
func (c *Client) DoIdempotent(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	return c.do(ctx, method, path, query, contentType, body, func(string, int, error) bool { return true })
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, contentType string, body []byte,
	repeatable func(method string, status int, err error) bool) (status int, answer []byte, err error) {
	err = Retry(ctx, func(ctx context.Context) error {
		status, answer, err = c.once(ctx, method, path, query, contentType, body)
		if err != nil && !repeatable(method, status, err) {
			return final{err}
		}
		return err
	})
	var last final
	if errors.As(err, &last) {
		err = last.error
	}
	return status, answer, err
}

// final is an error that Retry must not repeat.
type final struct{ error }

func repeatable(method string, status int, err error) bool {
	if method != http.MethodPost && method != http.MethodPatch {
		return true
	}
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || neverSent(err)
}

func (c *Client) once(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (int, []byte, error) {
	u := *c.shared.target.base
	u.Path += path
	u.RawQuery = query.Encode()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), reader)
	if err != nil {
		return 0, nil, fmt.Errorf("make a request for %s: %w", path, err)
	}
	req.Header.Set("Accept", "application/json")
	switch {
	case contentType == "":
	case body == nil:
		req.Header.Set("Accept", contentType)
	default:
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, text.RedactError(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	case len(answer) > mostAnswer:
		return resp.StatusCode, nil, fmt.Errorf("the answer to %s %s is larger than %d MiB", method, path, mostAnswer>>20)
	case resp.StatusCode >= 400:
		return resp.StatusCode, answer, statusError(resp, method, answer)
	}
	return resp.StatusCode, answer, nil
}

// statusError makes the error that client-go would make of the answer.
func statusError(resp *http.Response, method string, answer []byte) error {
	var status metav1.Status
	if strings.Contains(resp.Header.Get("Content-Type"), "json") && decodeStatus(answer, &status) {
		if status.Code == 0 {
			status.Code = int32(resp.StatusCode)
		}
		return apierrors.FromObject(&status)
	}
	after, _ := retryAfterOf(resp)
	message := ""
	if !isHTML(resp) {
		message = text.Redact(string(answer[:min(len(answer), 512)]))
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, method, schema.GroupResource{}, "", strings.TrimSpace(message),
		int(after/time.Second), true)
}

// neverSent reports whether a call cannot have reached the server.
func neverSent(err error) bool {
	var (
		dns      *net.DNSError
		op       *net.OpError
		exchange *ExchangeError
	)
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) || errors.As(err, &exchange) ||
		(errors.As(err, &op) && op.Op == "dial")
}

func decodeStatus(answer []byte, status *metav1.Status) bool {
	return json.Unmarshal(answer, status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure
}
