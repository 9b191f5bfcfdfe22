package auth

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"limpet/sync/netx"
	"limpet/sync/text"
)

// Address is a Git URL taken apart. Two spellings of one remote have the same Key.
type Address struct {
	Scheme   string // https, http, ssh, file, DirScheme or an own one
	User     string // user name in the URL; "" when none
	Password bool   // the URL holds a password (which is not kept)
	Host     string // lower case, without port; "" for file
	Port     string // "" when it is the scheme's own
	Path     string // begins with "/" unless an scp-like path is relative to the home directory
}

// DirScheme is the scheme of a directory of plain files, which only a Repository of type local has.
const DirScheme = "dir"

// BundleScheme is the scheme of a directory of Git bundles, of which the newest counts.
const BundleScheme = "bundle"

// Local reports whether the address is a path on this host.
func (a Address) Local() bool {
	return a.Scheme == "file" || a.Scheme == BundleScheme || a.Scheme == DirScheme
}

// The schemes of another limpet, which serves what it has fetched. The one without TLS is for this
// host alone.
const (
	UpstreamScheme      = "limpet+https"
	PlainUpstreamScheme = "limpet+http"
)

// Upstream reports whether the address is that of an object of another limpet.
func (a Address) Upstream() bool {
	return a.Scheme == UpstreamScheme || a.Scheme == PlainUpstreamScheme
}

// Own reports whether the scheme is limpet's: Git does not know it, and nothing is pushed there.
func (a Address) Own() bool { return a.Scheme == BundleScheme || a.Upstream() }

var schemePorts = map[string]string{"https": "443", "http": "80", "ssh": "22", UpstreamScheme: "443", PlainUpstreamScheme: "80"}

// ParseAddress parses an https, http or ssh URL, the scp-like form user@host:path, a file URL or an
// absolute path. Its errors never hold the text, which may contain a password.
func ParseAddress(raw string) (Address, error) {
	if raw == "" {
		return Address{}, badAddress("it is empty")
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return Address{}, badAddress("it contains a space, a backslash or a control character")
	}
	if strings.HasPrefix(raw, "/") {
		return Address{Scheme: "file", Path: path.Clean(raw)}, nil
	}
	if !strings.Contains(raw, "://") {
		return parseSCP(raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Address{}, badAddress("it cannot be parsed")
	}
	a := Address{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Hostname()), Port: u.Port(), Path: u.Path}
	if u.User != nil {
		a.User = u.User.Username()
		_, a.Password = u.User.Password()
	}
	switch a.Scheme {
	case "git+ssh", "ssh+git":
		a.Scheme = "ssh"
	case "https", "http", "ssh", UpstreamScheme, PlainUpstreamScheme:
	case "file", BundleScheme, DirScheme:
		if a.Host != "" && a.Host != "localhost" || !strings.HasPrefix(a.Path, "/") {
			return Address{}, badAddress("a " + a.Scheme + " url needs an absolute path")
		}
		return Address{Scheme: a.Scheme, Path: path.Clean(a.Path)}, nil
	default:
		return Address{}, badAddress(fmt.Sprintf("scheme %q is not one of https, http, ssh", a.Scheme))
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return Address{}, badAddress("a query or a fragment has no meaning in it")
	}
	return a.checked()
}

// ParseServer parses the http or https URL of a host. The path is dropped. Its errors never hold
// the text.
func ParseServer(raw string) (Address, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return Address{}, badAddress("it is not an http or https URL of a host")
	}
	a, err := ParseAddress(u.Scheme + "://" + u.Host + "/x")
	a.Path = ""
	return a, err
}

func parseSCP(raw string) (Address, error) {
	host, p, ok := strings.Cut(raw, ":")
	if strings.HasPrefix(host, "[") || strings.Contains(host, "@[") { // user@[::1]:path
		end := strings.Index(raw, "]:")
		if end < 0 {
			return Address{}, badAddress("it has neither a scheme nor the form user@host:path")
		}
		host, p = raw[:end+1], raw[end+2:]
	} else if !ok || strings.Contains(host, "/") {
		return Address{}, badAddress("it has neither a scheme nor the form user@host:path; a local repository is file:///DIR")
	}
	if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, "@") {
		return Address{}, badAddress("user:password@host has no meaning without a scheme")
	}
	a := Address{Scheme: "ssh", Path: p}
	if at := strings.LastIndex(host, "@"); at >= 0 {
		a.User, host = host[:at], host[at+1:]
		a.User, _, a.Password = strings.Cut(a.User, ":") // user:x@[::1]:path
	}
	a.Host = strings.ToLower(strings.Trim(host, "[]"))
	return a.checked()
}

