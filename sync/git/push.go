package git

import (
	"context"
	"errors"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

// Pushable asks the remote whether it takes a push from these credentials: it has
// the server begin one and leaves it at that, so nothing is written. It costs one
// request with the list of refs, as Resolve does. An *Error of kind ReadOnly says
// that a push is refused. Any other error, of a network or of a server that has
// no such service, says that this cannot be told. A local directory is not asked.
// It blocks as Resolve does.
func (m *Mirrors) Pushable(ctx context.Context, r Remote) error {
	c, err := m.begin(ctx, "ask for a push", r)
	if err != nil {
		return err
	}
	defer c.end()
	c.pushes = true
	err = c.fail(c.knock())
	if KindOf(err) == Empty { // who pushes to it begins it
		return nil
	}
	return err
}

// knock has the server begin a push.
func (c *call) knock() error {
	if c.addr.Scheme == "file" {
		return nil
	}
	leave, err := c.visit()
	if err != nil {
		return err
	}
	defer leave()
	s, _, err := c.listPush()
	if err != nil {
		return err
	}
	return s.Close()
}

// dialPush opens a session that speaks to git-receive-pack.
func (c *call) dialPush() (pusher, error) {
	if c.addr.Scheme == "ssh" {
		s, err := c.sshSession()
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	t, ep, method, err := c.httpTransport()
	if err != nil {
		return nil, err
	}
	return t.NewReceivePackSession(ep, method)
}

// service is the program that the server runs for a call.
func (c *call) service() string {
	if c.pushes {
		return transport.ReceivePackServiceName
	}
	return transport.UploadPackServiceName
}

// readOnly is the refusal of a push. said is what the server says, which may be
// nothing.
func readOnly(said string) *Error {
	return &Error{Kind: ReadOnly, Err: errors.New("write permission denied" + said), Hint: "give the credentials the right to write"}
}

// refusals are words of servers that speak over ssh, where no number tells why:
// GitHub, GitLab, Bitbucket, Gitea, Forgejo and gitolite.
var refusals = []string{"denied", "read only", "read-only", "not allowed", "not authorized", "unauthorized", "not permitted", "write access", "forbidden"}

// ofPush knows what servers say of a push that they do not take. Only their own
// words count: a network may be denied as well.
func ofPush(c *call, err error) *Error {
	said, spoke := strings.CutPrefix(err.Error(), serverSays)
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		said, spoke = line.Text, true
	}
	if !c.pushes || !spoke {
		return nil
	}
	lower := strings.ToLower(said)
	for _, word := range refusals {
		if strings.Contains(lower, word) {
			return readOnly(": " + said)
		}
	}
	return nil
}
