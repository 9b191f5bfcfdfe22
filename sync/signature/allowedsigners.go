package signature

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

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

// parseTime parses YYYYMMDD[HHMM[SS]][Z]; without Z it is in the time zone of this host, as for ssh-keygen.
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
