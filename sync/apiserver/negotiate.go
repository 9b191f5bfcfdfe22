package apiserver

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Media types. Protobuf and CBOR are never served: clients that prefer them
// also accept JSON, and those that accept nothing else get a 406.
const (
	mediaJSON  = "application/json"
	mediaYAML  = "application/yaml"
	metaGroup  = "meta.k8s.io"
	asTable    = "Table"
	asMetadata = "PartialObjectMetadata"
	asMetaList = "PartialObjectMetadataList"
)

// media is the requested form of a response.
type media struct {
	YAML    bool
	Pretty  bool
	As      string // "", asTable, asMetadata, asMetaList
	Version string // of the group meta.k8s.io, with As
}

// metaVersion returns the apiVersion of a converted response.
func (m media) metaVersion() string { return metaGroup + "/" + m.Version }

// clause is one element of an Accept header.
type clause struct {
	kind, sub string
	params    map[string]string
	quality   float64
}

// negotiate reads the Accept header; the client's order decides among equal
// qualities. It returns a 406 status error when nothing fits.
func negotiate(req *http.Request) (media, error) {
	header := strings.Join(req.Header.Values("Accept"), ",")
	if header == "" {
		return media{Pretty: pretty(req)}, nil
	}
	for _, c := range clauses(header) {
		if m, ok := accept(c); ok {
			m.Pretty = m.Pretty || pretty(req)
			return m, nil
		}
	}
	return media{}, notAcceptable("only the following media types are accepted: " + mediaJSON + ", " + mediaYAML)
}

func accept(c clause) (media, bool) {
	var m media
	switch {
	case c.kind == "*" && c.sub == "*", c.kind == "application" && (c.sub == "*" || c.sub == "json"):
	case c.kind == "application" && c.sub == "yaml":
		m.YAML = true
	default:
		return m, false
	}
	m.Pretty = c.params["pretty"] == "1"
	as, group, version := c.params["as"], c.params["g"], c.params["v"]
	if as == "" && group == "" && version == "" {
		return m, true
	}
	known := slices.Contains([]string{asTable, asMetadata, asMetaList}, as)
	if !known || group != metaGroup || (version != "v1" && version != "v1beta1") {
		return m, false
	}
	m.As, m.Version = as, version
	return m, true
}

// clauses parses the header and sorts it by descending quality. Malformed
// elements are skipped.
func clauses(header string) []clause {
	var out []clause
	for _, part := range strings.Split(header, ",") {
		name, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		kind, sub, _ := strings.Cut(name, "/")
		c := clause{kind: kind, sub: sub, params: params, quality: 1}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.quality = q
		}
		if kind == "*" && sub == "" {
			c.sub = "*"
		}
		if c.quality > 0 {
			out = append(out, c)
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		switch {
		case a.quality > b.quality:
			return true
		case a.quality < b.quality:
			return false
		}
		return false
	})
	return out
}

// pretty reports whether the response is to be indented: the client requests it,
// or is curl, wget or a browser. The list is that of the real API server.
func pretty(req *http.Request) bool {
	if strings.Contains(req.URL.RawQuery, "pretty") {
		if asked := req.URL.Query().Get("pretty"); asked != "" {
			yes, err := strconv.ParseBool(asked)
			return err == nil && yes
		}
	}
	agent := req.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// contentOf reports whether the body is YAML. It returns a 415 status error for
// forms other than JSON and YAML. No Content-Type means JSON.
func contentOf(req *http.Request) (yaml bool, err error) {
	header := req.Header.Get("Content-Type")
	if header == "" {
		return false, nil
	}
	name, _, err := mime.ParseMediaType(header)
	switch {
	case err == nil && name == mediaJSON:
		return false, nil
	case err == nil && name == mediaYAML:
		return true, nil
	}
	return false, unsupportedMedia(mediaJSON, mediaYAML)
}

func notAcceptable(message string) error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

func unsupportedMedia(accepted ...string) error {
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s", strings.Join(accepted, ", ")))
}

func statusError(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}
