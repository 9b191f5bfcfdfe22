package bucket

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/smithy-go/encoding/httpbinding"

	"limpet/sync/auth"
	"limpet/sync/netx"
	"limpet/sync/text"
)

// The bounds of a listing. Its time is that of the spec.
const (
	mostKeys   = "1000"   // of a page
	maxPage    = 8 << 20  // bytes of a page
	maxListing = 64 << 20 // bytes of all pages
	// azureVersion is the version of Azure's API, without which it takes no token.
	azureVersion = "2021-12-02"
)

// remote is a bucket that is read over HTTP, in the dialect of S3, which Google's servers take with a
// token, or in that of Azure. It follows no redirects: a request is signed for one host, or holds
// a token.
type remote struct {
	provider  string
	region    string
	root      url.URL // of the bucket
	login     *auth.Credentials
	client    *netx.Client
	transport http.RoundTripper
}

// refusal is an answer that is no success.
type refusal struct {
	Status  int    `xml:"-"`
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
	Region  string `xml:"Region"` // of the bucket, where the request was for another one
}

func (e *refusal) Error() string {
	s := fmt.Sprintf("%d %s", e.Status, cmp.Or(e.Code, http.StatusText(e.Status)))
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Region != "" {
		s += "; the bucket is in region " + e.Region + ", which belongs into spec.region"
	}
	return s
}

// refused reports whether an error is an answer of one of the statuses.
func refused(err error, status ...int) bool {
	e, ok := errors.AsType[*refusal](err)
	return ok && slices.Contains(status, e.Status)
}

// at returns the URL of an object, escaped as it is signed; "" is the bucket.
func (r *remote) at(key string) *url.URL {
	u := r.root
	if key != "" {
		u.Path += "/" + key
	}
	u.Path = "/" + strings.TrimPrefix(u.Path, "/")
	u.RawPath = httpbinding.EscapePath(u.Path, false)
	return &u
}

// get sends a request. Where the host says that the clock of this one is wrong, it is sent again.
func (r *remote) get(ctx context.Context, to *url.URL, header http.Header) (*http.Response, error) {
	resp, err := r.send(ctx, *to, header)
	if e, ok := errors.AsType[*refusal](err); ok && e.Code == "RequestTimeTooSkewed" {
		return r.send(ctx, *to, header)
	}
	return resp, err
}

func (r *remote) send(ctx context.Context, to url.URL, header http.Header) (*http.Response, error) {
	if err := r.client.Guard.Host(to.Hostname()); err != nil {
		return nil, err
	}
	req := (&http.Request{Method: http.MethodGet, URL: &to, Host: to.Host, Header: header.Clone()}).WithContext(ctx)
	if r.provider == "azure" {
		req.Header.Set("X-Ms-Version", azureVersion)
	}
	if err := r.authorize(ctx, req, r.client.Clock(to.String())); err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", r.client.UserAgent)
	req.Header.Set("Accept-Encoding", "identity") // an object is what is stored; proxies change a header that is signed
	resp, err := r.transport.RoundTrip(req)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.New(r.root.Host + ": " + netx.SafeText(netx.NoAnswer(err, &r.root, ""), r.login.Secrets()...))
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.client.SetClock(to.Host, at)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, r.refusal(resp)
}

// refusal reads an answer that is no success. Its text is foreign.
func (r *remote) refusal(resp *http.Response) error {
	e := &refusal{}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	_ = xml.Unmarshal(body, e)                                          // else it says nothing
	if e.Status = resp.StatusCode; e.Status < http.StatusUnauthorized { // later ones name the region though it is right
		e.Region = cmp.Or(resp.Header.Get("X-Amz-Bucket-Region"), e.Region)
	}
	for _, foreign := range []*string{&e.Code, &e.Message, &e.Region} {
		*foreign = netx.SafeText(*foreign, r.login.Secrets()...)
	}
	if e.Status == http.StatusUnauthorized || e.Code == "ExpiredToken" {
		r.login.Refused()
	}
	return e
}

// object is an object of a listing.
type object struct {
	Key      string
	ETag     string
	Modified string `xml:"LastModified"` // stands for an ETag that a store does not give, in RFC 3339
	Size     int64
}

// page is a page of a listing. The first members are those of S3, the others those of Azure.
type page struct {
	XMLName  xml.Name
	Contents []object
	Encoding string `xml:"EncodingType"`
	Next     string `xml:"NextContinuationToken"`
	More     bool   `xml:"IsTruncated"`

	Blobs []struct {
		Name string
		ETag string `xml:"Properties>Etag"`
		Size int64  `xml:"Properties>Content-Length"`
	} `xml:"Blobs>Blob"`
	Marker string `xml:"NextMarker"`
}

// parsePage reads a page, and where the next one begins; "" = there is none.
func parsePage(body []byte) (objects []object, next string, err error) {
	var p page
	err = xml.Unmarshal(body, &p)
	if err != nil || p.XMLName.Local != "ListBucketResult" && p.XMLName.Local != "EnumerationResults" {
		return nil, "", errors.New("the answer is no listing of a bucket")
	}
	for _, b := range p.Blobs {
		p.Contents = append(p.Contents, object{Key: b.Name, ETag: b.ETag, Size: b.Size})
	}
	for i := range p.Contents {
		o := &p.Contents[i]
		if p.Encoding == "url" {
			o.Key, err = url.QueryUnescape(o.Key)
		}
		if o.ETag = cmp.Or(unquote(o.ETag), o.Modified); err != nil || o.ETag == "" || o.Size < 0 || strings.ContainsAny(o.ETag, "\"\r\n") {
			return nil, "", fmt.Errorf("the listing has an object without a good key, ETag or size: %q", text.Line(o.Key, 200))
		}
	}
	if p.More && p.Next == "" {
		return nil, "", errors.New("the listing goes on, and does not say where")
	}
	return p.Contents, cmp.Or(p.Next, p.Marker), nil
}

// unquote returns an ETag in the form of Flux, without its quotes.
func unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// list returns the objects below a prefix.
func (r *remote) list(ctx context.Context, prefix string) (listed []object, err error) {
	query, continued := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {mostKeys}}, "continuation-token"
	if r.provider == "azure" {
		query, continued = url.Values{"restype": {"container"}, "comp": {"list"}, "maxresults": {mostKeys}}, "marker"
	}
	query.Set("prefix", prefix)
	left := maxListing
	for {
		to := r.at("")
		to.RawQuery = query.Encode()
		resp, err := r.get(ctx, to, http.Header{})
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
		_ = resp.Body.Close()
		if err == nil && len(body) > maxPage {
			err = fmt.Errorf("a page of the listing has more than %s", text.Size(maxPage))
		}
		if err != nil {
			return nil, err
		}
		objects, next, err := parsePage(body)
		if left -= len(body); left < 0 {
			err = fmt.Errorf("the listing has more than %s; name a spec.prefix", text.Size(maxListing))
		}
		if listed = append(listed, objects...); err != nil || next == "" {
			return listed, err
		}
		query.Set(continued, next)
	}
}
