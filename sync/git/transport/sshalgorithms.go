package transport

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"limpet/sync/git/giterr"

	"golang.org/x/crypto/ssh"
)

// What is spoken over ssh. The library's own defaults still take key exchanges,
// MACs and signatures with SHA-1 when a server has nothing better; here they are
// left out, so that a man in the middle cannot bring both sides down to them.

// secureAlgorithms leaves out what the library calls insecure.
func secureAlgorithms(config *ssh.ClientConfig) {
	good := ssh.SupportedAlgorithms()
	config.KeyExchanges, config.Ciphers, config.MACs = good.KeyExchanges, good.Ciphers, good.MACs
	config.HostKeyAlgorithms = hostKeyAlgorithms
}

// hostKeyAlgorithms are asked for when known_hosts names none of a host, in this
// order: the line that is printed then is for the first that it has.
var hostKeyAlgorithms = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512,
	ssh.KeyAlgoRSASHA256}

// secureHostKeys are the algorithms for the keys that known_hosts names of a host: an
// ssh-rsa line stands for a key, which signs with SHA-2.
func secureHostKeys(named []string) []string {
	weak := ssh.InsecureAlgorithms().HostKeys
	kinds := slices.DeleteFunc(slices.Clone(named), func(kind string) bool { return slices.Contains(weak, kind) })
	if len(kinds) == 0 {
		return hostKeyAlgorithms
	}
	return kinds
}

// sha2Signer makes an rsa key sign with SHA-2 only. Other keys are returned as
// they are.
func sha2Signer(key ssh.Signer) (ssh.Signer, error) {
	many, ok := key.(ssh.AlgorithmSigner)
	if !ok || key.PublicKey().Type() != ssh.KeyAlgoRSA {
		return key, nil
	}
	return ssh.NewSignerWithAlgorithms(many, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
}

// legacyOnly tells of a server that has nothing but what modern leaves out; nil for
// any other error.
func legacyOnly(err error) error {
	none, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err)
	if !ok {
		return nil
	}
	mine := ssh.SupportedAlgorithms()
	for _, kinds := range [][]string{mine.KeyExchanges, mine.Ciphers, mine.MACs, mine.HostKeys} {
		if slices.ContainsFunc(none.RequestedAlgorithms, func(kind string) bool { return slices.Contains(kinds, kind) }) {
			return nil
		}
	}
	return &giterr.Error{Kind: giterr.Protocol, Err: fmt.Errorf("for %s the server has only what is not safe any more: %s", none.What,
		strings.Join(none.RequestedAlgorithms, ", ")), Hint: "update its ssh server"}
}

// banner keeps what a server says in place of the line with which ssh begins:
// why it does not want to talk.
type banner struct {
	mu    sync.Mutex // guards what follows
	said  []byte
	began bool
}

// greetingKept is as much of it as is kept. Unit: bytes.
const greetingKept = 512

// read is given all that comes, in order.
func (g *banner) read(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began || len(g.said) >= greetingKept {
		return
	}
	g.said = append(g.said, p[:min(len(p), greetingKept-len(g.said))]...)
	g.began = bytes.HasPrefix(g.said, []byte("SSH-")) || bytes.Contains(g.said, []byte("\nSSH-"))
}

// refusal is the server's reason, nil when ssh has begun or nothing was said.
func (g *banner) refusal() *giterr.Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	said := strings.TrimSpace(string(g.said))
	switch {
	case g.began || said == "":
		return nil
	case strings.HasPrefix(said, "HTTP/"):
		return &giterr.Error{Kind: giterr.Protocol, Err: errors.New("it does not speak ssh but http"), Hint: "check scheme and port of the url"}
	case strings.Contains(said, "MaxStartups"), strings.Contains(said, "Not allowed at this time"):
		return &giterr.Error{Kind: giterr.Throttled, Err: errors.New("the server takes no more connections now: " + said),
			Hint: "it is asked again later; MaxStartups and PerSourcePenalties of its sshd_config say how many it takes"}
	}
	return &giterr.Error{Kind: giterr.Unreachable, Err: errors.New("the server does not begin to speak ssh: " + said),
		Hint: "check host and port of the url"}
}
