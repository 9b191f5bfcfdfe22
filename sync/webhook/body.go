package webhook

import (
	"bytes"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/sync/semaphore"
)

const (
	// maxBody is the largest body that is taken, in bytes. Source: GitHub caps
	// its payloads there, and Grafana's endpoint does.
	maxBody = 25 << 20
	// smallBody is what each request may hold without asking; most deliveries are
	// smaller.
	smallBody = 64 << 10
	// bodyStep is the unit in which larger bodies take from the common room.
	bodyStep = 256 << 10
	// bodyRoom bounds what all larger bodies hold together, in bytes: one of the
	// largest and some others. Strangers may fill it, and then only larger
	// deliveries have to come again.
	bodyRoom = 32 << 20
)

// Why a body cannot be had.
var (
	errTooLarge  = errors.New("the body is larger than 25 MiB")
	errNoRoom    = errors.New("too many large requests at once")
	errTruncated = errors.New("the body ended early")
	errSlow      = errors.New("the body took too long")
)

// body is what was received, in pieces, so that it never has to be copied
// before its signature is right.
type body [][]byte

func (b body) writeTo(h hash.Hash) {
	for _, piece := range b {
		h.Write(piece)
	}
}

func (b body) joined() []byte {
	if len(b) == 1 {
		return b[0]
	}
	return bytes.Join(b, nil)
}

// payload is the JSON of a body: itself, or the member payload of a form, which is
// how GitHub sends it when nothing else is asked for.
func (b body) payload(contentType string) ([]byte, error) {
	raw := b.joined()
	if kind, _, err := mime.ParseMediaType(contentType); err != nil || kind != "application/x-www-form-urlencoded" {
		return raw, nil
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil || !form.Has("payload") {
		return nil, errPayload
	}
	return []byte(form.Get("payload")), nil
}

// readBody reads a body of at most mostBody bytes. What it takes from room is
// given back by release, which is never nil.
func readBody(req *http.Request, room *semaphore.Weighted) (b body, release func(), err error) {
	held := int64(0)
	release = func() { room.Release(held) }
	if req.ContentLength > maxBody {
		return nil, release, errTooLarge
	}
	size, total := smallBody, 0
	if n := req.ContentLength; n >= 0 && n < smallBody {
		size = int(n)
	}
	for {
		piece := make([]byte, size)
		n, err := fill(req.Body, piece)
		if n > 0 {
			b, total = append(b, piece[:n]), total+n
		}
		switch {
		case total > maxBody:
			return nil, release, errTooLarge
		case err == io.EOF, int64(total) == req.ContentLength:
			return b, release, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, release, errSlow
		case err != nil:
			return nil, release, errTruncated
		}
		if size = bodyStep; !room.TryAcquire(bodyStep) {
			return nil, release, errNoRoom
		}
		held += bodyStep
	}
}

// fill reads until piece is full or r ends. Unlike io.ReadFull it keeps apart a
// body that ends and one that breaks off.
func fill(r io.Reader, piece []byte) (n int, err error) {
	for n < len(piece) && err == nil {
		var m int
		m, err = r.Read(piece[n:])
		n += m
	}
	return n, err
}
