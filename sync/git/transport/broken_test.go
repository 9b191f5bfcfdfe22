package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"limpet/sync/git"

	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// A server that goes silent: in the refs, before the pack, within the pack.
func TestHTTPSilence(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("one", map[string]string{"a.json": gittest.Dashboard("a", 1, 2000)})
	release := make(chan struct{})
	silent := func(post bool, after int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if (r.Method == http.MethodPost) != post {
				return
			}
			rec := httptest.NewRecorder()
			s.During(nil)
			s.Config.Handler.ServeHTTP(rec, r)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			w.Write(rec.Body.Bytes()[:min(after, rec.Body.Len())])
			http.NewResponseController(w).Flush()
			<-release
		}
	}
	type how struct {
		post  bool
		after int
	}
	for name, h := range map[string]how{"refs": {false, 40}, "before the pack": {true, 0}, "in the pack": {true, 900}} {
		for _, by := range []string{"deadline", "watchdog", "cancel"} {
			t.Run(name+" "+by, func(t *testing.T) {
				o := git.Options{}
				if by == "watchdog" {
					o.Stall = 150 * time.Millisecond
				}
				m := mirrortest.Open(t, o)
				r := mirrortest.At(s, "site.git")
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				lost := errors.New("lease lost")
				s.During(silent(h.post, h.after))
				timer := time.AfterFunc(150*time.Millisecond, func() {
					if by == "cancel" {
						cancel(lost)
					}
				})
				defer timer.Stop()
				if by == "deadline" {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, 150*time.Millisecond)
					defer stop()
				}
				began := time.Now()
				ref, err := m.Resolve(ctx, r, gitref.Branch(""))
				if err == nil {
					_, err = m.Fetch(ctx, r, ref)
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				kind := git.Timeout
				if by == "cancel" {
					kind = git.Cancelled
				}
				gittest.ErrorIs(t, err, kind)
				if by == "cancel" && !errors.Is(err, lost) {
					t.Errorf("%v does not wrap the cause", err)
				}
				if by == "deadline" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v does not wrap DeadlineExceeded", err)
				}
				if left := gittest.Glob(t, mirrortest.Dir(m), "tmp_*"); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
	s.During(nil)
	close(release)
}

// TestHTTPGoesAwayBeforeThePack: what ends between the list of refs and the pack is a
// network that does not carry, as in every other place.
func TestHTTPGoesAwayBeforeThePack(t *testing.T) {
	t.Parallel()
	for _, goes := range []func(*gittest.Server){
		func(s *gittest.Server) {
			s.During(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					panic(http.ErrAbortHandler)
				}
			})
		},
		func(s *gittest.Server) { s.Close() },
	} {
		s := gittest.NewServer(t)
		s.Config.SetKeepAlivesEnabled(false) // a kept connection would end before the missing listener shows
		gittest.NewOrigin(t, s.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
		m := mirrortest.Open(t, git.Options{})
		ref := gittest.Must[git.Ref](t)(m.Resolve(t.Context(), mirrortest.At(s, "site.git"), gitref.Branch("")))
		goes(s)
		_, err := m.Fetch(t.Context(), mirrortest.At(s, "site.git"), ref)
		gittest.ErrorIs(t, err, git.Unreachable)
	}
}

func TestHTTPDamagedPacks(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("d%d/x%d.json", i%3, i)] = gittest.Dashboard(fmt.Sprint(i%4), i, 10)
	}
	o.Commit("one", files)
	gittest.Git(t, o.Bare, nil, "repack", "-adq")
	m := mirrortest.Open(t, git.Options{})
	r := mirrortest.At(s, "site.git")
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	kinds := map[git.Kind]int{}
	var change func([]byte) []byte
	s.During(s.Recorded(&change))
	try := func(name string, f func([]byte) []byte) {
		t.Helper()
		change = f
		_, err := m.Fetch(t.Context(), r, ref)
		if err == nil {
			t.Fatalf("%s: accepted", name)
		}
		kinds[git.KindOf(err)]++
		if git.KindOf(err) == git.Unknown {
			t.Logf("%s: %v", name, err)
		}
		if k := git.KindOf(err); k != git.Corrupt && k != git.Protocol && k != git.Unreachable && k != git.TooLarge && k != git.Unknown &&
			k != git.Auth && k != git.NotFound && k != git.Moved {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(mirrortest.MirrorDir(t, m, r)); err == nil {
			t.Fatalf("%s: a mirror was made", name)
		}
	}
	try("empty", func(b []byte) []byte { size = len(b); return nil })
	for at := 0; at < size; at += 1 + size/25 {
		try(fmt.Sprint("cut at ", at), func(b []byte) []byte { return b[:at] })
	}
	for at := 60; at < size-4; at += 1 + size/40 { // behind the shallow and NAK lines
		try(fmt.Sprint("flipped at ", at), func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b })
	}
	t.Logf("pack of %d bytes: %v", size, kinds)
	if left := gittest.Glob(t, mirrortest.Dir(m), "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	s.During(nil)
	if _, err := m.Fetch(t.Context(), r, ref); err != nil {
		t.Fatal(err)
	}
	if got := mirrortest.Content(t, m, r, ref.Hash, ""); len(got) != len(files) {
		t.Fatal("content differs")
	}
	mirrortest.Fsck(t, m, r)

	// The same for a difference: the mirror stays as it was.
	files["d1/x1.json"] = gittest.Dashboard("changed", 1, 10)
	o.Commit("two", files)
	next, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	s.During(s.Recorded(&change))
	for at := 120; at < 400; at += 41 { // behind the acknowledgements
		change = func(b []byte) []byte {
			if at < len(b)-4 {
				b[at] ^= 0x10
				return b
			}
			return b[:len(b)/2]
		}
		if _, err := m.Fetch(t.Context(), r, next); err == nil {
			t.Fatalf("flipped at %d: accepted", at)
		}
		if got := mirrortest.Content(t, m, r, ref.Hash, ""); len(got) != len(files) {
			t.Fatal("content differs")
		}
	}
	mirrortest.Fsck(t, m, r)
	s.During(nil)
	if _, err := m.Fetch(t.Context(), r, next); err != nil {
		t.Fatal(err)
	}
	mirrortest.Fsck(t, m, r)
}
