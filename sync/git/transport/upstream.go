package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/auth"
	"limpet/sync/git/bundle"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// Another limpet serves the commit of one of its objects as a bundle. A HEAD stands for the list of
// refs; the bundle is the difference to a commit that both have. Objects are checked as those of
// any server: the commit is that which was announced, and everything has the hash that it is named
// by.

// upstreamSession asks another limpet. It holds no connection.
type upstreamSession struct{ refs *packp.AdvRefs }

func (c *Call) upstreamSession() (*upstreamSession, error) {
	parts := strings.Split(strings.Trim(c.Addr.Path, "/"), "/")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, giterr.New(giterr.Refused, "the url names no object",
			"write it as "+auth.UpstreamScheme+"://HOST/NAMESPACE/NAME for a GitRepository, or HOST/repository/NAMESPACE/NAME")
	}
	return &upstreamSession{}, nil
}

// upstream sends a request to the other limpet.
func (c *Call) upstream(ctx context.Context, method string, q url.Values) (*http.Response, error) {
	path := c.Addr.Path
	if strings.Count(path, "/") == 2 {
		path = "/gitrepository" + path
	}
	u := url.URL{Scheme: strings.TrimPrefix(c.Addr.Scheme, "limpet+"), Host: c.Addr.HostPort(), Path: path + "/latest.bundle",
		RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "limpet")
	authorize(req, c.Target.Creds)
	client, err := c.client.httpClient(c.Target.Creds)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// BehindSince stands in Call.Upstream before the time since when the other limpet, or one that it
// asks, cannot read its Git host.
const BehindSince = ", and cannot read its Git host since "

// AdvertisedReferencesContext asks for the commit.
func (s *upstreamSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	c := ctx.Value(callKey{}).(*Call)
	res, err := c.upstream(ctx, http.MethodHead, nil)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	name, commit := res.Header.Get(bundle.HeaderRef), res.Header.Get(bundle.HeaderCommit)
	id, ok := pack.ParseID(commit)
	if !ok || auth.CheckRefName(name) != nil {
		return nil, giterr.New(giterr.Protocol, "the answer names no commit", "check that the url is that of a limpet with --artifact-listen")
	}
	s.refs = packp.NewAdvRefs()
	s.refs.References[name] = id
	if tag, ok := pack.ParseID(res.Header.Get(bundle.HeaderTag)); ok {
		s.refs.References[name], s.refs.Peeled[name] = tag, id
	}
	s.refs.Capabilities.Add(capability.SymRef, "HEAD:"+name)
	s.refs.Capabilities.Set(capability.Shallow)
	c.Upstream = "fetched from mirror of limpet " + c.Addr.HostPort() + ", which verifies no signature"
	if res.Header.Get(bundle.HeaderVerified) == "true" {
		c.Upstream = "fetched from mirror of limpet " + c.Addr.HostPort() + ", which verified the signature"
	}
	if since, err := http.ParseTime(res.Header.Get(bundle.HeaderBehind)); err == nil {
		c.Upstream += BehindSince + since.UTC().Format(time.RFC3339)
	}
	return s.refs, nil
}

// UploadPack asks for the bundle.
func (s *upstreamSession) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	c, q := ctx.Value(callKey{}).(*Call), url.Values{}
	for _, id := range req.Haves[:min(len(req.Haves), maxHaves)] {
		q.Add("have", id.String())
	}
	if depth, _ := req.Depth.(packp.DepthCommits); depth > 0 {
		q.Set("depth", strconv.Itoa(int(depth)))
	}
	res, err := c.upstream(ctx, http.MethodGet, q)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(res.Body, bundle.LineBytes)
	c.SetBudget("header of the bundle", AnswerHead+bundle.LineBytes)
	head, _, err := bundle.ReadHeader(ctx, r, AnswerHead)
	commit, _ := pack.ParseID(res.Header.Get(bundle.HeaderCommit))
	if err == nil && commit != req.Wants[0] && !slices.Contains(slices.Collect(maps.Values(head.Refs)), req.Wants[0]) {
		err = c.refused(giterr.Wrap(giterr.Moved, errors.New("it has another commit by now: "+text.Line(commit.String(), 40)),
			"it is asked again"))
	}
	if err != nil {
		res.Body.Close()
		return nil, err
	}
	c.Bases = slices.Concat(head.Bases, head.Ends)
	return packp.NewUploadPackResponseWithPackfile(req, body{r, res.Body}), nil
}

// maxHaves bounds the length of a request.
const maxHaves = 32

// body is the rest of an answer.
type body struct {
	io.Reader
	io.Closer
}

func (s *upstreamSession) Close() error { return nil }
