package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"limpet/state"
	"limpet/sync/api"
)

// maxBody is the largest request body in bytes. Source: the real API server's MaxRequestBodyBytes.
const maxBody = 3 << 20

// trusted is how much memory the announced length of a body takes before any of it has come.
const trusted = 64 << 10

// call is one request for objects.
type call struct {
	server *Server
	target target
	verb   string
	w      http.ResponseWriter
	req    *http.Request
	media  media
	until  time.Time // end of the token; zero = none
}

// verbsOfNames are the methods of the verbs for one object, and verbsOfCollections those for many.
var (
	verbsOfNames = map[string]func(*call) error{
		verbGet: (*call).get, verbUpdate: (*call).update, verbPatch: (*call).patch, verbDelete: (*call).delete,
	}
	verbsOfCollections = map[string]func(*call) error{
		verbList: (*call).list, verbCreate: (*call).create, verbWatch: (*call).watch, verbDelete: (*call).deleteAll,
	}
	statusVerbs = []string{verbGet, verbPatch, verbUpdate}
)

// serve runs the verb. After an error nothing has been written.
func (c *call) serve() (err error) {
	if c.media, err = negotiate(c.req); err != nil {
		return err
	}
	if c.target.kind.Group == "" && c.target.kind.Kind == "Event" {
		c.expireEvents(c.req.Context())
	}
	switch {
	case c.target.subresource == "":
	case c.target.kind.Group == api.ProvisioningGroup && c.target.kind.Plural == "repositories" && c.target.subresource == "jobs" && len(c.target.rest) <= 1:
		return c.serveJobs()
	case c.target.subresource != "status" || !c.target.kind.Status || len(c.target.rest) > 0:
		return statusError(http.StatusNotFound, metav1.StatusReasonNotFound,
			c.target.resource().String()+" "+strconv.Quote(c.target.name)+" has no subresource "+strconv.Quote(c.target.subresource))
	case !slices.Contains(statusVerbs, c.verb):
		return apierrors.NewMethodNotSupported(c.target.resource(), c.verb)
	}
	verbs, others := verbsOfNames, verbsOfCollections
	if c.target.name == "" {
		verbs, others = others, verbs
	}
	run := verbs[c.verb]
	switch {
	case run != nil:
		return run(c)
	case c.target.name == "" && others[c.verb] != nil:
		return badRequest("name must be provided")
	}
	return apierrors.NewMethodNotSupported(c.target.resource(), c.verb)
}

func (c *call) get() error {
	ctx := c.req.Context()
	revision, err := parseRevision(cmp.Or(c.req.URL.Query().Get("resourceVersion"), "0"))
	if err == nil {
		err = c.server.feed.wait(ctx, revision)
	}
	if err != nil {
		return err
	}
	cur, err := c.server.store.Object(ctx, c.target.key())
	if errors.Is(err, state.ErrNotFound) {
		err = c.target.notFound()
		if c.server.options.SealedSecrets && isSecret(c.target.kind) && IsSealed(c.target.name) {
			cur.Data, err = c.server.sealedSecret(ctx, c.target)
		}
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, cur.Data)
}

func (c *call) create() error { return c.write("CreateOptions", http.StatusCreated, c.server.add) }
func (c *call) update() error { return c.write("UpdateOptions", http.StatusOK, c.server.put) }

// write stores the object in the body.
func (c *call) write(
	kind string, code int, store func(context.Context, target, *unstructured.Unstructured, writeOptions) ([]byte, error),
) error {
	o, err := c.options(kind, "")
	if err != nil {
		return err
	}
	if given := c.contentType(); given == mediaProtobuf && c.target.kind.CRD || !slices.Contains([]string{"", mediaJSON, mediaProtobuf}, given) {
		return unsupportedMedia(mediaJSON)
	}
	ownCreate := code == http.StatusCreated && c.target.kind.VersionedSpec && o.manager == processManager && !o.dryRun
	var data []byte
	if body, is := api.StrictBodyOf(c.req.Context()); is && ownCreate {
		data, o.spec = body.Cut()
		o.end = body.End
	} else if data, err = c.readBody(); err != nil {
		return err
	} else if ownCreate {
		data, o.spec = cutSpec(data)
	}
	obj, err := decodeBody(c.target, data, o)
	if err != nil {
		return err
	}
	out, err := store(c.req.Context(), c.target.withVersion(c.target.storedVersion(obj.Object), obj), obj, o)
	return c.wrote(code, o, out, err)
}

// contentType is that of the body without its parameters.
func (c *call) contentType() string {
	given, _, _ := strings.Cut(c.req.Header.Get("Content-Type"), ";")
	return strings.TrimSpace(given)
}

func (c *call) patch() error {
	form := types.PatchType(c.contentType())
	if !slices.Contains(patchTypes(c.target.kind), string(form)) {
		return unsupportedMedia(patchTypes(c.target.kind)...)
	}
	body, err := c.readBody()
	if err != nil {
		return err
	}
	o, err := c.options("PatchOptions", form)
	if err != nil {
		return err
	}
	out, created, err := c.server.patch(c.req.Context(), c.target, form, body, o)
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return c.wrote(code, o, out, err)
}

