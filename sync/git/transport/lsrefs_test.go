package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

const (
	someID  = "1111111111111111111111111111111111111111"
	otherID = "2222222222222222222222222222222222222222"
)

// lookAt looks for main at a server that is known to have a long list.
func lookAt(t *testing.T, client *Client, url string, l pack.Limits, known version) (*Listing, *Call, error) {
	t.Helper()
	c := gittest.Must[*Call](t)(client.Begin(t.Context(), "resolve", Target{URL: url, Limits: l}))
	t.Cleanup(c.End)
	if known != versionUnknown {
		caps := capability.NewList()
		caps.Set(capability.Shallow)
		c.rememberLong(longServer{caps, known})
	}
	leave := gittest.Must[func()](t)(c.Visit())
	defer leave()
	listing, err := c.Look("refs/heads/main")
	return listing, c, c.Fail(err)
}

// answers is a server whose lists of refs in version 0 and whose other answers are given.
func answers(t *testing.T, post func(io.Writer)) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			post(w)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		io.WriteString(w, packet("# service=git-upload-pack\n")+"0000"+packet(otherID+" refs/heads/main\x00shallow\n")+"0000")
	}))
	t.Cleanup(s.Close)
	return s
}

// TestOtherAnswer: what is not an answer of version 2 has the list read in version 0, and the next
// look begin with the capabilities.
func TestOtherAnswer(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "0000junk", "zzzz", "0001", packet("ERR unknown command"), packet("NAK\n"),
		packet(someID + " refs/heads/main\n"), packet(someID+" refs/heads/main peeled:none\n") + "0000", packet(someID+" \n") + "0000",
		packet("unborn HEAD\n") + "0000", "fff1"} {
		s := answers(t, func(w io.Writer) { io.WriteString(w, answer) })
		client := New(t.TempDir(), Options{})
		listing, c, err := lookAt(t, client, s.URL+"/x", pack.Limits{}, version2)
		client.CloseIdle()
		switch {
		case answer == "0000junk": // nothing under the prefix
			if err != nil || listing.Prefixes == nil || len(listing.Refs.References) != 0 {
				t.Errorf("%q: %v", answer, err)
			}
		case err != nil || listing.Refs.References["refs/heads/main"].String() != otherID:
			if answer != "fff1" || giterr.KindOf(err) != giterr.Unreachable {
				t.Errorf("%q: %v", answer, err)
			}
		case c.longServer().version != versionUnknown:
			t.Errorf("%q: version %d is remembered", answer, c.longServer().version)
		}
	}
}

// TestListsWithoutEnd: the limits of a list hold in version 2.
func TestListsWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]func(int) string{
		"refs of other names": func(i int) string { return fmt.Sprintf("%040x refs/x/%d\n", i+1, i) },
		"long lines":          func(i int) string { return fmt.Sprintf("%040x refs/x/%d%s\n", i+1, i, strings.Repeat("x", 65000)) },
		"attributes":          func(int) string { return someID + " refs/heads/main" + strings.Repeat(" a:b", 16000) + "\n" },
	} {
		s := answers(t, func(w io.Writer) {
			out := bufio.NewWriter(w)
			for i := 0; ; i++ {
				if _, err := io.WriteString(out, packet(line(i))); err != nil {
					return
				}
			}
		})
		client := New(t.TempDir(), Options{})
		_, _, err := lookAt(t, client, s.URL+"/x", pack.Limits{RefsBytes: 1 << 20}, version2)
		client.CloseIdle()
		if giterr.KindOf(err) != giterr.TooLarge || !strings.Contains(err.Error(), "list of refs") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadVersion: what is said of the version, and how much of it is read.
func TestReadVersion(t *testing.T) {
	t.Parallel()
	service := packet("# service=git-upload-pack\n") + "0000"
	for text, want := range map[string]bool{
		service + packet("version 2\n") + packet("ls-refs=unborn\n") + packet("object-format=sha1\n") + "0000": true,
		packet("version 2\n") + packet("agent=x\n") + packet("ls-refs\n") + "0000":                             true,
		service + packet("version 2\n") + packet("fetch\n") + "0000":                                           false,
		service + packet("version 2\n") + packet("ls-refs\n") + packet("object-format=sha256\n") + "0000":      false,
		service + packet("version 1\n") + packet(someID+" HEAD\x00shallow\n") + "0000":                         false,
		service + packet("version 2\n") + packet("ls-refs\n"):                                                  false,
		service + strings.Repeat("0000", AnswerHead):                                                           false,
		"": false,
	} {
		if err := readVersion(strings.NewReader(text)); (err == nil) != want {
			t.Errorf("%.100q: %v", text, err)
		}
	}
}

// FuzzVersion2: whatever a server says, a list that is read has a hash for each name, and there is
// an error or an end.
func FuzzVersion2(f *testing.F) {
	f.Add([]byte(packet(someID+" HEAD symref-target:refs/heads/main\n") + packet(someID+" refs/tags/v1 peeled:"+otherID+"\n") + "0000"))
	f.Add([]byte(packet("# service=git-upload-pack\n") + "0000" + packet("version 2\n") + packet("ls-refs=unborn\n") + "0000"))
	f.Add([]byte(packet("ERR no\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		refs := packp.NewAdvRefs()
		if err := readRefs(strings.NewReader(string(data)), refs); err == nil && !strings.Contains(string(data), "0000") {
			t.Fatal("a list without an end is taken")
		}
		for name := range refs.Peeled {
			if _, ok := refs.References[name]; !ok && name != "HEAD" {
				t.Fatalf("%q is peeled and not there", name)
			}
		}
		if err := readVersion(strings.NewReader(string(data))); err == nil && !strings.Contains(string(data), "version 2") {
			t.Fatal("a version is taken that is not named")
		}
	})
}

// TestLookEnds: a look ends with its caller, and leaves the features of the server to the next.
func TestLookEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // else the server does not see the end of the connection
		cancel(why)
		<-r.Context().Done()
	}))
	defer s.Close()
	client := New(t.TempDir(), Options{})
	defer client.CloseIdle()
	c := gittest.Must[*Call](t)(client.Begin(ctx, "resolve", Target{URL: s.URL + "/x"}))
	defer c.End()
	c.rememberLong(longServer{capability.NewList(), version2})
	if _, err := c.Look("HEAD"); !errors.Is(c.Fail(err), why) {
		t.Error(err)
	}
	if known := c.longServer(); known.caps == nil {
		t.Error("what was known is forgotten")
	}
}
