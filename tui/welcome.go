package tui

import (
	"slices"
	"strings"
)

// The first screen of a fresh limpet says what it is and what the two ways on
// are: to work on its own API, or to connect to a server. It goes by itself as
// soon as there is a repository.

// welcomeLine is one line of it; an empty one is a blank line. What has a rank
// goes where there is no room, the highest first.
type welcomeLine struct {
	text    string
	command bool
	title   bool
	rank    int
}

func (p *view) welcomeLines() []welcomeLine {
	start := "limpet"
	if p.s.Source != Standalone {
		start = "limpet --daemon"
	}
	ask, then := "", "Grafana's provisioning API, or any Kubernetes API. Quit, then start:"
	if p.s.SetUp {
		ask, then = "Enter asks three questions and writes them down. Or quit, then start:", "Grafana's provisioning API, or any Kubernetes API."
	}
	lines := []welcomeLine{
		{text: "limpet keeps Grafana dashboards in step with Git. Nothing is set up yet.", rank: 2},
		{rank: 1},
		{text: "Work on this machine", title: true},
		{text: "limpet serves its own API here. In another terminal:", rank: 3},
		{text: "limpet repo create NAME --url https://HOST/REPO.git", command: true},
		{text: "limpet apply -f FILE", command: true, rank: 4},
		{text: "The repository appears here by itself and is pulled.", rank: 5},
		{rank: 1},
		{text: "Connect to a server", title: true},
		{text: then, rank: 3},
		{text: ask, rank: 3},
		{text: start + " --provisioning-server-url URL --token-file FILE", command: true},
		{text: start + " --kubeconfig FILE", command: true, rank: 4},
		{rank: 1},
		{text: "To see it at work first: limpet demo", rank: 6},
	}
	return slices.DeleteFunc(lines, func(l welcomeLine) bool { return l.text == "" && l.rank == 3 })
}

func (p *view) drawWelcome(top, bottom int) {
	h := bottom - top
	p.box(p.g, 0, top, p.w, h, "First steps", "", p.s.Snap.Agent.StorePath, true)
	lines := p.welcomeLines()
	if h-2 < 7 { // no room for more than the two commands
		lines = []welcomeLine{
			{text: "here: limpet repo create NAME --url URL", command: true},
			{text: "a server: limpet --provisioning-server-url URL", command: true},
		}
	}
	out := layWelcome(lines, p.w-6)
	for len(out) > h-2 {
		worst := 0
		for i, l := range lines {
			if l.rank > lines[worst].rank {
				worst = i
			}
		}
		if lines[worst].rank == 0 {
			break
		}
		lines = append(lines[:worst:worst], lines[worst+1:]...)
		out = layWelcome(lines, p.w-6)
	}
	for i, l := range out {
		if i < h-2 {
			p.put(3, top+1+i, p.w-6, l.role, l.text)
		}
	}
}

// layWelcome breaks the lines for a width of w cells.
func layWelcome(lines []welcomeLine, w int) []textLine {
	var out []textLine
	for _, l := range lines {
		margin, r := "", rolePlain
		switch {
		case l.command:
			margin, r = strings.Repeat(" ", min(4, w/12)), roleKey
		case l.title:
			r = roleTitle
		case l.text != "":
			margin = "  "
		}
		for i, part := range wrap(l.text, w-len(margin)) {
			if l.command && i > 0 {
				part = "  " + part
			}
			out = append(out, textLine{r, strings.TrimRight(margin+part, " ")})
		}
	}
	return out
}
