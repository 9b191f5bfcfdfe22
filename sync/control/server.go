package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
)

const prefix = "/limpet/v1/"

// maxObject bounds an object in a request, in bytes. Source: the limit of etcd for
// one object.
const maxObject = 1536 << 10

// Server serves limpet.sock. Its fields are set before Serve.
type Server struct {
	Hello Hello
	Store Store
	Agent Agent
	// API serves all paths outside the control API.
	API http.Handler

	broadcaster *broadcaster
}

// Serve answers on ln until ctx ends, then closes it and all connections.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	if s.broadcaster == nil {
		s.broadcaster = newBroadcaster(s.Agent)
	}
	var feeding sync.WaitGroup
	feeding.Go(func() { s.broadcaster.run(ctx) })
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		end, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	}()
	err := srv.Serve(ln)
	ended := ctx.Err() != nil
	cancel()
	<-stopped
	feeding.Wait()
	if ended {
		return nil
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+prefix+"hello", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Hello, nil) })
	mux.HandleFunc("GET "+prefix+"snapshot", s.snapshot)
	mux.HandleFunc("GET "+prefix+"watch", s.watch)
	mux.HandleFunc("GET "+prefix+"history", func(w http.ResponseWriter, r *http.Request) {
		q, err := parseQuery(r.URL.Query())
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		records, err := s.Store.History(r.Context(), q)
		answer(w, map[string]any{"items": records}, err)
	})
	mux.HandleFunc("POST "+prefix+"history/prune", func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("keep"); text != "" {
			keep, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				refuse(w, http.StatusBadRequest, err)
				return
			}
			n, err := s.Store.TrimHistory(r.Context(), int(keep))
			answer(w, map[string]int{"removed": n}, err)
			return
		}
		before, err := time.Parse(time.RFC3339Nano, r.URL.Query().Get("before"))
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		n, err := s.Store.PruneHistory(r.Context(), before)
		answer(w, map[string]int{"removed": n}, err)
	})
	mux.HandleFunc("GET "+prefix+"store/info", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.Store.Info(r.Context())
		answer(w, info, err)
	})
	mux.HandleFunc("POST "+prefix+"store/check", func(w http.ResponseWriter, r *http.Request) {
		report, err := s.Store.Check(r.Context())
		answer(w, report, err)
	})
	mux.HandleFunc("POST "+prefix+"store/compact", func(w http.ResponseWriter, r *http.Request) {
		before, after, err := s.Store.Compact(r.Context())
		answer(w, Compaction{Before: before, After: after}, err)
	})
	mux.HandleFunc("GET "+prefix+"store/backup", func(w http.ResponseWriter, r *http.Request) {
		// The status line is sent before the copy ends; a failed copy ends the
		// connection without the last chunk, which the client detects.
		if _, err := s.Store.Backup(r.Context(), w); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	mux.HandleFunc("POST "+prefix+"jobs/{namespace}/{name}/cancel", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, s.Agent.Cancel(r.Context(), r.PathValue("namespace"), r.PathValue("name")))
	})
	mux.HandleFunc("GET "+prefix+"diagnostics", func(w http.ResponseWriter, r *http.Request) {
		report, err := s.Agent.Diagnostics(r.Context())
		answer(w, report, err)
	})
	mux.HandleFunc("GET "+prefix+"compare", func(w http.ResponseWriter, r *http.Request) {
		v := r.URL.Query()
		out, err := s.Agent.Compare(r.Context(), snapshot.CompareQuery{Namespace: v.Get("namespace"), Repository: v.Get("repository"), From: v.Get("from"), To: v.Get("to"), Path: v.Get("path")})
		answer(w, out, err)
	})
	mux.HandleFunc("POST "+prefix+"drain", func(w http.ResponseWriter, r *http.Request) {
		on, err := strconv.ParseBool(r.URL.Query().Get("on"))
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		since, busy := s.Agent.Drain(on)
		answer(w, Drained{Since: since, Busy: busy}, nil)
	})
	mux.HandleFunc("POST "+prefix+"hurry", func(w http.ResponseWriter, _ *http.Request) {
		s.Agent.Hurry()
		answer(w, struct{}{}, nil)
	})
	mux.HandleFunc("GET "+prefix+"suspensions", func(w http.ResponseWriter, r *http.Request) {
		items, err := s.Agent.Suspended(r.Context())
		answer(w, suspensions{items}, err)
	})
	mux.HandleFunc("POST "+prefix+"suspensions", func(w http.ResponseWriter, r *http.Request) {
		var one repos.Suspension
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&one); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		answer(w, struct{}{}, s.Agent.Suspend(r.Context(), one))
	})
	mux.HandleFunc("DELETE "+prefix+"suspensions/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		was, err := s.Agent.Resume(r.Context(), r.PathValue("namespace"), r.PathValue("name"))
		answer(w, resumed{was}, err)
	})
	mux.HandleFunc("POST "+prefix+"test", func(w http.ResponseWriter, r *http.Request) {
		u := new(unstructured.Unstructured)
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxObject)).Decode(u); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		results, err := s.Agent.Test(r.Context(), u)
		answer(w, results, err)
	})
	mux.HandleFunc(prefix, http.NotFound)
	mux.Handle("/", s.API)
	return mux
}

