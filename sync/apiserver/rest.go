package apiserver

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// call is one request for objects.
type call struct {
	*Server
	w     http.ResponseWriter
	req   *http.Request
	verb  string
	info  requestInfo
	media media
}

func (c *call) target() target {
	return target{
		kind:        c.info.Kind,
		version:     c.info.Version,
		namespace:   c.info.Namespace,
		name:        c.info.Name,
		subresource: c.info.Subresource,
	}
}

// serveObjects serves all requests below /api/v1 and /apis/GROUP/VERSION.
func (s *Server) serveObjects(w http.ResponseWriter, req *http.Request, info requestInfo, verb string) {
	if info.Subresource != "" {
		allowed := verbsOf(info.Kind, info.Subresource)
		switch {
		case allowed == nil || len(info.Rest) > 0:
			if !s.serveSubresource(w, req, info) {
				s.answerError(w, req, notFound(info.Kind, info.Name))
			}
			return
		case !slices.Contains(allowed, verb):
			s.answerError(w, req, apierrors.NewMethodNotSupported(groupResource(info.Kind), verb))
			return
		}
	}
	m, err := negotiate(req)
	if err != nil {
		s.answerError(w, req, err)
		return
	}
	c := &call{Server: s, w: w, req: req, verb: verb, info: info, media: m}
	if err := c.serve(); err != nil {
		s.answerError(w, req, err)
	}
}

// serve runs the verb. After an error nothing has been written.
func (c *call) serve() error {
	named := c.info.Name != ""
	switch c.verb {
	case verbGet:
		return c.get()
	case verbList:
		return c.list()
	case verbWatch:
		return c.watch()
	case verbDeleteCollection:
		return c.deleteCollection()
	case verbCreate:
		if !named {
			return c.create()
		}
	case verbUpdate, verbPatch, verbDelete:
		if !named {
			return apierrors.NewBadRequest("name must be provided")
		}
		switch c.verb {
		case verbUpdate:
			return c.update()
		case verbPatch:
			return c.patch()
		}
		return c.delete()
	}
	return apierrors.NewMethodNotSupported(groupResource(c.info.Kind), c.verb)
}

func (c *call) get() error {
	t, ctx := c.target(), c.req.Context()
	if revision, given, err := (listOptions{Version: c.req.URL.Query().Get("resourceVersion")}).revision(); err != nil {
		return err
	} else if given && !c.progress.wait(ctx, revision, freshTimeout) {
		return c.tooLarge(revision)
	}
	cur, err := c.store.Object(ctx, objectKey(t.kind, t.namespace, t.name))
	if err != nil {
		return absent(err, notFound(t.kind, t.name))
	}
	return c.answer(http.StatusOK, cur.Data)
}

func (c *call) create() error {
	o, err := c.options("CreateOptions", "")
	if err != nil {
		return err
	}
	obj, err := c.body(&o)
	if err != nil {
		return err
	}
	out, err := c.Server.add(c.req.Context(), c.target(), obj, o)
	return c.wrote(http.StatusCreated, o, out, err)
}

func (c *call) update() error {
	o, err := c.options("UpdateOptions", "")
	if err != nil {
		return err
	}
	obj, err := c.body(&o)
	if err != nil {
		return err
	}
	out, err := c.put(c.req.Context(), c.target(), obj, o)
	return c.wrote(http.StatusOK, o, out, err)
}

func (c *call) patch() error {
	kind, err := patchTypeOf(c.req, c.info.Kind)
	if err != nil {
		return err
	}
	body, err := readBody(c.req)
	if err != nil {
		return err
	}
	o, err := c.options("PatchOptions", kind)
	if err != nil {
		return err
	}
	out, created, err := c.Server.patch(c.req.Context(), c.target(), kind, body, o)
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return c.wrote(code, o, out, err)
}

func (c *call) delete() error {
	body, err := readBody(c.req)
	if err != nil {
		return err
	}
	o, err := deleteParameters(c.req, body)
	if err != nil {
		return err
	}
	t := c.target()
	w := writeOptions{Version: t.version, DryRun: len(o.DryRun) > 0, Warnings: new([]string)}
	out, gone, err := c.remove(c.req.Context(), t, o, w)
	if err != nil {
		return err
	}
	if !gone {
		return c.wrote(http.StatusOK, w, out, nil)
	}
	warn(c.w, *w.Warnings)
	c.answerAny(c.w, media{YAML: c.media.YAML, Pretty: c.media.Pretty}, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name:  t.name,
			Group: t.kind.Group,
			Kind:  t.kind.Plural,
			UID:   types.UID(text(out, find(out, "metadata", "uid"))),
		},
	})
	return nil
}

// deleteCollection deletes the selected objects and sends the list of them.
func (c *call) deleteCollection() error {
	body, err := readBody(c.req)
	if err != nil {
		return err
	}
	o, err := listParameters(c.req.URL.Query(), c.info.Kind, "", false)
	if err != nil {
		return err
	}
	d, err := deleteParameters(c.req, body)
	if err != nil {
		return err
	}
	ctx := c.req.Context()
	page, err := c.page(ctx, c.info, o)
	if err != nil {
		return err
	}
	w := writeOptions{Version: c.info.Version, DryRun: len(d.DryRun) > 0, Warnings: new([]string)}
	for _, item := range page.Items {
		t := c.target()
		t.name = text(item, find(item, "metadata", "name"))
		if _, _, err := c.remove(ctx, t, d, w); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	warn(c.w, *w.Warnings)
	c.answerPage(c.w, c.req, c.media, c.info.Kind, c.info.Version, page)
	return nil
}

// options reads the write options of the request.
func (c *call) options(kind string, patch types.PatchType) (writeOptions, error) {
	o, err := writeParameters(c.req, kind, patch)
	o.Version, o.Subresource = c.info.Version, c.info.Subresource
	o.Warnings = new([]string)
	return o, err
}

// body reads the object of a create or update.
func (c *call) body(o *writeOptions) (*unstructured.Unstructured, error) {
	isYAML, err := contentOf(c.req)
	if err != nil {
		return nil, err
	}
	data, err := readBody(c.req)
	if err != nil {
		return nil, err
	}
	obj, warnings, err := decodeBody(c.info.Kind, c.info.Version, data, isYAML, o.Validation)
	if err != nil {
		return nil, err
	}
	o.warn(warnings...)
	return obj, sameNamespace(obj, c.info.Namespace)
}

// wrote sends the stored form that a write has made, or returns its error.
func (c *call) wrote(code int, o writeOptions, stored []byte, err error) error {
	warn(c.w, *o.Warnings)
	if err != nil {
		return err
	}
	return c.answer(code, stored)
}

// answer reveals and sends a stored form.
func (c *call) answer(code int, stored []byte) error {
	data, err := c.reveal(c.req.Context(), c.info.Kind, stored)
	if err != nil {
		return err
	}
	c.answerStored(c.w, c.req, c.media, code, c.info.Kind, c.info.Version, data)
	return nil
}
