package tui

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"limpet/sync/text"
	"limpet/tui/widget"

	tea "charm.land/bubbletea/v2"
)

// ErrSetUp is returned by Run when the user chooses the setup.
var ErrSetUp = errors.New("the settings are to be asked for")

// Settings are the answers of the setup. At most one of Token and TokenFile is set.
type Settings struct {
	Server    string
	Token     string
	TokenFile string
}

// SetUp holds the functions of the setup. Both run concurrently with the screen.
type SetUp struct {
	File string // the file that Save writes
	// Try tests the settings against the server and describes the result.
	Try func(ctx context.Context, s Settings) (string, error)
	// Save writes the settings.
	Save func(s Settings) error
}

// RunSetUp asks three questions, tests the answers, and writes them after confirmation. It
// reports whether the settings were written. The end of ctx cancels it.
func RunSetUp(ctx context.Context, u SetUp, o Options) (saved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &setUpModel{ctx: ctx, do: u, setUp: setUp{file: text.Clean(u.File)}, caps: capsOf(o)}
	if err := runProgram(ctx, m, o); errors.Is(err, errUnresponsive) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return m.saved, nil
}

// setUpStep is a question of the set-up.
type setUpStep uint8

const (
	askServer setUpStep = iota
	askToken
	askTest
)

// setUpAction is the action that a key press requests.
type setUpAction uint8

const (
	actionNone setUpAction = iota
	actionTest
	actionSave
	actionQuit
)

// setUp is the state of the setup screen.
type setUp struct {
	file   string
	step   setUpStep
	server string
	token  string // the path of a token file, or the token itself
	wrong  string // why the answer is rejected
	busy   bool   // a test or a write runs
	tried  bool
	found  string // the result of the test
	failed bool   // the test has failed
}

func (u setUp) settings() Settings {
	if isPath(u.token) {
		return Settings{Server: u.server, TokenFile: u.token}
	}
	return Settings{Server: u.server, Token: u.token}
}

// isPath reports whether an answer is a path. Tokens and addresses begin with letters.
func isPath(answer string) bool {
	return strings.HasPrefix(answer, "/") || strings.HasPrefix(answer, "~/")
}

// maxAnswerBytes bounds an answer; signed tokens have a few thousand bytes.
const maxAnswerBytes = 8 << 10

// answerWith appends text to an answer. It drops the line breaks and surrounding blanks of
// pasted text, but keeps blanks within a path.
func answerWith(answer, more string) string {
	if len(answer) >= maxAnswerBytes {
		return answer
	}
	more = strings.NewReplacer("\n", "", "\r", "").Replace(more)
	if answer = strings.TrimLeft(answer+text.Clean(more), " "); isPath(answer) {
		return answer
	}
	return strings.Join(strings.Fields(answer), "")
}

// press returns the state after a key press and the requested action.
func (u setUp) press(name, txt string) (setUp, setUpAction) {
	field := &u.server
	if u.step == askToken {
		field = &u.token
	}
	switch {
	case name == "ctrl+c", name == "esc" && u.step == askServer:
		return u, actionQuit
	case name == "esc":
		u.step, u.tried, u.busy = u.step-1, false, false
	case u.busy:
		return u, actionNone
	case u.step == askTest:
		if name == "y" && u.tried {
			u.busy = true
			return u, actionSave
		}
		return u, actionNone
	case name == "enter":
		return u.answered()
	case name == "backspace":
		r := []rune(*field)
		*field = string(r[:max(len(r)-1, 0)])
	case name == "ctrl+u":
		*field = ""
	default:
		*field = answerWith(*field, txt)
	}
	u.wrong = ""
	return u, actionNone
}

func (u setUp) answered() (setUp, setUpAction) {
	if u.step == askServer && u.server != "" && !strings.Contains(u.server, "://") {
		u.server = "https://" + u.server
	}
	u.token = strings.TrimRight(u.token, " ")
	at, err := url.Parse(u.server)
	switch u.wrong = ""; {
	case u.step == askToken && u.token == "":
		u.wrong = "a token is needed: the path of a file with it, or the token itself"
	case u.step == askToken:
	case u.server == "":
		u.wrong = "an address is needed, such as https://grafana.example.com"
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		u.wrong = "this is no address of a server; one is https://grafana.example.com"
	case at.User != nil:
		u.wrong = "a password does not belong into an address; the next question is for the token"
	}
	if u.wrong != "" {
		return u, actionNone
	}
	if u.step++; u.step == askTest {
		u.busy, u.tried, u.found = true, false, ""
		return u, actionTest
	}
	return u, actionNone
}

