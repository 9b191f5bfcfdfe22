package signature

import (
	"bufio"
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// namespace of what git signs with SSH keys.
const namespace = "git"

func (k *Keys) verifySSH(text, armored []byte, c Claim) (Signer, error) {
	body, rest, err := unarmor(armored, sshArmor)
	if err != nil {
		return Signer{}, refuse(Malformed, "has an SSH signature that cannot be read: %w", err)
	}
	sig, err := sshsig.ParseSignature(body)
	switch {
	case len(rest) > 0:
		return Signer{}, refuse(Malformed, "has more than one SSH signature")
	case errors.Is(err, sshsig.ErrUnsupportedSignatureVersion), errors.Is(err, sshsig.ErrUnsupportedHashAlgorithm):
		return Signer{}, refuse(Unsupported, "has an SSH signature that is not supported: %w", err)
	case err != nil && strings.Contains(err.Error(), `format "ssh-rsa"`):
		return Signer{}, refuse(Weak, "has an SSH signature with SHA-1, which is too weak")
	case err != nil && strings.Contains(err.Error(), "unknown key algorithm"):
		return Signer{}, refuse(Unsupported, "is signed by an SSH key of a kind that is not supported")
	case err != nil:
		return Signer{}, refuse(Malformed, "has an SSH signature that cannot be read: %w", err)
	}
	name, kind := ssh.FingerprintSHA256(sig.PublicKey), sig.PublicKey.Type()
	switch {
	case sig.Namespace != namespace:
		return Signer{}, refuse(Bad, "has an SSH signature by %s that was made for something else than git", name)
	case len(sig.Signature.Rest) > 0 && !strings.HasPrefix(kind, "sk-"): // of a token it is part of the proof
		return Signer{}, refuse(Malformed, "has an SSH signature by %s that something follows", name)
	case strings.Contains(kind, "-cert-"):
		return Signer{}, refuse(Unsupported, "is signed with an SSH certificate, which is not supported: list the key itself")
	}
	signer, e := k.findSSH(sig.PublicKey, name, c)
	if e != nil {
		return Signer{}, e
	}
	if err := sshsig.Verify(bytes.NewReader(text), sig, sig.PublicKey, sig.HashAlgorithm, namespace); err != nil {
		return Signer{}, refuse(Bad, "has an SSH signature that its key %s has not made of it", name)
	}
	return signer, nil
}

// findSSH finds the key in the lists. Of several entries any one is enough; else the
// error is that of the entry that matched best.
func (k *Keys) findSSH(public ssh.PublicKey, name string, c Claim) (Signer, *Error) {
	if e := weakSSH(public, name); e != nil {
		return Signer{}, e
	}
	found, best := k.unknown(name), 0
	for _, entry := range k.ssh {
		if !bytes.Equal(entry.key.Marshal(), public.Marshal()) {
			continue
		}
		matched, e := entry.check(name, c)
		if e == nil {
			return Signer{Key: name, Principal: entry.principal(c.Principals)}, nil
		}
		if matched > best {
			best, found = matched, e
		}
	}
	return Signer{}, found
}

// weakSSH returns why signatures by a key are refused for its algorithm.
func weakSSH(public ssh.PublicKey, name string) *Error {
	inner, ok := public.(ssh.CryptoPublicKey)
	if !ok {
		return nil
	}
	if public.Type() == "ssh-dss" {
		return refuse(Weak, "is signed by %s, a key of DSA, which is too weak", name)
	}
	r, ok := inner.CryptoPublicKey().(*rsa.PublicKey)
	if !ok {
		return nil
	}
	switch bits := r.N.BitLen(); {
	case bits < smallestRSA:
		return refuse(Weak, "is signed by %s, a key of RSA with %d bits, which is too weak", name, bits)
	case bits > largestRSA:
		return refuse(Unsupported, "is signed by %s, a key of RSA with %d bits, which is more than %d", name, bits, largestRSA)
	}
	return nil
}

// check returns why an entry does not allow its key to sign what is claimed. matched
// is the number of conditions that were met.
func (e sshKey) check(name string, c Claim) (matched int, err *Error) {
	switch {
	case len(e.namespaces) > 0 && !matches(e.namespaces, namespace):
		return 1, refuse(Unusable, "is signed by %s, which the list of keys allows for something else than git", name)
	case !e.after.IsZero() && c.Made.Before(e.after):
		return 2, refuse(TooEarly, "is signed by %s, which is valid from %s on, and it was made before", name, e.after.Format(time.RFC3339))
	case (!e.after.IsZero() || !e.before.IsZero()) && ahead(c.Made, c.Now):
		return 2, refuse(TooEarly, "is signed by %s, which is valid for a time, and it is dated %s, in the future", name, day(c.Made))
	case !e.before.IsZero() && c.Made.IsZero():
		return 2, refuse(Expired, "is signed by %s, which was valid until %s, and it does not say when it was made",
			name, e.before.Format(time.RFC3339))
	case !e.before.IsZero() && c.Made.After(e.before):
		return 2, refuse(Expired, "is signed by %s, which was valid until %s, and it was made afterwards", name, e.before.Format(time.RFC3339))
	case len(c.Principals) == 0:
		return 4, nil
	case len(e.principals) == 0:
		return 3, refuse(Principal, "is signed by %s, a key without a principal, and has to be signed by %s: write them into allowed_signers",
			name, people(c.Principals))
	case e.principal(c.Principals) == "":
		return 3, refuse(Principal, "is signed by %s, the key of %s, which may not sign for %s",
			name, strings.Join(e.principals, ","), people(c.Principals))
	}
	return 4, nil
}

func (e sshKey) holder(now time.Time) Holder {
	h := Holder{Key: ssh.FingerprintSHA256(e.key), Principals: e.principals, Expires: e.before}
	why := weakSSH(e.key, h.Key)
	if why == nil {
		_, why = e.check(h.Key, Claim{Made: now, Now: now})
	}
	if why != nil {
		h.Err = aboutKey(why)
	}
	return h
}

// sshKey is a line of a list of SSH keys.
type sshKey struct {
	key           ssh.PublicKey
	principals    []string // patterns; empty = unknown owner
	namespaces    []string // patterns; empty = all
	after, before time.Time
}

// readSSH parses the lines that are neither empty nor comments.
func (k *Keys) readSSH(data []byte, parse func(string) (sshKey, error)) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxBytes+1)
	for n := 1; lines.Scan(); n++ {
		l := strings.TrimSpace(lines.Text())
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		key, err := parse(l)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := k.count(1); err != nil {
			return err
		}
		k.ssh = append(k.ssh, key)
	}
	return lines.Err()
}

