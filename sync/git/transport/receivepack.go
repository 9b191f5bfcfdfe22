package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"limpet/sync/git/giterr"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

// pusher is a session that speaks to git-receive-pack.
type pusher interface {
	lister
	ReceivePack(context.Context, *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
}

// dialPush opens a session that speaks to git-receive-pack.
func (c *Call) dialPush() (pusher, error) {
	if c.Addr.Scheme == "ssh" {
		return c.sshSession(c.service(), "")
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

// readOnly is the refusal of a push. said is what the server says, which may be
// nothing.
func readOnly(said string) *giterr.Error {
	return giterr.New(giterr.ReadOnly, "write permission denied"+said, "give the credentials the right to write")
}

// ListPush begins a push: it reads the refs.
func (c *Call) ListPush() (pusher, *packp.AdvRefs, error) { return list(c, c.dialPush) }

// refusals are words of servers that speak over ssh, where no number tells why:
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

// lostOr is what an error of a conversation means: the end of the connection, what the server
// says, or itself.
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
