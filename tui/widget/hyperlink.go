package widget

import (
	"net/url"
	"strings"
)

// AddressMost is the length of the longest address that is sent as a link, in bytes: the limit
// of VTE and iTerm2.
const AddressMost = 2083

// WebAddress returns text when a terminal may open it, else "". The address must be http or
// https, with a host, without credentials, and without characters that end or separate fields of
// an escape sequence.
func WebAddress(text string) string {
	if len(text) > AddressMost || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ';' }) {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return text
}

// LinksOf reports whether links are sent to the terminal. Most terminals without support ignore
// them; those of serial lines may print them. FORCE_HYPERLINK=0 disables links, as in other
// programs.
func LinksOf(env func(string) string) bool {
	switch term, _, _ := strings.Cut(env("TERM"), "-"); {
	case term == "", term == "dumb", term == "linux", term == "ansi", term == "cons25", strings.HasPrefix(term, "vt"):
		return false
	}
	return env("FORCE_HYPERLINK") != "0"
}

// Linked reports whether frames have links: they are left out of plain output.
func (c Caps) Linked() bool {
	return c.Links && !c.ASCII && !c.Mono && Themes[c.Theme%len(Themes)] != "mono"
}