func (c *call) delete() error {
	d, err := c.deleteParameters()
	if err != nil {
		return err
	}
	var warnings []string
	out, gone, err := c.server.remove(c.req.Context(), c.target, d, &warnings)
	warn(c.w, warnings)
	if err != nil || !gone {
		return c.wrote(http.StatusOK, writeOptions{}, out, err)
	}
	c.server.answerAny(c.w, media{pretty: c.media.pretty}, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name:  c.target.name,
			Group: c.target.kind.Group,
			Kind:  c.target.kind.Plural,
			UID:   types.UID(text(out, find(out, "metadata", "uid"))),
		},
	})
	return nil
}

// deleteAll deletes the objects of a collection that the selectors select, and answers with them.
func (c *call) deleteAll() error {
	d, err := c.deleteParameters()
	if err != nil {
		return err
	}
	o, err := listParameters(c.req.URL.Query(), c.target, false)
	if err != nil {
		return err
	}
	page, err := c.server.page(c.req.Context(), c.target, o)
	if err != nil {
		return err
	}
	var warnings []string
	for _, item := range page.items {
		one := c.target
		one.name = text(item, find(item, "metadata", "name"))
		if _, _, err = c.server.remove(c.req.Context(), one, d, &warnings); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	warn(c.w, warnings)
	return c.answerPage(page)
}

// wrote sends the stored form that a write has made, or returns its error.
func (c *call) wrote(code int, o writeOptions, stored []byte, err error) error {
	if o.warnings != nil {
		warn(c.w, *o.warnings)
	}
	if err != nil {
		return err
	}
	return c.answer(code, stored)
}

// readBody reads the whole body, as JSON unless it is a patch. It returns a 413 status error when
// the body is larger than maxBody.
func (c *call) readBody() ([]byte, error) {
	if c.req.Body == nil {
		return nil, nil
	}
	var read bytes.Buffer
	read.Grow(int(min(max(c.req.ContentLength, 0), trusted)) + bytes.MinRead)
	_, err := read.ReadFrom(io.LimitReader(c.req.Body, maxBody+1))
	if err != nil {
		return nil, badRequest("read request body: %s", err)
	}
	body := read.Bytes()
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError("limit is " + strconv.Itoa(maxBody))
	}
	if c.contentType() == mediaProtobuf && len(body) > 0 {
		if body, err = protobufJSON(c.target.kind.Kind, body); err != nil {
			return nil, badRequest("read request body: %s", err)
		}
	}
	return body, nil
}

// options reads dryRun, fieldManager, fieldValidation and force. Its errors are 422
// status errors that name the options kind.
func (c *call) options(kind string, form types.PatchType) (writeOptions, error) {
	q := c.req.URL.Query()
	var o metav1.PatchOptions
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q, &o, nil); err != nil {
		return writeOptions{}, badRequest("%s", err)
	}
	var errs field.ErrorList
	if form != "" {
		errs = validation.ValidatePatchOptions(&o, form)
	} else {
		errs = validation.ValidateCreateOptions(&metav1.CreateOptions{
			DryRun:          o.DryRun,
			FieldManager:    o.FieldManager,
			FieldValidation: o.FieldValidation,
		})
	}
	if len(errs) > 0 {
		return writeOptions{}, apierrors.NewInvalid(metav1.Kind(kind), "", errs)
	}
	return writeOptions{
		manager:    cmp.Or(o.FieldManager, agentName(c.req.UserAgent())),
		dryRun:     len(o.DryRun) > 0,
		validation: cmp.Or(o.FieldValidation, metav1.FieldValidationWarn),
		force:      o.Force != nil && *o.Force,
		warnings:   new([]string),
	}, nil
}

// agentName returns the default field manager of a client: its User-Agent up to the first slash.
func agentName(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	if name == "" || len(validation.ValidateFieldManager(name, nil)) > 0 {
		return "unknown"
	}
	return name
}

// deleteParameters reads DeleteOptions from the body or else the query.
func (c *call) deleteParameters() (o metav1.DeleteOptions, err error) {
	body, err := c.readBody()
	if err != nil {
		return o, err
	}
	if len(body) == 0 {
		q := c.req.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&q, &o, nil); err != nil {
			return o, badRequest("%s", err)
		}
	} else {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &o); err != nil {
			return o, badRequest("%s", err)
		}
		if o.Kind != "" && o.Kind != "DeleteOptions" {
			return o, badRequest("decoded object cannot be converted to DeleteOptions")
		}
	}
	if errs := validation.ValidateDeleteOptions(&o); len(errs) > 0 {
		return o, apierrors.NewInvalid(metav1.Kind("DeleteOptions"), "", errs)
	}
	return o, nil
}