// applyTest applies the result of a test, unless the user has changed the answers since.
func (u setUp) applyTest(msg testedMsg) setUp {
	if u.step != askTest || u.settings() != msg.of.settings() {
		return u
	}
	u.busy, u.tried, u.failed, u.found = false, true, msg.err != nil, text.Clean(msg.found)
	if msg.err != nil {
		u.found = text.Clean(msg.err.Error())
	}
	return u
}

// lines returns the text of the screen. The second to the fourth line hold the answers.
func (u setUp) lines() []widget.TextLine {
	token := u.token
	if !isPath(token) {
		token = strings.Repeat("*", min(len([]rune(token)), 40))
	}
	out := []widget.TextLine{{}}
	for step, q := range [][2]string{{"Where is the server?", u.server}, {"Who are you?", token}, {"Can we talk?", ""}} {
		r := widget.RolePlain
		if step == int(u.step) {
			r, q[1] = widget.RoleKey, q[1]+widget.When(u.step != askTest, "_")
		} else if step > int(u.step) {
			r, q[1] = widget.RoleDim, ""
		}
		out = append(out, widget.Styled(r, fmt.Sprintf("%d  %-20s %s", step+1, q[0], q[1])))
	}
	say := func(r widget.Role, texts ...string) {
		for _, txt := range append([]string{""}, texts...) {
			out = append(out, widget.Styled(r, txt))
		}
	}
	switch {
	case u.wrong != "":
		say(widget.RoleBad, u.wrong)
	case u.step == askServer:
		say(widget.RoleDim, "The address of Grafana, or of a Kubernetes API with its resources.")
	case u.step == askToken:
		say(widget.RoleDim, "The path of a file with the token, which begins with /, or the token itself: that goes into a file of its own "+
			"which only you can read.")
	case u.busy:
		say(widget.RoleWork, map[bool]string{true: "Writing " + u.file, false: "Trying"}[u.tried])
	case u.failed:
		say(widget.RoleBad, u.found, "Esc leads back to the answers; y writes them all the same to "+u.file+".")
	default:
		say(widget.RoleGood, u.found, "y writes "+u.file+", and limpet begins to work with it. Nothing is claimed before.")
	}
	return out
}

// renderSetUp draws the screen; it is pure. A long answer continues on the next line.
func renderSetUp(u setUp, w, h int, caps widget.Caps) string {
	hints := []widget.Hint{{Key: "enter", Text: "next"}, {Key: "esc", Text: "back"}, {Key: "^c", Text: "leave"}}
	if u.step == askTest && u.tried {
		hints[0] = widget.Hint{Key: "y", Text: "write it"}
	} else if u.step == askTest {
		hints = hints[1:]
	}
	return renderBox(w, h, caps, "Set-up", hints, func(c *widget.Canvas, w int) (out []widget.TextLine) {
		for i, l := range u.lines() {
			if i < 4 {
				out = append(out, c.FoldLine(l.Role, l.Text, w, true)...)
			} else {
				out = widget.Wrapped(out, l.Role, l.Text, w)
			}
		}
		return out
	})
}

// setUpModel adapts setUp to Bubble Tea.
type setUpModel struct {
	ctx   context.Context // of RunSetUp
	do    SetUp
	setUp setUp
	saved bool
	caps  widget.Caps
	w, h  int
}

type (
	testedMsg struct {
		of    setUp
		found string
		err   error
	}
	savedMsg struct{ err error }
)

func (m *setUpModel) Init() tea.Cmd { return nil }

// testTimeout bounds the test against the server.
const testTimeout = 15 * time.Second

func (m *setUpModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	want := actionNone
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case testedMsg:
		m.setUp = m.setUp.applyTest(msg)
	case savedMsg:
		if m.saved = msg.err == nil; m.saved {
			return m, tea.Quit
		}
		m.setUp.busy, m.setUp.failed, m.setUp.found = false, true, text.Clean(msg.err.Error())
	case tea.PasteMsg:
		m.setUp, _ = m.setUp.press("", msg.Content)
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+z" {
			return m, tea.Suspend
		}
		m.setUp, want = m.setUp.press(msg.String(), msg.Text)
	}
	switch asked := m.setUp; want {
	case actionQuit:
		return m, tea.Quit
	case actionTest:
		return m, func() tea.Msg {
			ctx, cancel := context.WithTimeout(m.ctx, testTimeout)
			defer cancel()
			found, err := m.do.Try(ctx, asked.settings())
			return testedMsg{asked, found, err}
		}
	case actionSave:
		return m, func() tea.Msg { return savedMsg{m.do.Save(asked.settings())} }
	}
	return m, nil
}

func (m *setUpModel) View() tea.View { return viewOf(renderSetUp(m.setUp, m.w, m.h, m.caps), false) }
