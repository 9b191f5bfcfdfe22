package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"limpet/state"
	"limpet/sync/api"
)

// maxBody is the largest request body in bytes. Source: the real API server's
// MaxRequestBodyBytes.
const maxBody = 3 << 20

// readBody reads the whole body. It returns a 413 status error when the body is
// larger than maxBody.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest("read request body: " + err.Error())
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError("limit is " + strconv.Itoa(maxBody))
	}
	return body, nil
}

// answerObject sends one object in the requested form. The object may carry any
// version; it is sent as the given one.
func (s *Server) answerObject(
	w http.ResponseWriter, req *http.Request, code int, k api.Kind, version string, obj *unstructured.Unstructured,
) {
	m, err := negotiate(req)
	if err != nil {
		s.answerError(w, req, err)
		return
	}
	data, err := encodeObject(obj.Object)
	if err != nil {
		s.answerError(w, req, err)
		return
	}
	s.answerStored(w, req, m, code, k, version, data)
}

// answerList sends objects as a list in the requested form.
func (s *Server) answerList(w http.ResponseWriter, req *http.Request, k api.Kind, version string, items []*unstructured.Unstructured) {
	m, err := negotiate(req)
	if err != nil {
		s.answerError(w, req, err)
		return
	}
	page := listPage{Revision: s.seen()}
	for _, item := range items {
		data, err := encodeObject(item.Object)
		if err != nil {
			s.answerError(w, req, err)
			return
		}
		page.Items = append(page.Items, data)
	}
	s.answerPage(w, req, m, k, version, page)
}

// answerStored sends the revealed stored form of one object.
func (s *Server) answerStored(w http.ResponseWriter, req *http.Request, m media, code int, k api.Kind, version string, data []byte) {
	data = atVersion(data, apiVersionOf(k, version))
	switch m.As {
	case asTable:
		t, err := tableOf(req, m, k, [][]byte{data}, true)
		if err != nil {
			s.answerError(w, req, err)
			return
		}
		t.ResourceVersion = text(data, find(data, "metadata", "resourceVersion"))
		s.answerAny(w, m, code, t)
	case asMetadata:
		s.answerBytes(w, m, code, metadataOf(m, data))
	case asMetaList:
		s.answerError(w, req, notAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list"))
	default:
		s.answerBytes(w, m, code, data)
	}
}

// answerPage sends a list in the requested form.
func (s *Server) answerPage(w http.ResponseWriter, req *http.Request, m media, k api.Kind, version string, page listPage) {
	meta := metav1.ListMeta{ResourceVersion: formatRevision(page.Revision), Continue: page.Continue, RemainingItemCount: page.Left}
	if m.As == asTable {
		items := make([][]byte, len(page.Items))
		for i, data := range page.Items {
			items[i] = atVersion(data, apiVersionOf(k, version))
		}
		t, err := tableOf(req, m, k, items, true)
		if err != nil {
			s.answerError(w, req, err)
			return
		}
		t.ListMeta = meta
		s.answerAny(w, m, http.StatusOK, t)
		return
	}
	apiVersion, kind := apiVersionOf(k, version), k.Kind+"List"
	if m.As == asMetadata {
		s.answerError(w, req, notAcceptable("you requested PartialObjectMetadata, but the requested object is a list"))
		return
	}
	if m.As == asMetaList {
		apiVersion, kind = m.metaVersion(), asMetaList
	}
	head, err := json.Marshal(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Meta       metav1.ListMeta `json:"metadata"`
	}{apiVersion, kind, meta})
	if err != nil {
		s.answerError(w, req, err)
		return
	}
	size := len(head) + 16
	for _, item := range page.Items {
		size += len(item) + 32
	}
	out := append(make([]byte, 0, size), head[:len(head)-1]...)
	out = append(out, `,"items":[`...)
	for i, data := range page.Items {
		if i > 0 {
			out = append(out, ',')
		}
		if m.As == asMetaList {
			out = append(out, metadataOf(m, data)...)
		} else {
			out = append(out, atVersion(data, apiVersionOf(k, version))...)
		}
	}
	s.answerBytes(w, m, http.StatusOK, append(out, "]}"...))
}

// metadataOf returns the object reduced to its metadata.
func metadataOf(m media, data []byte) []byte {
	out := append([]byte(`{"apiVersion":"`), m.metaVersion()...)
	out = append(out, `","kind":"PartialObjectMetadata","metadata":`...)
	if place := find(data, "metadata"); place.found() {
		out = append(out, place.of(data)...)
	} else {
		out = append(out, "{}"...)
	}
	return append(out, '}')
}