// snapshot returns the newest snapshot, or with ?after=SEQ waits for a newer one: for
// commands, and for dashboards that do not know the stream.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) {
	var seq uint64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if seq, err = strconv.ParseUint(text, 10, 64); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
	}
	snap, err := s.Agent.Next(r.Context(), seq)
	answer(w, snap, err)
}

// suspensions and resumed are answers to requests about suspensions.
type suspensions struct {
	Items []repos.Suspension `json:"items"`
}

type resumed struct {
	Was bool `json:"was"`
}

// errorBody carries an error over the socket. Class lets the client restore the
// sentinel that commands check for.
type errorBody struct {
	Error string `json:"error"`
	Class string `json:"class,omitempty"`
}

// classes are the sentinels that the socket preserves.
var classes = map[string]error{
	"full": state.ErrFull, "disk-full": syscall.ENOSPC, "read-only": state.ErrReadOnly, "not-found": state.ErrNotFound,
	"corrupt": state.ErrCorrupt, "closed": state.ErrClosed, "stops": ErrNoDaemon,
}

// errStopping is the answer to requests while the daemon stops.
var errStopping = &remoteError{text: "the daemon stops", class: ErrNoDaemon}

func answer(w http.ResponseWriter, v any, err error) {
	if errors.Is(err, context.Canceled) {
		err = errStopping // or the client has disconnected
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, code int, err error) {
	body := errorBody{Error: err.Error()}
	for name, sentinel := range classes {
		if errors.Is(err, sentinel) {
			body.Class = name
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body)
}

func encodeQuery(q state.Query) url.Values {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("uid", q.UID)
	set("repository", q.Repository)
	set("namespace", q.Namespace)
	set("outside", q.Outside)
	set("action", q.Action)
	set("states", strings.Join(q.States, ","))
	set("before", q.Before)
	set("ref", q.Ref)
	for _, word := range q.Words {
		v.Add("word", word)
	}
	if q.Brief {
		v.Set("brief", "true")
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

func parseQuery(v url.Values) (state.Query, error) {
	q := state.Query{UID: v.Get("uid"), Repository: v.Get("repository"), Namespace: v.Get("namespace"), Outside: v.Get("outside"),
		Action: v.Get("action"), Before: v.Get("before"), Ref: v.Get("ref"), Words: v["word"], Brief: v.Get("brief") == "true"}
	if s := v.Get("states"); s != "" {
		q.States = strings.Split(s, ",")
	}
	var errs []error
	for key, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if s := v.Get(key); s != "" {
			t, err := time.Parse(time.RFC3339Nano, s)
			*at = t
			errs = append(errs, err)
		}
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		q.Limit = n
		errs = append(errs, err)
	}
	return q, errors.Join(errs...)
}
