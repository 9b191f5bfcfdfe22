package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
)

// Version 2 of the protocol names only the refs that are asked for. It is spoken where that saves
// something: with a server over http or ssh whose list was long once. A short list costs one request
// in version 0, and two in version 2 as long as the server is not known. Over http the pack is asked
// for in version 0, which takes one request in both; the capabilities of the long list say how.

// longList is how many refs make a list long: some 4 kB.
const longList = 50

// maxLong bounds the servers with long lists that are kept.
const maxLong = 4096

// longServer is a server with a long list of refs.
type longServer struct {
	caps    *capability.List // what a fetch may use; nil = its list was never long
	version version
}

// version is that of the protocol which a server speaks.
type version int

const (
	versionUnknown version = iota
	versionOld             // it cannot leave refs out
	version2
)

// longServer returns what is remembered of the call's server.
func (c *Call) longServer() longServer {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	return c.client.long[c.Identity()]
}

func (c *Call) rememberLong(s longServer) {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	if len(c.client.long) >= maxLong {
		clear(c.client.long)
	}
	c.client.long[c.Identity()] = s
}

// Look asks for the refs whose full names begin with one of prefixes. The answer may have others
// too: all, where the server cannot leave them out or has few. No prefix stands for all.
func (c *Call) Look(prefixes ...string) (*Listing, error) {
	known := c.longServer()
	if known.caps == nil || known.version == versionOld || len(prefixes) == 0 {
		return c.List()
	}
	s, refs, err := list(c, func() (prefixLister, error) { return c.dialPrefixes(known, prefixes) })
	if err == nil {
		l := &Listing{Session: s, Refs: refs, At: time.Now(), Prefixes: s.listed()}
		spoken := version2
		if l.Prefixes == nil {
			spoken = versionOld
		}
		c.rememberLong(longServer{known.caps, spoken})
		return l, nil
	}
	next := longServer{caps: known.caps} // which begins again with the capabilities
	if giterr.KindOf(c.Fail(err)) != giterr.Protocol {
		c.rememberLong(next)
		return nil, err
	}
	if known.version == versionUnknown {
		next.version = versionOld
	}
	c.rememberLong(next)
	c.ClearProblem()
	return c.List()
}

// Covers reports whether those of the names that are not listed are not there. No name stands for
// all.
func (l *Listing) Covers(names []string) bool {
	if l.Prefixes == nil {
		return true
	}
	for _, name := range names {
		asked := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if _, listed := l.Refs.References[name]; !listed && !slices.ContainsFunc(l.Prefixes, asked) {
			return false
		}
	}
	return len(names) > 0
}

// prefixLister is a session that reads some of the refs.
type prefixLister interface {
	session
	listed() []string // prefixes of the names that it has read; nil = it has read all
}

func (c *Call) dialPrefixes(known longServer, prefixes []string) (prefixLister, error) {
	if c.Addr.Scheme == "ssh" {
		return c.prefixedSSH(prefixes)
	}
	return c.prefixSession(known, prefixes)
}

// prefixSession is a session over http that reads some of the refs.
type prefixSession struct {
	session
	client   *http.Client
	call     *Call
	known    longServer
	url      string
	prefixes []string
}

func (c *Call) prefixSession(known longServer, prefixes []string) (*prefixSession, error) {
	t, ep, method, err := c.httpTransport()
	if err != nil {
		return nil, err
	}
	inner, err := t.NewUploadPackSession(ep, method)
	if err != nil {
		return nil, err
	}
	client, err := c.client.httpClient(c.Target.Creds)
	if err != nil {
		return nil, err
	}
	return &prefixSession{inner, client, c, known, ep.String(), prefixes}, nil
}

// listed implements prefixLister.
func (s *prefixSession) listed() []string { return s.prefixes }

