package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
)

// session is a conversation with a server: first its refs, then at most one
// pack. go-git's own sessions are of this form.
type session interface {
	lister
	UploadPack(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
}

// Listing is an answer to ls-remote. Over http the session has no connection
// and serves the fetch that follows, which saves a round trip.
type Listing struct {
	Session  session
	Refs     *packp.AdvRefs
	At       time.Time
	Prefixes []string // of the names that are listed, tags peeled; nil = all names
}

// ListingLife is how long refs are good enough to fetch by. The commit that
// is asked for was among them, so nothing newer is needed.
const ListingLife = time.Minute

func init() {
	// go-git takes some out of what servers advertise, for its own fetch. Here requests are composed
	// by hand, thin packs are completed, and all haves are sent at once, so that each ACK of multi_ack
	// is one line to pass over.
	transport.UnsupportedCapabilities = nil
}

// listTime is the default of Options.Refs: the greatest list that is taken, at 100 kB a second.
const listTime = 5 * time.Minute

var errLongList = errors.New("the list of refs takes more than")

// List asks for the refs, on a new session.
func (c *Call) List() (*Listing, error) {
	s, refs, err := list(c, c.dial)
	if err != nil {
		return nil, err
	}
	if !c.Addr.Local() && !c.Addr.Upstream() && len(refs.References) > longList {
		c.rememberLong(longServer{refs.Capabilities, c.longServer().version})
	}
	return &Listing{Session: s, Refs: refs, At: time.Now()}, nil
}

// lister is what a conversation with a server begins with.
type lister interface {
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	io.Closer
}

// list opens a session and reads the refs, within the time that a list of them may take.
func list[S lister](c *Call, dial func() (S, error)) (s S, refs *packp.AdvRefs, err error) {
	defer time.AfterFunc(c.client.Options.Refs, func() { c.cancel(errLongList) }).Stop()
	c.SetBudget("list of refs", c.Limits.RefsBytes)
	if s, err = dial(); err != nil {
		return s, nil, err
	}
	if refs, err = s.AdvertisedReferencesContext(c.WithCall()); err != nil {
		s.Close()
	}
	return s, refs, err
}

func (c *Call) dial() (session, error) {
	switch c.Addr.Scheme {
	case "ssh":
		return c.sshSession(c.service(), "", versionOld)
	case "file":
		return c.localSession()
	case auth.DirScheme:
		return c.dirSession()
	case auth.BundleScheme:
		return c.bundleSession()
	case auth.UpstreamScheme, auth.PlainUpstreamScheme:
		return c.upstreamSession()
	}
	t, ep, method, err := c.httpTransport()
	if err != nil {
		return nil, err
	}
	return t.NewUploadPackSession(ep, method) // it holds no connection
}

// Want is what a fetch asks for.
type Want struct {
	ID       pack.ID
	Haves    []pack.ID
	Shallows []pack.ID // ends of our history, which are sent to the server
	Ends     []pack.ID // those that are not sent
	Depth    int       // 0 = all that is new
}

// PackBudget names the budget of a pack, in errors.
const PackBudget = "pack"

// AnswerHead bounds what comes before the pack: ends of history and
// acknowledgements, which are held in memory. Unit: bytes.
const AnswerHead = 1 << 20

// Ask sends the request. The answer's pack, of at most max bytes on the wire, is read from the
// second result.
func (c *Call) Ask(l *Listing, w Want, max int64) (*packp.UploadPackResponse, io.Reader, error) {
	req := packp.NewUploadPackRequest()
	use := func(names ...capability.Capability) {
		if i := slices.IndexFunc(names, l.Refs.Capabilities.Supports); i >= 0 {
			req.Capabilities.Set(names[i])
		}
	}
	use(capability.MultiACKDetailed, capability.MultiACK) // Azure DevOps does not answer clients without
	use(capability.Sideband64k, capability.Sideband)
	use(capability.OFSDelta)
	if c.Target.Meter == nil || len(w.Haves) > 0 { // progress costs up to 10 kB, which a difference may not have
		use(capability.NoProgress)
	}
	if len(w.Haves) > 0 {
		use(capability.ThinPack)
	}
	if l.Refs.Capabilities.Supports(capability.Agent) {
		req.Capabilities.Set(capability.Agent, capability.DefaultAgent())
	}
	if use(capability.Shallow); req.Capabilities.Supports(capability.Shallow) {
		req.Depth, req.Shallows = packp.DepthCommits(w.Depth), w.Shallows
	}
	req.Wants, req.Haves = []pack.ID{w.ID}, w.Haves
	c.SetBudget("head of the answer", AnswerHead)
	res, err := l.Session.UploadPack(c.WithCall(), req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for %s: %w", w.ID, err)
	}
	c.SetBudget(PackBudget, max)
	// What an ssh connection has received before was not taken off this budget.
	var pack io.Reader = bounded{res, newBudget(PackBudget, max)}
	if !c.Addr.Local() {
		for band, kind := range map[capability.Capability]sideband.Type{capability.Sideband64k: sideband.Sideband64k,
			capability.Sideband: sideband.Sideband} {
			if req.Capabilities.Supports(band) {
				d := sideband.NewDemuxer(kind, pack)
				d.Progress, pack = &c.Remarks, d
			}
		}
	}
	return res, pack, nil
}

// pusher is a session that speaks to git-receive-pack.
type pusher interface {
	lister
	ReceivePack(context.Context, *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
}

// dialPush opens a session that speaks to git-receive-pack.
func (c *Call) dialPush() (pusher, error) {
	if c.Addr.Scheme == "ssh" {
		return c.sshSession(c.service(), "", versionOld)
	}
	t, ep, method, err := c.httpTransport()
	if err != nil {
		return nil, err
	}
	return t.NewReceivePackSession(ep, method)
}

// service is the program that the server runs for a call.
func (c *Call) service() string {
	if c.Pushes {
		return transport.ReceivePackServiceName
	}
	return transport.UploadPackServiceName
}

// readOnly is the refusal of a push. said is what the server says, which may be nothing.
func readOnly(said string) *giterr.Error {
	return giterr.New(giterr.ReadOnly, "write permission denied"+said, "give the credentials the right to write")
}

// ListPush begins a push: it reads the refs.
func (c *Call) ListPush() (pusher, *packp.AdvRefs, error) { return list(c, c.dialPush) }

// refusals are words of servers that speak over ssh, where there is no status code:
// GitHub, GitLab, Bitbucket, Gitea, Forgejo and gitolite.
var refusals = []string{"denied", "read only", "read-only", "not allowed", "not authorized", "unauthorized", "not permitted",
	"write access", "forbidden"}

// classifyPush knows what servers say of a push that they do not take. Only their own
// words count: a network may be denied as well.
func classifyPush(c *Call, err error) *giterr.Error {
	said, spoke := strings.CutPrefix(err.Error(), serverSays)
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		said, spoke = line.Text, true
	}
	if !c.Pushes || !spoke {
		return nil
	}
	if containsAny(strings.ToLower(said), refusals) {
		return readOnly(": " + said)
	}
	return nil
}

// ReceivePack sends a request and its pack over ssh, and reads the report.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	s.asked = true
	report := packp.NewReportStatus()
	err := req.Encode(sending{s.stdin, s.call})
	if err == nil {
		var r io.Reader = s
		if req.Capabilities.Supports(capability.Sideband64k) {
			d := sideband.NewDemuxer(sideband.Sideband64k, r)
			d.Progress, r = req.Progress, d
		}
		err = report.Decode(r)
	}
	if err == nil {
		return report, nil
	}
	if _, spoke := errors.AsType[*pktline.ErrorLine](err); spoke && !s.lost.Load() {
		return nil, err
	}
	return nil, s.lostOr(err)
}

// lostOr is what an error of a conversation means: the end of the connection, what the server says,
// or itself.
func (s *sshSession) lostOr(err error) error {
	if s.lost.Load() {
		return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	if said := s.stderrText(); said != "" {
		return errors.New(serverSays + said)
	}
	return err
}

// sending is a writer, or a reader that is written from, whose bytes are signs of life:
// while a pack goes out the server has nothing to say.
type sending struct {
	io.Writer
	c *Call
}

func (s sending) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil { // in steps, since each one may take long
		var k int
		k, err = s.Writer.Write(p[:min(len(p), sendStep)])
		n += k
		p = p[k:]
		s.c.progress(k)
	}
	return n, err
}

// sendStep is less than a bad link takes the time of Options.Stall for. Unit: bytes.
const sendStep = 8 << 10

// sentBody is the body of a request whose bytes are signs of life.
type sentBody struct {
	io.ReadCloser
	c *Call
}

func (b sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.c.progress(n)
	return n, err
}
