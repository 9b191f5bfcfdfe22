package bucket_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	access = "AKIALIMPET"
	secret = "s3cr3t-canary"
	region = "eu-test-1"
)

// host is a server of S3 with one bucket, which answers as its documentation says and refuses what
// is not signed with the keys.
type host struct {
	*httptest.Server

	mu      sync.Mutex // guards what follows
	objects map[string]object
	asked   []string
	page    int                                               // objects of a page of a listing
	open    bool                                              // to requests without a signature
	clock   time.Duration                                     // its clock less the right one
	before  func(w http.ResponseWriter, r *http.Request) bool // answers in place of it
}

// RoundTrip sends the requests for the hosts of clouds to this one.
func (h *host) RoundTrip(req *http.Request) (*http.Response, error) {
	to := *req.URL
	if req = req.Clone(req.Context()); req.URL.Port() == "" {
		to.Scheme, to.Host = "http", h.Listener.Addr().String()
		req.URL = &to
	}
	return http.DefaultTransport.RoundTrip(req)
}

// getenv is the environment of the identities of clouds, whose metadata servers are this host.
func (h *host) getenv(name string) string {
	switch name {
	case "GCE_METADATA_HOST":
		return h.Listener.Addr().String()
	case "AZURE_POD_IDENTITY_AUTHORITY_HOST", "AWS_EC2_METADATA_SERVICE_ENDPOINT":
		return h.URL
	}
	return ""
}

type object struct{ body, etag string }