// parseAuthorizedKey parses a public key as in authorized_keys. Options, which restrict
// logins there, are refused: their meaning would be lost.
func parseAuthorizedKey(l string) (sshKey, error) {
	key, options, err := parsePublic(l)
	if err == nil && len(options) > 0 {
		err = errors.New("options have no meaning here; put the key into allowed_signers to restrict it")
	}
	return sshKey{key: key}, err
}

// parsePublic parses "[options] keytype key [comment]".
func parsePublic(l string) (ssh.PublicKey, []string, error) {
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(l))
	switch {
	case err != nil:
		return nil, nil, errors.New("there is no public key of ssh where one is expected: [options] keytype key")
	case strings.Contains(key.Type(), "-cert-"):
		return nil, nil, errors.New("it is a certificate; list the key itself")
	}
	return key, options, nil
}

// signerLine splits "principals rest"; principals may be in quotes.
var signerLine = regexp.MustCompile(`^(?:"([^"]*)"|([^"\s]\S*))[ \t]*(.*)$`)

// parseAllowedSigner parses "principals [options] keytype key [comment]". Source: ssh-keygen(1).
func parseAllowedSigner(l string) (e sshKey, err error) {
	parts := signerLine.FindStringSubmatch(l)
	if parts == nil {
		return e, errors.New("a quote is not closed")
	}
	var options []string
	if e.key, options, err = parsePublic(parts[3]); err != nil {
		return e, err
	}
	if e.principals, err = patterns(parts[1]+parts[2], "principals"); err != nil {
		return e, err
	}
	return e, e.setOptions(options)
}

// setOptions reads the options of a line. Unknown ones are refused: they may be restrictions.
func (e *sshKey) setOptions(options []string) (err error) {
	seen := map[string]bool{}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		name, value = strings.ToLower(name), strings.Trim(value, `"`)
		if seen[name] {
			return fmt.Errorf("option %s is given twice", name)
		}
		seen[name] = true
		switch name {
		case "namespaces":
			e.namespaces, err = patterns(value, name)
		case "valid-after":
			e.after, err = parseTime(value)
		case "valid-before":
			e.before, err = parseTime(value)
		case "cert-authority":
			err = errors.New("cert-authority is not supported: list the keys themselves")
		default:
			err = fmt.Errorf("option %q is not known", name)
		}
		if err != nil {
			return err
		}
	}
	if !e.after.IsZero() && !e.before.IsZero() && !e.before.After(e.after) {
		return errors.New("valid-before is not after valid-after")
	}
	return nil
}

// parseTime parses YYYYMMDD[HHMM[SS]][Z]; without Z it is in the time zone of this host, as for
// ssh-keygen.
func parseTime(s string) (time.Time, error) {
	zone := time.Local
	digits, utc := strings.CutSuffix(s, "Z")
	if utc {
		zone = time.UTC
	}
	if slices.Contains([]int{8, 12, 14}, len(digits)) {
		if t, err := time.ParseInLocation("20060102150405"[:len(digits)], digits, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("a time is not of the form YYYYMMDD[HHMM[SS]][Z]")
}

// patterns splits a list of names with * and ? at commas; an exclamation mark excludes names.
func patterns(list, what string) ([]string, error) {
	all := strings.Split(list, ",")
	for _, p := range all {
		if p == "" || p == "!" {
			return nil, fmt.Errorf("%s: one of them is empty", what)
		}
	}
	return all, nil
}

// matches reports whether a name matches a list of patterns and none that excludes it.
func matches(all []string, name string) bool {
	found := false
	for _, p := range all {
		p, not := strings.CutPrefix(p, "!")
		if !wildcard(p, name) {
			continue
		}
		if not {
			return false
		}
		found = true
	}
	return found
}

// wildcard matches * and ?; all other characters, slashes too, stand for themselves.
func wildcard(pattern, name string) bool {
	plain := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `/`, "\x00")
	ok, err := path.Match(plain.Replace(pattern), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// principal returns the first of the wanted names that matches, "" for none; without
// wanted names all that the list names.
func (e sshKey) principal(wanted []string) string {
	if len(wanted) == 0 {
		return strings.Join(e.principals, ",")
	}
	for _, name := range wanted {
		if name != "" && matches(e.principals, name) {
			return name
		}
	}
	return ""
}
