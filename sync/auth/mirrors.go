package auth

import (
	"errors"
	"fmt"
	"strings"
)

// mostMirrors bounds the mirrors of one repository: each that is down delays the next.
const mostMirrors = 4

// Mirrors parses a list of URLs of the repository whose URL is first, separated by spaces or commas. One wrong URL
// refuses the whole list. The error names it by its number and never holds the text, which may contain a password.
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