func newHost(t *testing.T) *host {
	h := &host{objects: map[string]object{}, page: 1000}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

// set changes what the host does.
func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// store stores objects, each as key and body.
func (h *host) store(keysAndBodies ...string) {
	h.set(func() {
		for i := 0; i < len(keysAndBodies); i += 2 {
			sum := md5.Sum([]byte(keysAndBodies[i+1]))
			h.objects[keysAndBodies[i]] = object{keysAndBodies[i+1], hex.EncodeToString(sum[:])}
		}
	})
}

// take returns the requests since the last call.
func (h *host) take() (asked []string) {
	h.set(func() { asked, h.asked = h.asked, nil })
	return asked
}

// revision is that of source-controller for the objects below a prefix.
func (h *host) revision(prefix string, without ...string) string {
	sum := sha256.New()
	h.set(func() {
		for _, key := range slices.Sorted(maps.Keys(h.objects)) {
			if strings.HasPrefix(key, prefix) && !strings.HasSuffix(key, "/") && key != ".sourceignore" && !slices.Contains(without, key) {
				fmt.Fprintf(sum, "%s %s\n", key, h.objects[key].etag)
			}
		}
	})
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

func refuse(w http.ResponseWriter, status int, code, more string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>it says so</Message>%s</Error>`, code, more)
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if strings.HasPrefix(r.Host, "site.s3.") {
		bucket, key = "site", strings.TrimPrefix(r.URL.Path, "/")
	}
	if what := "GET " + key; key == "" {
		h.asked = append(h.asked, "LIST")
	} else if bucket == "site" {
		h.asked = append(h.asked, what)
	}
	w.Header().Set("Date", time.Now().Add(h.clock).UTC().Format(http.TimeFormat))
	switch now := time.Now().Add(h.clock); {
	case h.before != nil && h.before(w, r):
	case h.cloud(w, r, bucket):
	case !h.open && !signed(r):
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch", "<StringToSign>"+secret+"</StringToSign>")
	case !h.open && now.Sub(dateOf(r)).Abs() > 15*time.Minute:
		refuse(w, http.StatusForbidden, "RequestTimeTooSkewed", "")
	case !h.open && !strings.Contains(r.Header.Get("Authorization"), "/"+region+"/s3/"):
		refuse(w, http.StatusBadRequest, "AuthorizationHeaderMalformed", "<Region>"+region+"</Region>")
	case bucket != "site":
		refuse(w, http.StatusNotFound, "NoSuchBucket", "")
	case key == "":
		h.list(w, r.URL.Query())
	default:
		h.get(w, r, key)
	}
}

// cloud answers the requests of the clouds that have tokens, and their metadata servers.
func (h *host) cloud(w http.ResponseWriter, r *http.Request, first string) bool {
	token := `{"access_token":"` + secret + `","expires_in":"3599"}`
	aws := `{"AccessKeyId":"` + access + `","SecretAccessKey":"` + secret + `","Token":"session","Expiration":"2100-01-01T00:00:00Z"}`
	w.Header().Set("Metadata-Flavor", "Google")
	asked := r.Header.Get("Authorization") == "Bearer "+secret || r.URL.Query().Get("sig") == secret
	switch key := strings.TrimPrefix(r.URL.Path, "/site/"); {
	case first == "computeMetadata" && strings.HasSuffix(key, "email"):
		_, _ = io.WriteString(w, "robot@example.com")
	case first == "metadata" && r.URL.Query().Get("resource") == "https://storage.azure.com", first == "computeMetadata":
		_, _ = io.WriteString(w, token)
	case strings.HasSuffix(key, "security-credentials/"), strings.HasSuffix(key, "api/token"):
		_, _ = io.WriteString(w, "role")
	case first == "latest":
		_, _ = io.WriteString(w, aws)
	case asked && r.URL.Query().Get("comp") == "list":
		h.listAzure(w, r.URL.Query())
	case asked && r.URL.Query().Get("list-type") == "2":
		h.list(w, r.URL.Query())
	case asked:
		h.get(w, r, key)
	default:
		return false
	}
	return true
}

func (h *host) listAzure(w http.ResponseWriter, query url.Values) {
	_, _ = io.WriteString(w, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>")
	next := ""
	for i, key := range slices.Sorted(maps.Keys(h.objects)) {
		if key <= query.Get("marker") || !strings.HasPrefix(key, query.Get("prefix")) {
			continue
		}
		o := h.objects[key]
		fmt.Fprintf(w, `<Blob><Name>%s</Name><Properties><Content-Length>%d</Content-Length><Etag>%s</Etag></Properties></Blob>`,
			html.EscapeString(key), len(o.body), o.etag)
		if i%2 == 1 {
			next = key
			break
		}
	}
	fmt.Fprintf(w, `</Blobs><NextMarker>%s</NextMarker></EnumerationResults>`, html.EscapeString(next))
}

func dateOf(r *http.Request) time.Time {
	at, _ := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	return at
}

// signed reports whether a request has the signature of the keys over the headers that it names.
func signed(r *http.Request) bool {
	given := r.Header.Get("Authorization")
	_, rest, _ := strings.Cut(given, "Credential="+access+"/")
	scope := strings.Split(rest, "/")
	_, names, ok := strings.Cut(given, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	if !ok || len(scope) < 3 {
		return false
	}
	again := &http.Request{Method: r.Method, URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery},
		Host: r.Host, Header: http.Header{}}
	for name := range strings.SplitSeq(names, ";") {
		if values := r.Header.Values(name); len(values) > 0 {
			again.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	keys := aws.Credentials{AccessKeyID: access, SecretAccessKey: secret, SessionToken: r.Header.Get("X-Amz-Security-Token")}
	err := signer.SignHTTP(r.Context(), keys, again, r.Header.Get("X-Amz-Content-Sha256"),
		"s3", scope[1], dateOf(r))
	return err == nil && again.Header.Get("Authorization") == given
}

func (h *host) list(w http.ResponseWriter, query url.Values) {
	var page, next strings.Builder
	n := 0
	after, _ := hex.DecodeString(query.Get("continuation-token"))
	for _, key := range slices.Sorted(maps.Keys(h.objects)) {
		if !strings.HasPrefix(key, query.Get("prefix")) || key <= string(after) {
			continue
		}
		if n++; n > h.page {
			next.WriteString("<IsTruncated>true</IsTruncated>")
			break
		}
		o := h.objects[key]
		is := "<ETag>&#34;" + o.etag + "&#34;</ETag>"
		if _, err := time.Parse(time.RFC3339, o.etag); err == nil { // of an object that has none
			is = "<ETag></ETag><LastModified>" + o.etag + "</LastModified>"
		}
		fmt.Fprintf(&page, `<Contents><Key>%s</Key>%s<Size>%d</Size></Contents>`, url.QueryEscape(key), is, len(o.body))
		if n == h.page {
			next.WriteString("<NextContinuationToken>" + hex.EncodeToString([]byte(key)) + "</NextContinuationToken>")
		}
	}
	if n <= h.page {
		next.Reset()
	}
	fmt.Fprintf(w, `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>%s%s</ListBucketResult>`,
		page.String(), next.String())
}

func (h *host) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := h.objects[key]
	quoted := `"` + o.etag + `"`
	if modified, err := time.Parse(time.RFC3339, o.etag); err == nil {
		quoted = ""
		if since, err := http.ParseTime(r.Header.Get("If-Unmodified-Since")); err != nil || modified.After(since) {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "")
			return
		}
	}
	w.Header().Set("ETag", quoted)
	switch match := r.Header.Get("If-Match"); {
	case !ok:
		refuse(w, http.StatusNotFound, "NoSuchKey", "")
		return
	case match != "" && match != quoted:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "")
		return
	case quoted != "" && r.Header.Get("If-None-Match") == quoted:
		w.WriteHeader(http.StatusNotModified)
		return
	}
	from, status := 0, http.StatusOK
	if at, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		from, _ = strconv.Atoi(strings.TrimSuffix(at, "-"))
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(o.body)-1, len(o.body)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(o.body)-from))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(o.body[from:]))
}
