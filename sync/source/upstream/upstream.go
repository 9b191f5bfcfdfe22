// Package upstream hands on what this host has synced: the commit of a Repository or a
// GitRepository as a Git bundle, in a file or over HTTP to other limpets, so that these need no way
// to the Git host. No Git host is asked for it. At most mostBundles are made at a time, and
// mostClients take one or wait.
package upstream

import (
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/bundle"
	"limpet/sync/git/gitref"
	"limpet/sync/git/transport"
	"limpet/sync/kube"
	"limpet/sync/signature"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/sync/worker/checkout"
)

// Commit is the commit that an object synced last.
type Commit struct {
	Remote   git.Remote
	Hash     string
	Selector gitref.Selector // that has found it
	Verified bool            // its signature is required, and good
	Behind   time.Time       // since when its Git host cannot be read, here or by a parent; zero = it can
}

var (
	errNothing = errors.New("it has synced no commit yet")
	// ErrUnverified is returned for a commit whose signature is required and was not found good.
	ErrUnverified = errors.New("the signature of its commit is required, and is not verified")
)

// Of returns the commit of a Repository or a GitRepository.
func Of(u *unstructured.Unstructured) (c Commit, err error) {
	required := false
	if u.GetKind() == "GitRepository" {
		required, err = c.ofSource(u)
	} else {
		required, err = c.ofRepository(u)
	}
	if c.Behind.IsZero() {
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		_, ready := api.FindCondition(list, "Ready")
		said, _ := ready["message"].(string)
		_, since, _ := strings.Cut(said, transport.BehindSince)
		c.Behind = api.TimeOfText(since)
	}
	switch {
	case err != nil:
	case c.Hash == "" || c.Remote.URL == "":
		err = errNothing
	case required && !c.Verified:
		err = ErrUnverified
	}
	return c, err
}

func (c *Commit) ofSource(u *unstructured.Unstructured) (required bool, err error) {
	g, err := source.ReadGit(u)
	if err != nil {
		return false, err
	}
	s := source.FromObject(u)
	c.Remote.URL, c.Selector, c.Hash = g.URL, g.Selector, s.Commit()
	if s.Bad() {
		c.Behind = s.Since
	}
	for _, cond := range s.Conditions {
		c.Verified = c.Verified || cond.Type == "SourceVerified" && cond.Status == "True"
	}
	return g.Verify != "", nil
}

func (c *Commit) ofRepository(u *unstructured.Unstructured) (required bool, err error) {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return false, err
	}
	if urls := checkout.URLs(repo); len(urls) > 0 {
		c.Remote.URL = urls[0]
	}
	if block := repo.Spec.Block(); block != nil {
		if c.Selector, err = gitref.Of(repo.GitRef, block.Branch); err != nil {
			return false, err
		}
	}
	st := repo.Status
	c.Hash = st.Sync.LastRef
	required = repo.GitVerify != ""
	for _, cond := range st.Conditions {
		switch {
		case cond.Type == "Ready" && st.Health.Checked > 0 && !st.Health.Healthy:
			c.Behind = api.TimeOfText(cond.LastTransitionTime)
		case cond.Type == api.ConditionVerified: // a policy of this agent may require it, too
			required = true
			c.Verified = cond.Status == "True" &&
				(api.VerificationOf(st.Conditions).Object == c.Hash || signature.Mode(repo.GitVerify).Tag())
		}
	}
	return required, nil
}

// mostBundles is how many bundles are made at a time: each one reads its objects from the mirror.
// mostClients bounds those that take one or wait for it; others are asked to come again.
const (
	mostBundles = 4
	mostClients = 64
)

// File ends the path of each bundle.
const File = "latest.bundle"

// Handler serves the bundles of the kinds repository and gitrepository. HEAD answers which commit
// it is. token returns what a client has to send as bearer token, or as password; nil lets everyone
// in.
func Handler(client *kube.Client, mirrors *git.Mirrors, token func() (string, error)) http.Handler {
	h := &handler{client, mirrors, make(chan struct{}, mostBundles), make(chan struct{}, mostClients)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{kind}/{namespace}/{name}/"+File, func(w http.ResponseWriter, r *http.Request) {
		if !authorized(r, token) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		h.serve(w, r)
	})
	return mux
}

func authorized(r *http.Request, token func() (string, error)) bool {
	if token == nil {
		return true
	}
	want, err := token()
	given, known := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if _, password, basic := r.BasicAuth(); basic {
		given, known = password, true
	}
	return err == nil && want != "" && known && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

type handler struct {
	client  *kube.Client
	mirrors *git.Mirrors
	slots   chan struct{} // one for each bundle that is made
	clients chan struct{} // one for each client that takes a bundle
}

var kinds = map[string]schema.GroupVersionResource{"repository": api.Repositories, "gitrepository": api.GitRepositories}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	kind, known := kinds[r.PathValue("kind")]
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if !known || len(content.IsPathSegmentName(namespace))+len(content.IsPathSegmentName(name)) > 0 {
		http.NotFound(w, r)
		return
	}
	u, err := h.client.Resource(kind).Namespace(namespace).Get(r.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		http.NotFound(w, r)
		return
	}
	var c Commit
	if err == nil {
		c, err = Of(u)
	}
	if err != nil {
		http.Error(w, text.Redact(err.Error()), http.StatusServiceUnavailable)
		return
	}
	ref := h.mirrors.Named(c.Remote, c.Hash, c.Selector)
	head := w.Header()
	head.Set("Content-Type", bundle.Media)
	head.Set(bundle.HeaderRef, ref.Name)
	head.Set(bundle.HeaderCommit, ref.Hash)
	head.Set(bundle.HeaderVerified, strconv.FormatBool(c.Verified))
	if ref.Tag != "" {
		head.Set(bundle.HeaderTag, ref.Tag)
	}
	if !c.Behind.IsZero() {
		head.Set(bundle.HeaderBehind, c.Behind.UTC().Format(http.TimeFormat))
		head.Set("Age", strconv.Itoa(int(time.Since(c.Behind).Seconds())))
	}
	if r.Method == http.MethodHead {
		return
	}
	select {
	case h.clients <- struct{}{}:
		defer func() { <-h.clients }()
	default:
		head.Set("Retry-After", "30")
		http.Error(w, "too many clients", http.StatusServiceUnavailable)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-r.Context().Done():
		return
	}
	depth, _ := strconv.Atoi(r.FormValue("depth")) // 0 = all
	sent := &writer{Writer: w, control: http.NewResponseController(w), slots: h.slots}
	err = h.mirrors.Bundle(r.Context(), c.Remote, git.BundleQuery{Ref: ref, Haves: r.Form["have"], Depth: max(depth, 0)}, sent)
	switch {
	case err != nil && sent.size > 0:
		panic(http.ErrAbortHandler) // a part of a bundle must not look like a whole one
	case err != nil:
		http.Error(w, text.Redact(err.Error()), http.StatusServiceUnavailable)
	}
}

// writer notes whether anything was written, and gives up a client that is slower than one of an
// artifact may be.
type writer struct {
	io.Writer
	control *http.ResponseController
	slots   chan struct{} // one is held, but not while the client takes what was made
	took    time.Duration // of the writes so far: the time to make a bundle is not the client's
	size    int64
}

func (w *writer) Write(p []byte) (int, error) {
	w.size += int64(len(p))
	began := time.Now()
	_ = w.control.SetWriteDeadline(began.Add(artifact.TimeFor(w.size) - w.took))
	<-w.slots
	n, err := w.Writer.Write(p)
	w.took += time.Since(began)
	w.slots <- struct{}{}
	return n, err
}
