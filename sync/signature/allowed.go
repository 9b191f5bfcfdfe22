package signature

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshEntry is a line of a list of ssh keys.
type sshEntry struct {
	key           []byte
	principals    []string // patterns; empty = nobody is named
	namespaces    []string // patterns; empty = all
	after, before time.Time
}

// readAuthorized reads public keys as in authorized_keys. Options, which are about
// logins, are refused: who wrote them meant something else.
func readAuthorized(data []byte) ([]sshEntry, error) {
	return eachLine(data, func(l string) (sshEntry, error) {
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(l))
		if err != nil {
			return sshEntry{}, errors.New("it is no public key of ssh")
		}
		if len(options) > 0 {
			return sshEntry{}, errors.New("options have no meaning here; put the key into allowed_signers to restrict it")
		}
		return entryOf(key)
	})
}

// readAllowed reads a file of allowed signers. Source: ssh-keygen(1).
func readAllowed(data []byte) ([]sshEntry, error) {
	return eachLine(data, readSigner)
}

// eachLine reads the lines that are neither empty nor comments.
func eachLine(data []byte, read func(string) (sshEntry, error)) (entries []sshEntry, err error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxBytes+1)
	for n := 1; lines.Scan(); n++ {
		l := strings.TrimSpace(lines.Text())
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		e, err := read(l)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if entries = append(entries, e); len(entries) > maxKeys {
			return nil, errMany
		}
	}
	return entries, lines.Err()
}

func entryOf(key ssh.PublicKey) (sshEntry, error) {
	if strings.Contains(key.Type(), "-cert-") {
		return sshEntry{}, errors.New("it is a certificate; list the key itself")
	}
	return sshEntry{key: key.Marshal()}, nil
}

// readSigner reads "principals [options] keytype key [comment]".
func readSigner(l string) (sshEntry, error) {
	principals, rest, err := word(l)
	if err != nil {
		return sshEntry{}, err
	}
	first, after, err := word(rest)
	if err != nil {
		return sshEntry{}, err
	}
	options, text := "", rest
	if !isKeyType(first) {
		options, text = first, after
	}
	kind, more, _ := strings.Cut(text, " ")
	encoded, _, _ := strings.Cut(strings.TrimSpace(more), " ")
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(kind + " " + encoded))
	if err != nil || key.Type() != kind {
		return sshEntry{}, errors.New("there is no public key of ssh where one is expected: principals [options] keytype key")
	}
	e, err := entryOf(key)
	if err != nil {
		return sshEntry{}, err
	}
	if e.principals, err = patterns(principals, "principals"); err != nil {
		return sshEntry{}, err
	}
	return e, e.options(options)
}

// isKeyType tells the name of a kind of key from options.
func isKeyType(s string) bool {
	return strings.HasPrefix(s, "ssh-") || strings.HasPrefix(s, "ecdsa-") || strings.HasPrefix(s, "sk-") || strings.HasPrefix(s, "rsa-")
}

// word takes the first word off a line. Blanks within quotes belong to it; the quotes
// around all of it go.
func word(l string) (first, rest string, err error) {
	quoted := false
	end := len(l)
	for i := range len(l) {
		if l[i] == '"' {
			quoted = !quoted
		}
		if !quoted && (l[i] == ' ' || l[i] == '\t') {
			end = i
			break
		}
	}
	if quoted {
		return "", "", errors.New("a quote is not closed")
	}
	first, rest = l[:end], strings.TrimLeft(l[end:], " \t")
	if len(first) > 1 && first[0] == '"' && strings.IndexByte(first[1:], '"') == len(first)-2 {
		first = first[1 : len(first)-1]
	}
	return first, strings.ReplaceAll(rest, "\t", " "), nil
}

// options reads what a line says of its key. One that is not known is refused: it
// may be a restriction.
func (e *sshEntry) options(list string) (err error) {
	seen := map[string]bool{}
	for len(list) > 0 {
		var option string
		if option, list, err = cutOption(list); err != nil {
			return err
		}
		name, value, _ := strings.Cut(option, "=")
		name = strings.ToLower(name)
		if seen[name] {
			return fmt.Errorf("option %s is given twice", name)
		}
		seen[name] = true
		value = strings.Trim(value, `"`)
		switch name {
		case "namespaces":
			e.namespaces, err = patterns(value, name)
		case "valid-after":
			e.after, err = moment(value)
		case "valid-before":
			e.before, err = moment(value)
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

// cutOption takes the first option off a list with commas, which may be quoted.
func cutOption(list string) (option, rest string, err error) {
	quoted := false
	for i := range len(list) {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case list[i] == ',' && !quoted:
			if i == 0 || i == len(list)-1 {
				return "", "", errors.New("an option is empty")
			}
			return list[:i], list[i+1:], nil
		}
	}
	return list, "", nil
}

// moment reads YYYYMMDD[HHMM[SS]][Z]; without Z it is in the time of this host, as
// for ssh-keygen.
func moment(s string) (time.Time, error) {
	zone := time.Local
	digits, utc := strings.CutSuffix(s, "Z")
	if utc {
		zone = time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) == len(layout) {
			if t, err := time.ParseInLocation(layout, digits, zone); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, errors.New("a time is not of the form YYYYMMDD[HHMM[SS]][Z]")
}

// patterns reads a list with commas, of names with * and ?, of which those after an
// exclamation mark are left out.
func patterns(list, what string) ([]string, error) {
	all := strings.Split(list, ",")
	for _, p := range all {
		if p == "" || p == "!" {
			return nil, fmt.Errorf("%s: one of them is empty", what)
		}
	}
	return all, nil
}

// matches says that a name is in a list of patterns, and not left out by it.
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

// wildcard matches * and ?, and all else as it is. Slashes are nothing special.
func wildcard(pattern, name string) bool {
	plain := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `/`, "\x00")
	ok, err := path.Match(plain.Replace(pattern), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

func (e sshEntry) forGit() bool {
	return len(e.namespaces) == 0 || matches(e.namespaces, namespace)
}

// matching is the first of names that is one of the principals, "" for none.
func (e sshEntry) matching(names []string) string {
	i := slices.IndexFunc(names, func(name string) bool { return name != "" && matches(e.principals, name) })
	if i < 0 {
		return ""
	}
	return names[i]
}

// principal is whose key it is: who was asked for, else all that the list names.
func (e sshEntry) principal(asked []string) string {
	if len(asked) > 0 {
		return e.matching(asked)
	}
	return strings.Join(e.principals, ",")
}
