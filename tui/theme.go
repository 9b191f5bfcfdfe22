package tui

// role says what a piece of text is; the theme says how that looks.
type role uint8

const (
	rolePlain role = iota
	roleDim
	roleTitle
	roleFrame
	roleFocus
	roleHead
	roleGood
	roleBad
	roleWarn
	roleWork
	roleCursor
	roleKey
	roleBanner
	roleCount
)

// theme gives the SGR parameters of each role. Only the sixteen colours of the
// terminal's own palette are used, and the background is left alone.
type theme [roleCount]string

// Caps is what the terminal can show.
type Caps struct {
	ASCII bool // no glyph beyond ASCII
	Mono  bool // no colour; bold and reverse stay
	Theme int  // index into the coloured themes
	Links bool // addresses of the web may be links
}

var coloured = []theme{
	// The palette of the terminal.
	{roleDim: "2", roleTitle: "1", roleFrame: "2", roleFocus: "36", roleHead: "2", roleGood: "32", roleBad: "1;31", roleWarn: "33", roleWork: "36", roleCursor: "1;7", roleKey: "1", roleBanner: "1;33"},
	// High contrast: nothing dim, bold where it counts.
	{roleTitle: "1", roleFocus: "1;97", roleHead: "1;4", roleGood: "1;92", roleBad: "1;97;41", roleWarn: "1;93", roleWork: "1;96", roleCursor: "1;7", roleKey: "1", roleBanner: "1;97;41"},
	// Blue and orange: told apart with any colour vision.
	{roleDim: "2", roleTitle: "1", roleFrame: "2", roleFocus: "94", roleHead: "2", roleGood: "94", roleBad: "1;33", roleWarn: "33", roleWork: "96", roleCursor: "1;7", roleKey: "1", roleBanner: "1;33"},
	mono,
}

var mono = theme{roleTitle: "1", roleFocus: "1", roleBad: "1", roleCursor: "7", roleKey: "1", roleBanner: "7"}

// Themes are the names of the themes, the default first.
var Themes = []string{"terminal", "high-contrast", "blue-orange", "mono"}

func colourRefusal(s State) string {
	if s.Caps.Mono {
		return "no colours here: NO_COLOR, --color never or a terminal without"
	}
	return ""
}

func (s State) nextTheme() State {
	s.Caps.Theme = (s.Caps.Theme + 1) % len(coloured)
	return s.say("theme "+Themes[s.Caps.Theme], false)
}

func (s State) switchASCII() State {
	s.Caps.ASCII = !s.Caps.ASCII
	if s.Caps.ASCII {
		return s.say("ASCII alone", false)
	}
	return s.say("glyphs", false)
}

// look returns the theme of the terminal. Without colours and beyond ASCII
// nothing but text is sent: that is the form for logs and screen readers.
func (c Caps) look() theme {
	switch {
	case c.Mono && c.ASCII:
		return theme{}
	case c.Mono:
		return mono
	}
	return coloured[c.Theme%len(coloured)]
}

// glyphs are the shapes of a screen.
type glyphs struct {
	topLeft, topRight, bottomLeft, bottomRight, horizontal, vertical string
	cursor, full, rest, more, arrow, up, down, dot, ring             string
	state                                                            map[string]string
	spark                                                            map[byte]string
	heights                                                          []string // from little to most
}

var unicodeGlyphs = glyphs{
	topLeft: "╭", topRight: "╮", bottomLeft: "╰", bottomRight: "╯", horizontal: "─", vertical: "│",
	cursor: "▸", full: "█", rest: "░", more: "…", arrow: "→", up: "↑", down: "↓", dot: "●", ring: "○",
	state:   map[string]string{"working": "▶", "pending": "·", "success": "✓", "warning": "!", "error": "✗", "other": "◇", "unknown": "?", "cancelled": "■", "dead": "†"},
	heights: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
	spark:   map[byte]string{'.': "▁", 'c': "■", 's': "▂", 'w': "!", 'e': "✗"},
}

var asciiGlyphs = glyphs{
	topLeft: "+", topRight: "+", bottomLeft: "+", bottomRight: "+", horizontal: "-", vertical: "|",
	cursor: ">", full: "=", rest: ".", more: "~", arrow: "->", up: "^", down: "v", dot: "*", ring: "o",
	state:   map[string]string{"working": ">", "pending": ".", "success": "+", "warning": "!", "error": "x", "other": "o", "unknown": "?", "cancelled": "#", "dead": "X"},
	heights: []string{".", ":", "-", "=", "+", "*", "#", "@"},
	spark:   map[byte]string{'.': ".", 'c': "#", 's': "+", 'w': "!", 'e': "x"},
}

func (c Caps) glyphs() glyphs {
	if c.ASCII {
		return asciiGlyphs
	}
	return unicodeGlyphs
}

// stateRole is the colour of a state; its glyph and its word say the same. Those of
// the second line of a case are words of commands: of their checks, of the agent, of
// conditions and of sources.
func stateRole(state string) role {
	switch state {
	case "working":
		return roleWork
	case "success", "healthy",
		"ok", "ready", "True":
		return roleGood
	case "warning", "unknown",
		"warn", "degraded", "drained", "Unknown":
		return roleWarn
	case "error", "failing", "dead",
		"fail", "failed", "stalled", "offline", "away", "expired", "False":
		return roleBad
	}
	return rolePlain
}

// Ink returns what gives a text the colour of a state beside the dashboard, in the
// tables of commands. A state without a colour leaves it as it is; nil = there are no
// colours. The text ends with a reset, so that no line depends on another.
func Ink(o Options) func(state, text string) string {
	c := capsOf(o)
	if c.Mono || Themes[c.Theme] == "mono" {
		return nil
	}
	look := c.look()
	return func(state, text string) string {
		if sgr := look[stateRole(state)]; sgr != "" && text != "" {
			return "\x1b[" + sgr + "m" + text + "\x1b[0m"
		}
		return text
	}
}
