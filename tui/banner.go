package tui

import (
	"time"

	"limpet/sync/text"

	"github.com/clipperhouse/displaywidth"
)

// banner takes the place of the tabs while nothing is live. It says since when, and
// when it is tried again; where there is little room the first goes short.
func (p *view) banner() {
	p.fill(0, 1, p.w, roleBanner, " ")
	next := p.nextTry()
	forms := p.bannerForms()
	for i, txt := range forms {
		if next != "" {
			txt += ". " + next
		}
		if displaywidth.String(txt) < p.w || i == len(forms)-1 {
			p.put(0, 1, p.w, roleBanner, txt)
			return
		}
	}
}

// bannerForms say why nothing is live and how old what is shown is, the longest
// first.
func (p *view) bannerForms() []string {
	at, age := clockTime(p.s.staleSince(), p.s.Now), ago(p.s.Now, p.s.staleSince())
	asOf := at + ", " + age
	switch {
	case p.s.Gone != "":
		return []string{" ! The daemon is gone, reconnecting; shown as of " + asOf, " ! The daemon is gone; shown as of " + asOf, " ! Daemon gone, shown: " + age, " ! Daemon gone"}
	case p.s.Source == FromDisk:
		return []string{" ! No agent works on this file; shown as of " + asOf}
	case !p.s.Snap.AsOf.IsZero():
		return []string{" ! The API has not answered yet; shown as of " + asOf, " ! No answer yet; shown: " + age, " ! OFFLINE"}
	}
	return []string{" ! OFFLINE since " + asOf + ", shown as of then", " ! OFFLINE since " + asOf, " ! OFFLINE " + age, " ! OFFLINE"}
}

// nextTry says when it is asked again, and how to ask now; "" when that is not known.
func (p *view) nextTry() string {
	at := p.s.Snap.API.Next
	switch {
	case p.s.Source == FromDisk:
		return ""
	case p.s.Gone != "":
		at = p.s.Again
	case p.s.Snap.API.Up || at.IsZero():
		return ""
	}
	left := at.Sub(p.s.Now)
	if left <= 0 {
		return "Trying now"
	}
	return "Next try in " + text.Age(left+time.Second-1) + ", R now"
}

// awayText is why the API is away, and what that means for who wants to act.
func (p *view) awayText() string {
	api := p.s.Snap.API
	txt := p.g.state["error"] + " " + api.Error
	if api.Tries > 0 {
		txt += ", " + tries(api.Tries)
	}
	return txt + "; nothing is queued"
}

func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return text.Thousands(n) + " tries"
}
