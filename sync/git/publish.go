package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/text"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
)

// Push has a branch of the remote, by its full name, go from the commit old to w; with
// old "" it is made anew. That is one request after the list of refs, and the host
// compares old with what it has: nobody's commit is lost, and nothing is ever forced.
// Only the server of r.URL is asked, never an alternate. A local directory is written
// to in its place. The mirror stays as it is until the next Fetch.
//
// It blocks as Fetch does. Of its errors these say that nothing was changed: Overtaken
// (fetch, compose and push again), Declined and ReadOnly (a person has to act), Refused
// and TooLarge. After any other one it may have arrived all the same: see Contains.
func (m *Mirrors) Push(ctx context.Context, r Remote, branch, old string, w *Written) error {
	c, err := m.begin(ctx, "push", r)
	if err != nil {
		return err
	}
	defer c.end()
	c.pushes = true
	p := push{name: branch, made: w.made}
	var known bool
	if p.id, known = pack.ParseID(w.Hash); !known || !strings.HasPrefix(branch, branchPrefix) || checkRefName(branch) != nil {
		return c.fail(&Error{Kind: Refused, Err: fmt.Errorf("%q is not the full name of a branch", text.Line(branch, 100))})
	}
	if p.old, known = pack.ParseID(old); !known && old != "" {
		return c.fail(&Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a commit", text.Line(old, 60))})
	}
	if c.addr.Scheme == "file" {
		return c.fail(c.pushHere(p))
	}
	return c.fail(c.sendPush(p))
}

const branchPrefix = "refs/heads/"

// push is one command to git-receive-pack.
type push struct {
	name    string
	old, id pack.ID
	made    []pack.Object
}

// pusher is a session that speaks to git-receive-pack.
type pusher interface {
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	ReceivePack(context.Context, *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
	io.Closer
}

// sendPush speaks with the server.
func (c *call) sendPush(p push) error {
	pack, err := pack.Encode(p.made)
	if err != nil {
		return err
	}
	if size := int64(len(pack)); size > c.limits.PackBytes {
		return &TooLargeError{What: packBudget, Size: size, Limit: c.limits.PackBytes}
	}
	leave, err := c.visit()
	if err != nil {
		return err
	}
	defer leave()
	s, refs, err := c.listPush()
	if err != nil {
		return err
	}
	defer s.Close()
	switch now := refs.References[p.name]; {
	case now == p.id:
		return nil // an earlier one has arrived
	case now != p.old:
		return overtaken("it is at another commit")
	case !refs.Capabilities.Supports(capability.ReportStatus):
		return &Error{Kind: Protocol, Err: errors.New("the server does not tell what becomes of a push")}
	}
	req := packp.NewReferenceUpdateRequest()
	for _, n := range []capability.Capability{capability.ReportStatus, capability.Sideband64k, capability.Quiet} {
		if refs.Capabilities.Supports(n) {
			req.Capabilities.Set(n)
		}
	}
	if refs.Capabilities.Supports(capability.Agent) {
		req.Capabilities.Set(capability.Agent, capability.DefaultAgent())
	}
	req.Commands = []*packp.Command{{Name: plumbing.ReferenceName(p.name), Old: p.old, New: p.id}}
	req.Packfile, req.Progress = io.NopCloser(bytes.NewReader(pack)), &c.remarks
	c.allow("answer to the push", answerHead)
	c.m.mirror(c.home).kept(c.whom()) // a list of refs that is old now
	report, err := s.ReceivePack(c.withCall(), req)
	if report == nil && err == nil {
		err = fmt.Errorf("nothing was said of the push: %w", io.ErrUnexpectedEOF)
	}
	if report == nil {
		return err
	}
	return c.verdict(report, p.name)
}

// listPush begins a push: it reads the refs, within the time that a list of them may
// take.
func (c *call) listPush() (pusher, *packp.AdvRefs, error) {
	defer c.within(c.m.options.Refs, errLongList)()
	c.allow("list of refs", c.limits.RefsBytes)
	s, err := c.dialPush()
	if err != nil {
		return nil, nil, err
	}
	refs, err := s.AdvertisedReferencesContext(c.withCall())
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, refs, nil
}

// verdict is what the server has made of the push.
func (c *call) verdict(report *packp.ReportStatus, name string) error {
	if why := report.UnpackStatus; why != "ok" {
		return &Error{Kind: Declined, Err: fmt.Errorf("the host does not take the commit: %s", why), Hint: "its own log may say more"}
	}
	for _, s := range report.CommandStatuses {
		if s.ReferenceName.String() != name {
			continue
		}
		if s.Status == "ok" {
			return nil
		}
		said := strings.ToLower(s.Status + " " + c.remarks.text())
		for _, word := range races {
			if strings.Contains(said, word) {
				return overtaken(s.Status)
			}
		}
		return declined(s.Status)
	}
	return &Error{Kind: Protocol, Err: errors.New("the server does not tell what became of the push")}
}

// races are words of servers for a branch that is not what it was, or that somebody
// else is about to change: git of all ages, JGit, and what hosts make of them.
var races = []string{"non-fast-forward", "non-fast forward", "fetch first", "cannot lock", "failed to lock", "unable to lock", "lock failure",
	"failed to update ref", "incorrect old value", "reference already exists", "reference does not exist", "stale info"}

func overtaken(why string) *Error {
	return &Error{Kind: Overtaken, Err: fmt.Errorf("the branch has moved on meanwhile: %s", why), Hint: "fetch it, and make the commit again"}
}

func declined(why string) *Error {
	return &Error{Kind: Declined, Err: fmt.Errorf("the host refuses the push: %s", why), Hint: "a rule of the host is against it, such as a protected branch; ask for it to be changed, or write to another branch"}
}

// ReceivePack sends a request and its pack over ssh, and reads the report.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	s.asked = true
	err := req.Encode(sending{s.stdin, s.call})
	if err == nil {
		var r io.Reader = s
		if req.Capabilities.Supports(capability.Sideband64k) {
			d := sideband.NewDemuxer(sideband.Sideband64k, r)
			d.Progress = req.Progress
			r = d
		}
		report := packp.NewReportStatus()
		if err = report.Decode(r); err == nil {
			return report, nil
		}
	}
	if s.lost.Load() {
		return nil, fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	if _, spoke := errors.AsType[*pktline.ErrorLine](err); spoke {
		return nil, err
	}
	if said := s.farewell(); said != "" {
		return nil, errors.New(serverSays + said)
	}
	return nil, err
}

// sending is a writer, or a reader that is written from, whose bytes are signs of life:
// while a pack goes out the server has nothing to say.
type sending struct {
	io.Writer
	c *call
}

func (s sending) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil { // in steps, since each one may take long
		var k int
		k, err = s.Writer.Write(p[:min(len(p), sendStep)])
		n += k
		p = p[k:]
		s.c.calm(k)
	}
	return n, err
}

// sendStep is less than a bad link takes the time of Options.Stall for. Unit: bytes.
const sendStep = 8 << 10

// sentBody is the body of a request whose bytes are signs of life.
type sentBody struct {
	io.ReadCloser
	c *call
}

func (b sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.c.calm(n)
	return n, err
}
