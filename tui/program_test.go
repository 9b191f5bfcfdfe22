package tui

import (
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"
)

// TestAnswers: the end waits for the answers of a terminal, not for those of one that has been
// silent, and asks once.
func TestAnswers(t *testing.T) {
	t.Parallel()
	answer := uv.PrimaryDeviceAttributesEvent{62}
	for name, c := range map[string]struct {
		events []tea.Msg
		after  time.Duration // the last one
		quits  time.Duration // since the start
	}{
		"answered":       {[]tea.Msg{tickMsg{}, answer, tea.QuitMsg{}}, 0, 0},
		"answers late":   {[]tea.Msg{tickMsg{}, tea.QuitMsg{}, answer}, time.Second, time.Second},
		"before a tick":  {[]tea.Msg{tea.QuitMsg{}, answer}, time.Second, time.Second},
		"never":          {[]tea.Msg{tea.QuitMsg{}, tea.QuitMsg{}}, 0, answerTimeout},
		"silent so long": {[]tea.Msg{tickMsg{}, tea.QuitMsg{}}, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, sent := time.Now(), make(chan tea.Msg, 9)
				a := &answers{send: func(msg tea.Msg) { sent <- msg }, until: start.Add(answerTimeout)}
				asked, quits := 0, time.Duration(-1)
				take := func(msg tea.Msg) {
					switch msg := a.filter(msg).(type) {
					case tea.QuitMsg:
						if quits < 0 {
							quits = time.Since(start)
						}
					case tea.RawMsg:
						asked++
						_ = msg
					}
				}
				for i, msg := range c.events {
					if i == len(c.events)-1 {
						time.Sleep(c.after)
					}
					take(msg)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for len(sent) > 0 {
					take(<-sent)
				}
				if late := quits > answerTimeout && c.quits == answerTimeout; asked != 1 || quits != c.quits && !late {
					t.Errorf("asked %d times, quits after %s, want %s", asked, quits, c.quits)
				}
			})
		})
	}
}
