package widget

import (
	"strconv"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
)

// Role is the meaning of a piece of text; the theme defines its style.
type Role uint8

const (
	RolePlain Role = iota
	RoleDim
	RoleTitle
	RoleFrame
	roleFocus
	RoleHead
	RoleGood
	RoleBad
	RoleWarn
	RoleWork
	RoleCursor
	RoleKey
	RoleBanner
	roleCount
)

// Theme holds the SGR parameters of each role, from the sixteen colours of the terminal; the
// background is left alone.
type Theme [roleCount]string

// Caps are the capabilities of the terminal.
type Caps struct {
	ASCII bool // no glyph beyond ASCII
	Mono  bool // no colour; bold and reverse stay
	Theme int  // index into the coloured themes
}

var Coloured = []Theme{
	// The palette of the terminal.
	{RoleDim: "2", RoleTitle: "1", RoleFrame: "2", roleFocus: "36", RoleHead: "2", RoleGood: "32", RoleBad: "1;31", RoleWarn: "33",
		RoleWork: "36", RoleCursor: "1;7", RoleKey: "1", RoleBanner: "1;33"},
	// High contrast: nothing dim, bold where it counts.
	{RoleTitle: "1", roleFocus: "1;97", RoleHead: "1;4", RoleGood: "1;92", RoleBad: "1;97;41", RoleWarn: "1;93", RoleWork: "1;96",
		RoleCursor: "1;7", RoleKey: "1", RoleBanner: "1;97;41"},
	// Blue and orange, distinguishable with any colour vision.
	{RoleDim: "2", RoleTitle: "1", RoleFrame: "2", roleFocus: "94", RoleHead: "2", RoleGood: "94", RoleBad: "1;33", RoleWarn: "33",
		RoleWork: "96", RoleCursor: "1;7", RoleKey: "1", RoleBanner: "1;33"},
	mono,
}

var mono = Theme{RoleTitle: "1", roleFocus: "1", RoleBad: "1", RoleCursor: "7", RoleKey: "1", RoleBanner: "7"}

// Themes are the names of the themes, the default first.
var Themes = []string{"terminal", "high-contrast", "blue-orange", "mono"}

// Look returns the theme of the terminal. Without colours and in ASCII it is empty, for logs and
// screen readers.
func (c Caps) Look() Theme {
	switch {
	case c.Mono && c.ASCII:
		return Theme{}
	case c.Mono:
		return mono
	}
	return Coloured[c.Theme%len(Coloured)]
}

func (t Theme) styles() (out [roleCount]uv.Style) {
	for r, sgr := range t {
		var params ansi.Params
		for _, p := range strings.FieldsFunc(sgr, func(r rune) bool { return r == ';' }) {
			n, _ := strconv.Atoi(p)
			params = append(params, ansi.Param(n))
		}
		if len(params) > 0 {
			uv.ReadStyle(params, &out[r])
		}
	}
	return out
}

type glyphs struct {
	topLeft, topRight, bottomLeft, bottomRight, Horizontal, vertical string
	Cursor, full, rest, More, Arrow, Up, Down, Dot, Ring             string
	State                                                            map[string]string
	spark                                                            map[byte]string
}

var UnicodeGlyphs = glyphs{
	topLeft: "╭", topRight: "╮", bottomLeft: "╰", bottomRight: "╯", Horizontal: "─", vertical: "│",
	Cursor: "▸", full: "█", rest: "░", More: "…", Arrow: "→", Up: "↑", Down: "↓", Dot: "●", Ring: "○",
	State: map[string]string{"working": "▶", "pending": "·", "success": "✓", "warning": "!", "error": "✗", "other": "◇",
		"unknown": "?", "cancelled": "■", "dead": "†", "suspended": "‖"},
	spark: map[byte]string{'.': "▁", 'c': "■", 's': "▂", 'w': "!", 'e': "✗"},
}

var asciiGlyphs = glyphs{
	topLeft: "+", topRight: "+", bottomLeft: "+", bottomRight: "+", Horizontal: "-", vertical: "|",
	Cursor: ">", full: "=", rest: ".", More: "~", Arrow: "->", Up: "^", Down: "v", Dot: "*", Ring: "o",
	State: map[string]string{"working": ">", "pending": ".", "success": "+", "warning": "!", "error": "x", "other": "o",
		"unknown": "?", "cancelled": "#", "dead": "X", "suspended": "="},
	spark: map[byte]string{'.': ".", 'c': "#", 's': "+", 'w': "!", 'e': "x"},
}

func (c Caps) Glyphs() glyphs {
	if c.ASCII {
		return asciiGlyphs
	}
	return UnicodeGlyphs
}

// StateRole returns the colour of a state; its glyph and its word carry the same meaning. The
// second line of a case holds words of commands: of checks, the agent, conditions and sources.
func StateRole(state string) Role {
	switch state {
	case "working":
		return RoleWork
	case "success", "healthy",
		"ok", "ready", "True":
		return RoleGood
	case "warning", "unknown", "suspended",
		"warn", "degraded", "drained", "Unknown":
		return RoleWarn
	case "error", "failing", "dead",
		"fail", "failed", "stalled", "offline", "unreachable", "expired", "False":
		return RoleBad
	}
	return RolePlain
}