// AdvertisedReferencesContext reads the refs. An error of kind Protocol says that the server does
// not speak version 2.
func (s *prefixSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	if s.known.version == versionUnknown {
		path := "/info/refs?service=" + s.call.service()
		if err := s.send(ctx, http.MethodGet, path, "", readVersion); err != nil {
			return nil, err
		}
	}
	refs := packp.NewAdvRefs()
	for _, name := range s.known.caps.All() {
		if name != capability.SymRef {
			refs.Capabilities.Set(name, s.known.caps.Get(name)...)
		}
	}
	read := func(r io.Reader) error { return readRefs(r, refs) }
	return refs, s.send(ctx, http.MethodPost, "/"+s.call.service(), lsRefs(s.prefixes), read)
}

// lsRefs asks for the refs whose names begin with one of prefixes.
func lsRefs(prefixes []string) string {
	request := packet("command=ls-refs\n") + "0001" + packet("peel\n") + packet("symrefs\n")
	for _, prefix := range prefixes {
		request += packet("ref-prefix " + prefix + "\n")
	}
	return request + "0000"
}

// packet is a pkt-line.
func packet(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// send sends a request and has read read the answer, the rest of which is passed over, so that the
// connection can be used again.
func (s *prefixSession) send(
	ctx context.Context, method, path, body string, read func(io.Reader) error,
) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Git-Protocol", "version=2")
	req.Header.Set("User-Agent", capability.DefaultAgent())
	if method == http.MethodPost {
		req.Header.Set("Accept", "application/x-"+s.call.service()+"-result")
		req.Header.Set("Content-Type", "application/x-"+s.call.service()+"-request")
	}
	authorize(req, s.call.Target.Creds)
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.Request.URL.String() != req.URL.String() { // the pack would be asked for at the old place
		return otherVersion("it is at another place by now")
	}
	if err = read(res.Body); err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(res.Body, ErrorBody))
	}
	return err
}

func otherVersion(why string) error {
	return giterr.New(giterr.Protocol, "it does not speak version 2 of the protocol: "+why, "")
}

// readVersion reads what the server can do. The error is nil where it can name refs of SHA-1 by
// their prefix.
func readVersion(r io.Reader) error {
	lines := pktline.NewScanner(io.LimitReader(r, AnswerHead))
	begun, lists := false, false
	for lines.Scan() {
		name, value, _ := strings.Cut(strings.TrimSuffix(string(lines.Bytes()), "\n"), "=")
		switch {
		case !begun && (name == "" || name == "# service"):
		case !begun && name != "version 2":
			return otherVersion("it names another")
		case !begun:
			begun = true
		case name == "ls-refs":
			lists = true
		case name == "object-format" && value != "sha1":
			return otherVersion("its objects have another hash")
		case name == "" && lists:
			return nil
		case name == "":
			return otherVersion("it cannot list refs")
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return otherVersion("the answer ends too early")
}

// readRefs reads the answer to ls-refs. What HEAD points to is a ref like those that are named.
func readRefs(r io.Reader, refs *packp.AdvRefs) error {
	lines := pktline.NewScanner(r)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			return nil
		}
		words := strings.Split(strings.TrimSuffix(string(lines.Bytes()), "\n"), " ")
		id, ok := pack.ParseID(words[0])
		if !ok || len(words) < 2 || words[1] == "" {
			return otherVersion("a line names no ref")
		}
		name := words[1]
		if name == "HEAD" {
			refs.Head = &id
		} else {
			refs.References[name] = id
		}
		for _, attribute := range words[2:] {
			key, value, _ := strings.Cut(attribute, ":")
			switch {
			case key == "symref-target" && name == "HEAD" && value != "":
				refs.Capabilities.Add(capability.SymRef, "HEAD:"+value)
				refs.References[value] = id
			case key == "peeled":
				commit, ok := pack.ParseID(value)
				if !ok {
					return otherVersion("a tag points to nothing")
				}
				refs.Peeled[name] = commit
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return otherVersion("the list ends too early")
}
