package signature

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
)

// unarmor decodes the first block of armored data, of OpenPGP or of ssh, and returns
// what comes after it. what is the name in its first and last line. Lines may end
// with CRLF. The checksum of OpenPGP is not looked at: signatures are proof enough.
func unarmor(data []byte, what string) (body, rest []byte, err error) {
	data = bytes.TrimLeft(data, " \t\r\n")
	begin, end := "-----BEGIN "+what+"-----", "-----END "+what+"-----"
	first, rest := line(data)
	if first != begin {
		return nil, nil, errors.New("it does not begin with " + begin)
	}
	var text strings.Builder
	head := strings.HasPrefix(what, "PGP ") // lines such as "Version: ...", up to an empty one
	for len(rest) > 0 {
		var l string
		l, rest = line(rest)
		switch {
		case l == end:
			body, err := base64.StdEncoding.Strict().DecodeString(text.String())
			if err != nil {
				return nil, nil, errors.New("it is not base64")
			}
			return body, rest, nil
		case head && l == "":
			head = false
		case head && text.Len() == 0 && strings.Contains(l, ": "):
		case strings.HasPrefix(l, "=") && len(l) == 5 && strings.HasPrefix(what, "PGP "): // the checksum
			next, _ := line(rest)
			if next != end {
				return nil, nil, errors.New("something follows its checksum")
			}
		case l == "" || strings.HasPrefix(l, "-"):
			return nil, nil, errors.New("it does not end with " + end)
		default:
			head = false
			text.WriteString(l)
		}
	}
	return nil, nil, errors.New("it does not end with " + end)
}

// line is the first line of data without its end, and the rest.
func line(data []byte) (string, []byte) {
	l, rest, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimRight(string(l), " \t\r"), rest
}
