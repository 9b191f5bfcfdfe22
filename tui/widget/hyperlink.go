package widget

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
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

// Link links the text of an address wherever it is a separate word in an area, even when it is
// cut or continues on the lines below.
func (c *Canvas) Link(x, y, w, h int, address string) {
	if !c.caps.Linked() || WebAddress(address) == "" {
		return
	}
	c.addresses = append(c.addresses, address)
	for row := y; row < y+h; row++ {
		for col := x; col < x+w; col++ {
			if col > x && c.text(col-1, row) != " " {
				continue // within a word
			}
			n, rest := c.spelled(col, row, x+w, address)
			if n < len("https://")+2 { // cut within the scheme or the host
				continue
			}
			for at := row; n > 0; {
				for k := range n {
					c.cells[at*c.W+col+k].link = uint8(len(c.addresses))
				}
				if at++; at == y+h {
					break
				}
				n, rest = c.spelled(col, at, x+w, rest)
			}
		}
	}
}

// spelled returns how many cells from column x on match the beginning of text and end there as a
// word, at a cut, or at the column end. rest is the part that continues below.
func (c *Canvas) spelled(x, y, end int, text string) (n int, rest string) {
	for n < len(text) && x+n < end && c.text(x+n, y) == text[n:n+1] {
		n++
	}
	switch next := c.text(x+n, y); {
	case x+n == end:
		return n, text[n:]
	case n == len(text) && next == " ":
		return n, ""
	case n > 0 && n < len(text) && next == UnicodeGlyphs.More:
		return n + 1, ""
	}
	return 0, ""
}

// hyperlink returns the sequence that begins a link to an address in a line, or ends it with 0.
// Each line has its own links: the renderer closes a link at the end of a line and does not
// reopen it.
func (c *Canvas) hyperlink(to uint8, line int) string {
	if to == 0 {
		return ansi.ResetHyperlink()
	}
	return ansi.SetHyperlink(c.addresses[to-1], "id="+strconv.Itoa(line))
}
