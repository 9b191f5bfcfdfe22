package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"limpet/sync/netx"
	"limpet/sync/text"
)

// MaxArtifact bounds an artifact, in bytes. One of a repository of manifests has some hundred
// kilobytes.
const MaxArtifact = 1 << 30

const (
	fetchTimeout = time.Hour        // of a download
	idleTimeout  = 30 * time.Second // of a time without data
)

// DigestError reports that the served artifact has another digest than the status
// says. The controller may have repacked the same commit in between.
type DigestError struct{ Want, Got string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("the artifact that is served has the digest %s, its source tells of %s", e.Got, e.Want)
}

// UnreachableError reports that the server of an artifact cannot be reached.
type UnreachableError struct {
	Host string // without port
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the server of the artifact, %s, is not reached from here: %v", e.Host, e.Err)
}
func (e *UnreachableError) Unwrap() error { return e.Err }

// Fetch writes an artifact to w and returns its size. The content is verified only if the error is
// nil. via replaces scheme and host of the URL, for servers in a cluster that are reached another
// way; "" means none. Fetch sends no credentials and follows no redirect to another host or from
// https to http.
func Fetch(ctx context.Context, a *Artifact, via string, w io.Writer) (n int64, err error) {
	sum, want, err := digestOf(a.Digest)
	if err != nil {
		return 0, err
	}
	from, err := artifactURL(a.URL, via)
	if err != nil {
		return 0, err
	}
	if a.Size > MaxArtifact {
		return 0, fmt.Errorf("the artifact has %s; the limit is %s", text.Size(a.Size), text.Size(MaxArtifact))
	}
	most := cmp.Or(max(a.Size, 0), MaxArtifact)
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	ctx, watch, stop := netx.WithSilence(ctx, idleTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return 0, fmt.Errorf("ask for the artifact: %w", err)
	}
	req.Header.Set("User-Agent", "limpet")
	req.Header.Set("Accept-Encoding", "identity") // the digest is of the packed bytes
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: sameHost}
	resp, err := client.Do(req)
	if err != nil {
		return 0, &UnreachableError{Host: from.Hostname(), Err: causeOf(ctx, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the server of the artifact answers %s for %s", resp.Status, from.Path)
	}
	n, err = io.Copy(io.MultiWriter(w, sum), watch(io.LimitReader(resp.Body, most+1)))
	switch {
	case err != nil:
		return n, fmt.Errorf("read the artifact: %w", causeOf(ctx, err))
	case n > most && a.Size > 0:
		return n, fmt.Errorf("the artifact is larger than the %d bytes that its source tells of", a.Size)
	case n > most:
		return n, fmt.Errorf("the artifact is larger than %s, the limit", text.Size(most))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		algorithm, _, _ := strings.Cut(a.Digest, ":")
		return n, &DigestError{Want: a.Digest, Got: algorithm + ":" + got}
	}
	return n, nil
}

// digestOf parses a digest. It refuses an unsupported one, because the artifact could not be
// verified.
func digestOf(digest string) (hash.Hash, string, error) {
	algorithm, want, _ := strings.Cut(strings.ToLower(digest), ":")
	open := map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}[algorithm]
	switch {
	case digest == "":
		return nil, "", errors.New("its source tells no digest, so the artifact cannot be checked")
	case open == nil:
		return nil, "", fmt.Errorf("the digest of the artifact, %s, is none that can be checked here (sha256, sha384, sha512)",
			text.Clean(digest))
	case len(want) != 2*open().Size():
		return nil, "", fmt.Errorf("the digest of the artifact, %s, has the wrong length", text.Clean(digest))
	}
	return open(), want, nil
}

// artifactURL returns the URL to download from.
func artifactURL(raw, via string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the artifact has no address of http or https: %s", text.Clean(raw))
	}
	if via == "" {
		return u, nil
	}
	by, err := url.Parse(via)
	if err != nil || by.Scheme != "http" && by.Scheme != "https" || by.Host == "" {
		return nil, fmt.Errorf("%s is no address of http or https", text.Redact(via))
	}
	u.Scheme, u.Host, u.User = by.Scheme, by.Host, nil
	u.Path, u.RawPath = strings.TrimSuffix(by.Path, "/")+u.Path, ""
	return u, nil
}

func sameHost(req *http.Request, before []*http.Request) error {
	if len(before) > 5 {
		return errors.New("too many redirects")
	}
	if req.URL.Host != before[0].URL.Host {
		return fmt.Errorf("it leads to another host, %s", req.URL.Host)
	}
	return netx.CheckDowngrade(before[len(before)-1].URL, req.URL)
}

// causeOf returns why a request failed: the cause of ctx, or the error without method and URL.
func causeOf(ctx context.Context, err error) error {
	if call, is := errors.AsType[*url.Error](err); is {
		err = call.Err
	}
	return cmp.Or(context.Cause(ctx), err)
}