// answerJSON sends any value as JSON, or as YAML on request.
func (s *Server) answerJSON(w http.ResponseWriter, req *http.Request, code int, v any) {
	m, err := negotiate(req)
	if err != nil {
		m = media{}
	}
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
	contentType := mediaJSON
	switch {
	case m.YAML:
		if out, err := yaml.JSONToYAML(data); err == nil {
			contentType, data = mediaYAML, out
		}
	case m.Pretty:
		var out bytes.Buffer
		if json.Indent(&out, data, "", "  ") == nil {
			data = out.Bytes()
		}
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(code)
	// The client may have closed the connection; there is no way to report that.
	_, _ = w.Write(data)
}

// answerError sends err as a Status object: a status error as it is, faults of
// the state file by their meaning, all others as 500.
func (s *Server) answerError(w http.ResponseWriter, req *http.Request, err error) {
	status := s.statusOf(req.Context(), err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	s.answerJSON(w, req, int(status.Code), status)
}

// statusOf converts an error to a Status. Every error after the end of ctx is
// reported as a timeout, whatever its cause.
func (s *Server) statusOf(ctx context.Context, err error) *metav1.Status {
	var known apierrors.APIStatus
	status := metav1.Status{}
	switch {
	case errors.As(err, &known):
		status = known.Status()
	case ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = apierrors.NewTimeoutError("the request did not complete within the allotted time", 1).Status()
	case errors.Is(err, state.ErrClosed):
		status = apierrors.NewServiceUnavailable("the server is shutting down").Status()
	case errors.Is(err, state.ErrFull):
		status = statusError(http.StatusInsufficientStorage, "InsufficientStorage", "the state file has reached its size limit").Status()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status = statusError(http.StatusInsufficientStorage, "InsufficientStorage", "the disk of the state file is full").Status()
	case errors.Is(err, state.ErrReadOnly):
		status = statusError(http.StatusInsufficientStorage, "InsufficientStorage", "the state file cannot be written").Status()
	default:
		s.log.Error("serve request", "err", err)
		status = apierrors.NewInternalError(err).Status()
	}
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

// invalid returns a 422 status error with one cause per fault; nil if there are
// none.
func invalid(k api.Kind, name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(groupKind(k), name, errs)
}

// absent returns missing for an object that the store does not have, else err.
func absent(err, missing error) error {
	if errors.Is(err, state.ErrNotFound) {
		return missing
	}
	return err
}

func notFound(k api.Kind, name string) error { return apierrors.NewNotFound(groupResource(k), name) }

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// pathNotFound returns the error for an unknown path.
func pathNotFound() error {
	return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// nameDescription is the description of the column Name. Source: ObjectMeta.
var nameDescription = metav1.ObjectMeta{}.SwaggerDoc()["name"]

// tableOf makes the table that kubectl prints, one row for each revealed object
// in the version of the request.
func tableOf(req *http.Request, m media, k api.Kind, items [][]byte, headers bool) (*metav1.Table, error) {
	include := metav1.IncludeObjectPolicy(req.URL.Query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
	default:
		return nil, badRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: "+
			"must be 'Metadata', 'Object', 'None', or empty", include)
	}
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: asTable, APIVersion: m.metaVersion()}, Rows: []metav1.TableRow{}}
	if headers {
		t.ColumnDefinitions = columnsOf(k)
	}
	for _, data := range items {
		row := metav1.TableRow{}
		obj, err := decodeObject(data)
		if err != nil {
			return nil, err
		}
		for _, c := range k.Columns {
			row.Cells = append(row.Cells, cellOf(c, obj.Object))
		}
		switch include {
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Raw: data}
		case metav1.IncludeNone:
		default:
			row.Object = runtime.RawExtension{Raw: metadataOf(m, data)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

func columnsOf(k api.Kind) []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, len(k.Columns))
	for i, c := range k.Columns {
		if c.Path == "" {
			out[i] = metav1.TableColumnDefinition{Name: c.Name, Type: "string", Format: "name", Description: nameDescription}
			continue
		}
		out[i] = metav1.TableColumnDefinition{
			Name:        c.Name,
			Type:        c.Type,
			Description: "Custom resource definition column (in JSONPath format): " + c.Path,
		}
		if c.Wide {
			out[i].Priority = 1
		}
	}
	return out
}

// cellOf returns the value of a column: an age for dates, nil for an absent value.
func cellOf(c api.Column, object map[string]any) any {
	value := c.Value(object)
	switch {
	case value == nil:
		return nil
	case c.Type == "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
		return nil
	case c.Type == "date":
		text, ok := value.(string)
		if !ok {
			return nil
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return "<invalid>"
		}
		return duration.HumanDuration(time.Since(at))
	}
	return fmt.Sprint(value)
}
