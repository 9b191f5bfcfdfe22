package netx

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// A download that is cut and has brought something goes on at once, so often.
const mostCuts = 10

// Download is a file into which something of a known size comes. What it has is kept when it is
// cut: the next one goes on from there. It knows nothing of power cuts, after which the file may
// have other bytes than those that came.
type Download struct {
	path string
	file *os.File
	size int64 // of all
	sum  hash.Hash
	has  int64
}

// OpenDownload opens the file of a download, and hashes what it has.
func OpenDownload(path string, size int64, sum hash.Hash) (*Download, error) {
	d := &Download{path: path, size: size, sum: sum}
	var err error
	if d.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if d.has, err = io.Copy(sum, d.file); err != nil {
		return nil, errors.Join(err, d.file.Close())
	}
	return d, nil
}

// Close closes the file.
func (d *Download) Close() error { return d.file.Close() }

// Has returns how many bytes the file has.
func (d *Download) Has() int64 { return d.has }

// Write adds to the file.
func (d *Download) Write(data []byte) (int, error) {
	n, err := d.file.Write(data)
	d.sum.Write(data[:n])
	d.has += int64(n)
	return n, err
}

// Clear begins anew, in another file: the old one may have a second name.
func (d *Download) Clear() (err error) {
	if err := errors.Join(d.file.Close(), os.Remove(d.path)); err != nil {
		return err
	}
	d.sum.Reset()
	d.has = 0
	d.file, err = os.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

// From opens what is downloaded, from a byte on where the host can; from is what it has.
type From func(ctx context.Context, at int64) (body io.ReadCloser, from int64, err error)

// Fill brings what the file lacks. It ends when nothing comes for the limit.
func (d *Download) Fill(ctx context.Context, limit time.Duration, open From) (received int64, err error) {
	for range mostCuts + 1 {
		n := int64(0)
		n, err = d.resume(ctx, limit, open)
		received += n
		if err == nil || n == 0 || ctx.Err() != nil || errors.As(err, new(*SilentError)) {
			break
		}
	}
	return received, err
}

func (d *Download) resume(ctx context.Context, limit time.Duration, open From) (received int64, err error) {
	if d.has > d.size { // a host has sent too much, and has nothing behind it
		err = d.Clear()
	}
	if err != nil || d.has == d.size {
		return 0, err
	}
	ctx, watch, stop := WithSilence(ctx, limit)
	defer stop()
	body, from, err := open(ctx, d.has)
	if err != nil {
		return 0, causeOf(ctx, err)
	}
	defer body.Close()
	if from != d.has {
		err = d.Clear()
	}
	if err != nil {
		return 0, err
	}
	received, err = io.Copy(d, io.LimitReader(watch(body), d.size-d.has+1))
	switch {
	case err == nil && d.has < d.size:
		err = io.ErrUnexpectedEOF
	case err == nil && d.has > d.size:
		err = fmt.Errorf("it has more than %d bytes", d.size)
	}
	return received, causeOf(ctx, err)
}

// causeOf returns why a context has ended in place of an error of that.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Part returns the body of an answer to a request for what is behind a byte, and where it begins.
func Part(resp *http.Response, at int64) (body io.ReadCloser, from int64, err error) {
	if resp.StatusCode != http.StatusPartialContent {
		return resp.Body, 0, nil
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", at)) {
		_ = resp.Body.Close()
		return nil, 0, errors.New("the answer is another part than the one requested")
	}
	return resp.Body, at, nil
}

// SilentError says that a host has sent nothing.
type SilentError struct{ For time.Duration }

func (e *SilentError) Error() string { return fmt.Sprintf("nothing has come for %s", e.For) }

// WithSilence returns a context that ends with a *SilentError when nothing comes for a time through
// the readers that watch returns.
func WithSilence(
	parent context.Context, limit time.Duration,
) (ctx context.Context, watch func(io.Reader) io.Reader, stop func()) {
	ctx, end := context.WithCancelCause(parent)
	timer := time.AfterFunc(limit, func() { end(&SilentError{limit}) })
	watch = func(r io.Reader) io.Reader { return &watched{r, timer, limit} }
	stop = func() {
		timer.Stop()
		end(nil)
	}
	return ctx, watch, stop
}

// watched sets a timer back with all that comes.
type watched struct {
	io.Reader
	timer *time.Timer
	limit time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(w.limit)
	}
	return n, err
}
