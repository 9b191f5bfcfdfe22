package transport_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"limpet/sync/git"

	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// devops is real git behind what Azure DevOps and CodeCommit make of it: few
// capabilities, no answer to who does not take multi_ack, and none to haves but
// what the test says.
type devops struct {
	caps    []string
	strange http.HandlerFunc // answers requests with haves; nil = git does
	haves   atomic.Int64     // requests with haves
	lone    atomic.Int64     // requests without
	refused atomic.Int64     // requests without multi_ack
	thin    atomic.Int64     // requests with what is not offered
}

func (d *devops) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			seen := httptest.NewRecorder()
			next.ServeHTTP(seen, r)
			w.Header().Set("Content-Type", seen.Header().Get("Content-Type"))
			w.WriteHeader(seen.Code)
			w.Write(d.offer(seen.Body.Bytes()))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		first, _, _ := strings.Cut(string(body), "\n")
		for _, word := range strings.Fields(first)[2:] {
			if !slices.Contains(d.caps, word) && !strings.HasPrefix(word, "agent=") {
				d.thin.Add(1)
			}
		}
		switch {
		case !strings.Contains(first, "multi_ack"):
			d.refused.Add(1)
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			return // an empty answer, as there
		case bytes.Contains(body, []byte("have ")):
			d.haves.Add(1)
			if d.strange != nil {
				d.strange(w, r)
				return
			}
		default:
			d.lone.Add(1)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// offer puts d.caps in the place of what git advertises.
func (d *devops) offer(in []byte) []byte {
	var out bytes.Buffer
	for len(in) >= 4 {
		n, err := strconv.ParseUint(string(in[:4]), 16, 16)
		if err != nil {
			return in
		}
		line := in[4:max(n, 4)]
		in = in[max(n, 4):]
		if n == 0 {
			out.WriteString("0000")
			continue
		}
		if ref, _, ok := bytes.Cut(line, []byte{0}); ok {
			line = append(append(slices.Clone(ref), 0), strings.Join(d.caps, " ")+"\n"...)
		}
		fmt.Fprintf(&out, "%04x%s", len(line)+4, line)
	}
	return out.Bytes()
}

// TestAzureDevOps fetches from servers that need multi_ack and offer little else,
// first and then what is new: as a difference where they give one, and as whole
// commits where they do not.
func TestAzureDevOps(t *testing.T) {
	t.Parallel()
	strange := func(status int, media, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	const result = "application/x-git-upload-pack-result"
	sound := func(names ...string) []string {
		return append(names, "side-band-64k", "shallow", "ofs-delta", "no-progress")
	}
	cases := []struct {
		name        string
		caps        []string
		strange     http.HandlerFunc
		haves, lone int64 // requests for four commits
	}{
		{"a difference", sound("multi_ack"), nil, 3, 1},
		{"a difference of two forms", sound("multi_ack", "multi_ack_detailed"), nil, 3, 1},
		{"an empty answer", sound("multi_ack"), strange(200, result, ""), 3, 4},
		{"an error line", sound("multi_ack"), strange(200, result, "000eERR sorry\n"), 3, 4},
		{"a refusal", sound("multi_ack"), strange(400, "text/plain", "TF401035"), 3, 4},
		{"not Git", sound("multi_ack"), strange(200, "application/json", "{}"), 3, 4},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := gittest.NewServer(t)
			o := gittest.NewOrigin(t, s.Root, "site.git")
			d := &devops{caps: c.caps, strange: c.strange}
			front := httptest.NewServer(d.handler(s.Handler(t)))
			defer front.Close()
			m := mirrortest.Open(t, git.Options{})
			defer m.Close()
			r := git.Remote{URL: front.URL + "/site.git"}
			o.Commit("before", map[string]string{"c.json": "old"})
			o.Commit("kept", map[string]string{"c.json": "kept"}) // its parent is never here
			o.Git("push", "-q", "origin", "HEAD:refs/heads/kept")
			mirrortest.Sync(t, m, r, "kept")
			var commits []string
			for i := range 3 {
				commits = append(commits, o.Commit("next", map[string]string{"a.json": fmt.Sprint(i), "b.json": "same"}))
				mirrortest.Sync(t, m, r, "main")
			}
			for i := range commits[1:] { // none was lost on the way
				changes, err := m.Changes(t.Context(), r, commits[i], commits[i+1], "")
				if err != nil || len(changes.Files) != 1 {
					t.Errorf("changes %v, %v", changes, err)
				}
			}
			mirrortest.Fsck(t, m, r)
			if d.haves.Load() != c.haves || d.lone.Load() != c.lone || d.refused.Load() != 0 || d.thin.Load() != 0 {
				t.Errorf("%d requests with haves, %d without, %d without multi_ack, %d of what is not offered; want %d and %d",
					d.haves.Load(), d.lone.Load(), d.refused.Load(), d.thin.Load(), c.haves, c.lone)
			}
		})
	}
}
