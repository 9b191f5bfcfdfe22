package widget

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// AddressMost is the longest address that is sent as a link, in bytes: what VTE and
// iTerm2 take.
const AddressMost = 2083

// WebAddress is an address that a terminal may open for a person, "" = it is none:
// of the web alone, with a host and without a name or password before it, and of
// letters that end no sequence and separate nothing in one.
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

// LinksOf says whether a terminal is sent links. Most that know none ignore them;
// those of serial lines may print them. FORCE_HYPERLINK=0 is how other programs, too,
// are told to send none.
func LinksOf(env func(string) string) bool {
	switch term, _, _ := strings.Cut(env("TERM"), "-"); {
	case term == "", term == "dumb", term == "linux", term == "ansi", term == "cons25", strings.HasPrefix(term, "vt"):
		return false
	}
	return env("FORCE_HYPERLINK") != "0"
}

// Linked says whether a look has links: where nothing but text is sent, or hardly
// more, they are left out.
func (c Caps) Linked() bool {
	return c.Links && !c.ASCII && !c.Mono && Themes[c.Theme%len(Themes)] != "mono"
}

// Link has the text of an address lead there, wherever it stands as a word of its own
// in an area: also where it is cut, and where it goes on in the lines below.
func (p *Painter) Link(x, y, w, h int, address string) {
	if !p.caps.Linked() || WebAddress(address) == "" {
		return
	}
	p.addresses = append(p.addresses, address)
	for row := y; row < y+h; row++ {
		for col := x; col < x+w; col++ {
			if col > x && p.text(col-1, row) != " " {
				continue // within a word
			}
			n, rest := p.spelled(col, row, x+w, address)
			if n < len("https://")+2 { // not a letter of the host, but where it is cut
				continue
			}
			for at := row; n > 0; {
				p.lead(col, at, n, len(p.addresses))
				if at++; at == y+h {
					break
				}
				n, rest = p.spelled(col, at, x+w, rest)
			}
		}
	}
}

// spelled is how many cells from a column on spell the beginning of a text and then
// end as a word, or where it is cut, or at the column end; rest is what goes on below.
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

// hyperlink is the sequence from which on text of a line leads to an address, or with
// 0 nowhere. Each line has links of its own: the renderer closes one before it goes to
// another line, and does not open it there again.
func (c *Canvas) hyperlink(to uint8, line int) string {
	if to == 0 {
		return ansi.ResetHyperlink()
	}
	return ansi.SetHyperlink(c.addresses[to-1], "id="+strconv.Itoa(line))
}
