package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/sync/netx"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"
)

// subjectSource says where the token of the other party is. A program is not
// started and AWS is not asked: what is left is a file, or a URL of this network.
type subjectSource struct {
	File       string            `json:"file"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers"`
	Executable json.RawMessage   `json:"executable"`
	AWS        string            `json:"environment_id"`
	Format     struct {
		Type  string `json:"type"`
		Field string `json:"subject_token_field_name"`
	} `json:"format"`
}

func (s subjectSource) check() error {
	switch {
	case len(s.Executable) > 0:
		return errors.New("credential_source names a program, and limpet starts none")
	case s.AWS != "":
		return errors.New("credential_source is AWS, which limpet does not federate with Google")
	case (s.File == "") == (s.URL == ""):
		return errors.New("credential_source names neither a file nor a URL, or both")
	case s.Format.Type != "" && s.Format.Type != "text" && s.Format.Type != "json":
		return errors.New("the format of credential_source is neither text nor json")
	case s.Format.Type == "json" && s.Format.Field == "":
		return errors.New("the format of credential_source has no subject_token_field_name")
	}
	return nil
}

// subject reads the token of the other party, each time anew: it is short-lived.
type subject struct {
	p      *gcp
	r      Request
	source subjectSource
	b      *below
}

// SubjectToken implements externalaccount.SubjectTokenSupplier.
func (s *subject) SubjectToken(ctx context.Context, _ externalaccount.SupplierOptions) (string, error) {
	var text []byte
	var err error
	if s.source.File != "" {
		text, err = s.r.file(s.source.File)
	} else {
		c := s.b.c
		c.op, c.method, c.url, c.header, c.near = "get the token of the other party", http.MethodGet, s.source.URL, s.source.Headers, strings.HasPrefix(s.source.URL, "http://")
		var got answer
		got, err = s.p.do(ctx, c)
		text = got.body
	}
	if e, ok := errors.AsType[*netx.Error](err); ok {
		s.b.failed = e // the library tells it as text
	}
	if err != nil {
		return "", err
	}
	return s.source.read(text)
}

// read takes the token out of a file or an answer.
func (s subjectSource) read(text []byte) (string, error) {
	token := string(bytes.TrimSpace(text))
	if s.Format.Type == "json" {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil || json.Unmarshal(members[s.Format.Field], &token) != nil {
			return "", errors.New("the token of the other party is not in JSON as credential_source says")
		}
	}
	if !printable(token) {
		return "", errors.New("the token of the other party is empty, or is none")
	}
	return token, nil
}

// below makes the calls of x/oauth2: with the deadline, the bounds and the words
// of this room. It serves one goroutine and remembers what has failed, which the
// library tells as text.
type below struct {
	d   *desk
	ctx context.Context // of the attempt; the library asks without one
	c   call

	failed error
	asked  string    // the last URL, without query
	at     time.Time // of the last answer, by the clock of the other side
}

// RoundTrip implements http.RoundTripper.
func (b *below) RoundTrip(req *http.Request) (*http.Response, error) {
	c := b.c
	c.method, c.url, c.header = req.Method, req.URL.String(), map[string]string{}
	if req.Body != nil {
		defer req.Body.Close()
		body, err := io.ReadAll(io.LimitReader(req.Body, maxAnswer))
		if err != nil {
			return nil, err
		}
		c.body = string(body)
	}
	for name := range req.Header {
		c.header[name] = req.Header.Get(name)
	}
	c.secrets = append(slices.Clone(c.secrets), strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	if form, err := url.ParseQuery(c.body); err == nil {
		c.secrets = append(c.secrets, form.Get("assertion"), form.Get("subject_token"))
	}
	b.asked, _, _ = strings.Cut(c.url, "?")
	got, err := b.d.do(b.ctx, c)
	if err != nil {
		b.failed = err
		return nil, err
	}
	b.at = got.at
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)), ContentLength: int64(len(got.body)), Request: req}, nil
}

// untilLocal is the life of a token whose end the library has reckoned by the
// local clock.
func (*below) untilLocal(t *oauth2.Token) time.Duration {
	if t == nil {
		return 0
	}
	return time.Until(t.Expiry)
}

var (
	_ http.RoundTripper                    = (*below)(nil)
	_ externalaccount.SubjectTokenSupplier = (*subject)(nil)
)
