package transport

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/pack"
)

// Git over ssh in version 2, with a server that has a long list of refs. There the server names
// all its refs before it takes a request of version 0, so the pack is asked for in version 2, on
// the connection that named some refs.

// prefixedSSH is a connection that reads some of the refs, where the server speaks version 2.
type prefixedSSH struct {
	*sshSession
	prefixes []string
	version  version // in which the server has answered
}

func (c *Call) prefixedSSH(prefixes []string) (*prefixedSSH, error) {
	s, err := c.sshSession(c.service(), "", version2)
	if err != nil {
		return nil, err
	}
	return &prefixedSSH{s, prefixes, versionUnknown}, nil
}

// listed implements prefixLister.
func (s *prefixedSSH) listed() []string {
	if s.version == versionOld {
		return nil
	}
	return s.prefixes
}

// AdvertisedReferencesContext reads the refs: some, or all that a server sends unasked which does
// not speak version 2.
func (s *prefixedSSH) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	begins := packet("version 2\n")
	out := bufio.NewReader(s.stdout)
	s.stdout = out
	if first, _ := out.Peek(len(begins)); string(first) != begins {
		s.version = versionOld
		return s.sshSession.AdvertisedReferencesContext(ctx)
	}
	refs := packp.NewAdvRefs()
	for _, name := range []capability.Capability{capability.Sideband64k, capability.OFSDelta, capability.ThinPack,
		capability.NoProgress, capability.Shallow} { // which version 2 has always
		refs.Capabilities.Set(name)
	}
	err := readVersion(s)
	if err == nil {
		_, err = io.WriteString(s.stdin, lsRefs(s.prefixes))
	}
	if err == nil {
		err = readRefs(s, refs)
	}
	if err != nil {
		return nil, s.lostOr(err)
	}
	s.version = version2
	return refs, nil
}

// UploadPack sends the request, and the end of the conversation after it.
func (s *prefixedSSH) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if s.version == versionOld {
		return s.sshSession.UploadPack(ctx, req)
	}
	s.asked = true
	if _, err := io.WriteString(s.stdin, fetchRequest(req)+"0000"); err != nil {
		return nil, err
	}
	res := packp.NewUploadPackResponseWithPackfile(req, io.NopCloser(s))
	if err := readFetch(s, &res.ShallowUpdate); err != nil {
		return nil, s.lostOr(fmt.Errorf("error decoding fetch response: %w", err))
	}
	return res, nil
}

// fetchRequest is a request of version 2 for what req asks for. All haves are sent at once.
func fetchRequest(req *packp.UploadPackRequest) string {
	var lines strings.Builder
	lines.WriteString(packet("command=fetch\n") + packet("agent="+capability.DefaultAgent()+"\n") + "0001")
	for _, name := range []capability.Capability{capability.ThinPack, capability.NoProgress, capability.OFSDelta} {
		if req.Capabilities.Supports(name) {
			lines.WriteString(packet(name.String() + "\n"))
		}
	}
	name := func(word string, ids []pack.ID) {
		for _, id := range ids {
			lines.WriteString(packet(word + " " + id.String() + "\n"))
		}
	}
	name("want", req.Wants)
	name("have", req.Haves)
	name("shallow", req.Shallows)
	if depth, ok := req.Depth.(packp.DepthCommits); ok && depth > 0 {
		lines.WriteString(packet("deepen " + strconv.Itoa(int(depth)) + "\n"))
	}
	return lines.String() + packet("done\n") + "0000"
}

// readFetch reads what comes before the pack: the ends of history.
func readFetch(r io.Reader, ends *packp.ShallowUpdate) error {
	for {
		line, err := readPacket(r)
		if err != nil {
			return err
		}
		word, value, _ := strings.Cut(line, " ")
		id, isID := pack.ParseID(value)
		switch {
		case line == "packfile":
			return nil
		case word == "ERR":
			return &pktline.ErrorLine{Text: value}
		case word == "shallow" && isID:
			ends.Shallows = append(ends.Shallows, id)
		case word == "unshallow" && isID:
			ends.Unshallows = append(ends.Unshallows, id)
		case line != "shallow-info" && line != delimiter:
			return otherVersion(fmt.Sprintf("it answers a fetch with %.40q", line))
		}
	}
}

// delimiter stands between the sections of an answer.
const delimiter = "\x01"

// readPacket reads a pkt-line without its end of line: a text, or the delimiter of version 2, which
// go-git does not know.
func readPacket(r io.Reader) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case n == 1:
		return delimiter, nil
	case err != nil || n <= uint64(len(head)) || n > pktline.OversizePayloadMax:
		return "", pktline.ErrInvalidPktLen
	}
	line := make([]byte, n-uint64(len(head)))
	_, err = io.ReadFull(r, line)
	return string(bytes.TrimSuffix(line, []byte("\n"))), err
}