// checked refuses what Git or ssh could take for an option or another host, and normalizes the
// path.
func (a Address) checked() (Address, error) {
	switch {
	case a.Host == "":
		return Address{}, badAddress("it names no host")
	case strings.HasPrefix(a.Host, "-"), strings.HasPrefix(a.User, "-"):
		return Address{}, badAddress("host or user begins with \"-\"")
	case strings.Trim(a.Path, "/") == "":
		return Address{}, badAddress("it names no repository")
	case strings.HasPrefix(a.Path, "-"):
		return Address{}, badAddress("the path begins with \"-\"")
	case !netx.IsASCIIHost(strings.ReplaceAll(a.Host, "*", "")): // * stands in rules
		// A client maps other letters to ASCII ones before it dials, so a rule for the host would not
		// match.
		return Address{}, badAddress("the host has characters other than ASCII letters, digits, '-', '.' and '_'; write xn--... for others")
	case strings.ContainsFunc(a.Path, func(r rune) bool { return r == ';' || !unicode.IsPrint(r) }):
		return Address{}, badAddress("its path contains \";\" or an invisible character")
	}
	if slices.Contains(strings.Split(a.Path, "/"), "..") {
		return Address{}, badAddress("its path contains \"..\"")
	}
	if a.Port == schemePorts[a.Scheme] {
		a.Port = ""
	}
	rooted := strings.HasPrefix(a.Path, "/")
	a.Path = strings.TrimPrefix(path.Clean(a.Path), "/")
	if rooted || a.Scheme != "ssh" {
		a.Path = "/" + a.Path
	}
	return a, nil
}

func badAddress(why string) error { return errors.New("invalid git url: " + why) }

// HostPort is "host" or "host:port", with brackets around IPv6.
func (a Address) HostPort() string { return strings.TrimSuffix(net.JoinHostPort(a.Host, a.Port), ":") }

// DialPort is "host:port", with the scheme's port when the URL names none.
func (a Address) DialPort() string {
	return net.JoinHostPort(a.Host, cmp.Or(a.Port, schemePorts[a.Scheme]))
}

// String is the URL without any password: safe to log and to store. An scp-like relative path is
// written with "/~/".
func (a Address) String() string {
	if a.Local() {
		return a.Scheme + "://" + (&url.URL{Path: a.Path}).EscapedPath()
	}
	user := ""
	if a.User != "" && a.Scheme == "ssh" {
		user = url.User(a.User).String() + "@"
	}
	p := a.Path
	if !strings.HasPrefix(p, "/") {
		p = "/~/" + p
	}
	return a.Scheme + "://" + user + a.HostPort() + (&url.URL{Path: p}).EscapedPath()
}

// Key is the same for every spelling of one remote.
func (a Address) Key() string {
	b := a
	if b.Scheme == "ssh" {
		b.User = cmp.Or(b.User, "git")
	}
	return b.String()
}

// maxRefName is less than what any file system that git runs on allows for a path below refs/heads.
// Unit: bytes.
const maxRefName = 250

// CheckRefName applies the rules of git check-ref-format(1) to the name of a branch, and
// refuses what could be taken for an option. The error does not repeat the name.
func CheckRefName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > maxRefName:
		return fmt.Errorf("it is longer than %d bytes", maxRefName)
	case name == "@" || strings.Contains(name, "@{"):
		return errors.New(`it is "@" or contains "@{"`)
	case name[0] == '-':
		return errors.New(`it begins with "-"`)
	case strings.HasPrefix(name, "/"), strings.HasSuffix(name, "/"), strings.Contains(name, "//"):
		return errors.New("it begins or ends with a slash, or has two in a row")
	case strings.Contains(name, ".."), strings.HasSuffix(name, "."):
		return errors.New("it contains two dots in a row or ends with one")
	case strings.ContainsAny(name, ` ~^:?*[\`):
		return errors.New(`it contains a space or one of ~ ^ : ? * [ \`)
	case strings.ContainsFunc(name, text.Hidden):
		return errors.New("it contains a control or an invisible character")
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return errors.New("a part of it begins with a dot or ends with .lock")
		}
	}
	return nil
}

// mostMirrors bounds the mirrors of one repository: each that is down delays the next.
const mostMirrors = 4

// Mirrors parses a list of URLs of the repository whose URL is first, separated by spaces or
// commas. One wrong URL refuses the whole list. The error names it by its number and never holds
// the text, which may contain a password.
func Mirrors(list, first string) ([]string, error) {
	urls := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
	if len(urls) > mostMirrors {
		return nil, fmt.Errorf("%d mirrors, and %d are the most", len(urls), mostMirrors)
	}
	seen := map[string]int{}
	if a, err := ParseAddress(first); err == nil {
		seen[a.Key()] = -1
	}
	for i, text := range urls {
		a, err := ParseAddress(text)
		switch {
		case err != nil:
		case a.Password, a.User != "" && a.Scheme != "ssh": // a user name in an http URL is as often as not a token
			err = errors.New("the url must not contain a user name or a password; put them into a rule of git-credentials")
		case a.Local():
			err = errors.New("a local path is no mirror; write an https, http or ssh url")
		case seen[a.Key()] < 0:
			err = errors.New("it is the url of the repository itself")
		case seen[a.Key()] > 0:
			err = fmt.Errorf("it is the same as mirror %d", seen[a.Key()])
		}
		if err != nil {
			return nil, fmt.Errorf("mirror %d: %w", i+1, err)
		}
		seen[a.Key()] = i + 1
	}
	return urls, nil
}

// SameHost reports whether two URLs have the same scheme, host and port, so that the
// credentials of one may be sent to the other.
func SameHost(one, other string) bool {
	a, err := ParseAddress(one)
	b, berr := ParseAddress(other)
	return err == nil && berr == nil && a.Scheme == b.Scheme && a.Host == b.Host && a.Port == b.Port
}
