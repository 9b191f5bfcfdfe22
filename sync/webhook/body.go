package webhook

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/sync/semaphore"
)

const (
	maxBody   = 25 << 20 // bytes of a body. Source: GitHub caps its payloads there, and Grafana's endpoint does
	smallBody = 64 << 10 // that each request may hold without asking; most deliveries are smaller
	// bodyRoom bounds what all larger bodies hold together, in bytes: one of the largest and some
	// others. Strangers may fill it, and then only larger deliveries have to come again.
	bodyRoom = 32 << 20
)

// Why a body cannot be had.
var (
	errTooLarge  = errors.New("the body is larger than 25 MiB")
	errNoRoom    = errors.New("too many large requests at once")
	errTruncated = errors.New("the body ended early")
	errSlow      = errors.New("the body took too long")
)

// payloadOf returns the JSON of a body: itself, or the member payload of a form, which is
// how GitHub sends it when nothing else is asked for.
func payloadOf(body []byte, contentType string) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(contentType); err != nil || kind != "application/x-www-form-urlencoded" {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !form.Has("payload") {
		return nil, errPayload
	}
	return []byte(form.Get("payload")), nil
}

// readBody reads a body of at most maxBody bytes. What it takes from room is given back by release, which is never nil.
func readBody(req *http.Request, room *semaphore.Weighted) (body []byte, release func(), err error) {
	release = func() {}
	if req.ContentLength > maxBody {
		return nil, release, errTooLarge
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(io.LimitReader(req.Body, smallBody))
	if err == nil && b.Len() == smallBody {
		size := req.ContentLength
		if size < 0 {
			size = maxBody
		}
		if !room.TryAcquire(size) {
			return nil, release, errNoRoom
		}
		release = func() { room.Release(size) }
		b.Grow(int(size) - smallBody + bytes.MinRead)
		_, err = b.ReadFrom(io.LimitReader(req.Body, maxBody-smallBody+1))
	}
	switch {
	case b.Len() > maxBody:
		return nil, release, errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, release, errSlow
	case err != nil:
		return nil, release, errTruncated
	}
	return b.Bytes(), release, nil
}
