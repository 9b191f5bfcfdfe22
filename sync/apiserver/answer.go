package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"limpet/state"
	"limpet/sync/api"
)

// Media types. YAML, protobuf and CBOR are never served: clients that prefer them
// also accept JSON, and those that accept nothing else get a 406.
const (
	mediaJSON  = "application/json"
	metaGroup  = "meta.k8s.io"
	asTable    = "Table"
	asMetadata = "PartialObjectMetadata"
	asMetaList = "PartialObjectMetadataList"
)

// media is the requested form of a response.
type media struct {
	pretty  bool
	as      string // "", asTable, asMetadata, asMetaList
	version string // of the group meta.k8s.io, with as
}

// metaVersion returns the apiVersion of a converted response.
func (m media) metaVersion() string { return metaGroup + "/" + m.version }

// negotiate reads the Accept header; the client's order decides among equal
// qualities. It returns a 406 status error when nothing fits.
func negotiate(req *http.Request) (media, error) {
	header := strings.Join(req.Header.Values("Accept"), ",")
	if header == "" {
		header = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		if m, ok := accept(clause); ok {
			m.pretty = m.pretty || pretty(req)
			return m, nil
		}
	}
	return media{pretty: pretty(req)}, statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+mediaJSON)
}

func accept(c goautoneg.Accept) (media, bool) {
	m := media{pretty: c.Params["pretty"] == "1", as: c.Params["as"], version: c.Params["v"]}
	if c.Q <= 0 || c.Type != "*" && c.Type != "application" || c.SubType != "*" && c.SubType != "json" {
		return m, false
	}
	if m.as == "" && c.Params["g"] == "" && m.version == "" {
		return m, true
	}
	known := slices.Contains([]string{asTable, asMetadata, asMetaList}, m.as)
	return m, known && c.Params["g"] == metaGroup && (m.version == "v1" || m.version == "v1beta1")
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

// answer reveals a stored form and sends it in the requested one.
func (c *call) answer(code int, stored []byte) error {
	data, err := c.server.reveal(c.req.Context(), c.target.kind, stored)
	if err == nil {
		data, err = c.inForm(data)
	}
	if err != nil {
		return err
	}
	c.server.answerBytes(c.w, c.media, code, data)
	return nil
}

// inForm converts one revealed object to the requested form.
func (c *call) inForm(data []byte) ([]byte, error) {
	data = c.target.inVersion(data)
	switch c.media.as {
	case asTable:
		table, err := c.table([][]byte{data})
		if err != nil {
			return nil, err
		}
		return json.Marshal(table)
	case asMetadata, asMetaList:
		return metadataOf(c.media, data), nil
	}
	return data, nil
}

func metadataOf(m media, data []byte) []byte {
	meta := []byte("{}")
	if place := find(data, "metadata"); place.found() {
		meta = place.of(data)
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"PartialObjectMetadata","metadata":%s}`, m.metaVersion(), meta)
}

// answerJSON sends any value as JSON.
func (s *Server) answerJSON(w http.ResponseWriter, req *http.Request, code int, v any) {
	m, _ := negotiate(req) // discovery and errors are sent in any case
	s.answerAny(w, m, code, v)
}

func (s *Server) answerAny(w http.ResponseWriter, m media, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.log.Error("write answer", "err", err)
		http.Error(w, "write answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.answerBytes(w, m, code, data)
}

func (s *Server) answerBytes(w http.ResponseWriter, m media, code int, data []byte) {
	var out bytes.Buffer
	if m.pretty && json.Indent(&out, data, "", "  ") == nil {
		data = out.Bytes()
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(code)
	// The client may have closed the connection; there is no way to report that.
	_, _ = w.Write(data)
}

// answerError sends err as a Status object.
func (s *Server) answerError(w http.ResponseWriter, req *http.Request, err error) {
	status := s.statusOf(req.Context(), err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	s.answerJSON(w, req, int(status.Code), status)
}

// statusOf converts an error to a Status: a status error as it is, faults of the state file by
// their meaning, all others as 500. Every other error after the end of ctx is a timeout, whatever
// its cause.
func (s *Server) statusOf(ctx context.Context, err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		full := func(text string) apierrors.APIStatus {
			return statusError(http.StatusInsufficientStorage, "InsufficientStorage", text)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			known = apierrors.NewTimeoutError("the request did not complete within the allotted time", 1)
		case errors.Is(err, state.ErrClosed):
			known = apierrors.NewServiceUnavailable("the server is shutting down")
		case errors.Is(err, state.ErrFull):
			known = full("the state file has reached its size limit")
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			known = full("the disk of the state file is full")
		case errors.Is(err, state.ErrReadOnly):
			known = full("the state file cannot be written")
		default:
			s.log.Error("serve request", "err", err)
			known = apierrors.NewInternalError(err)
		}
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &status
}

// warn adds Warning headers, each text once.
func warn(w http.ResponseWriter, warnings []string) {
	for i, text := range warnings {
		if slices.Contains(warnings[:i], text) {
			continue
		}
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
}

func statusError(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

func unsupportedMedia(accepted ...string) error {
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

// errPath is the error for an unknown path.
var errPath = statusError(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")

// nameDescription is the description of the column Name. Source: ObjectMeta.
var nameDescription = metav1.ObjectMeta{}.SwaggerDoc()["name"]

// table makes the table that kubectl prints, one row for each revealed object
// in the version of the request. A table of one object has its resourceVersion.
func (c *call) table(items [][]byte) (*metav1.Table, error) {
	include := metav1.IncludeObjectPolicy(c.req.URL.Query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
	default:
		return nil, badRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: "+
			"must be 'Metadata', 'Object', 'None', or empty", include)
	}
	t := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: asTable, APIVersion: c.media.metaVersion()},
		ColumnDefinitions: columnsOf(c.target.kind),
		Rows:              []metav1.TableRow{},
	}
	for _, data := range items {
		obj, err := decodeObject(data)
		if err != nil {
			return nil, err
		}
		row := metav1.TableRow{}
		for _, column := range c.target.kind.Columns {
			row.Cells = append(row.Cells, cellOf(column, obj.Object))
		}
		switch include {
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Raw: data}
		case metav1.IncludeNone:
		default:
			row.Object = runtime.RawExtension{Raw: metadataOf(c.media, data)}
		}
		t.Rows = append(t.Rows, row)
		t.ResourceVersion = obj.GetResourceVersion()
	}
	return t, nil
}

func columnsOf(k api.Kind) []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, len(k.Columns))
	for i, c := range k.Columns {
		out[i] = metav1.TableColumnDefinition{
			Name:        c.Name,
			Type:        c.Type,
			Description: "Custom resource definition column (in JSONPath format): " + c.Path,
		}
		if c.Path == "" {
			out[i].Format, out[i].Description = "name", nameDescription
		}
	}
	return out
}

// cellOf returns the value of a column: an age for dates, nil for an absent value.
func cellOf(c api.Column, object map[string]any) any {
	value := c.Value(object)
	text, isText := value.(string)
	if value == nil || c.Type == "date" && !isText {
		return nil
	}
	if c.Type != "date" {
		return fmt.Sprint(value)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "<invalid>"
	}
	return duration.HumanDuration(time.Since(at))
}
