package screen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// form asks for the options of a job, one in a line. Enter checks them as the server does, and
// creates the job, after a yes if it writes or deletes.
type form struct {
	action string
	on     object // repository
	values []string
	at     int
	why    string // why there can be no such job
}

// labelWidth is the width of the names of options.
const labelWidth = 24

// jobCommands are the actions with options, on a repository.
func jobCommands(o object) (out []command) {
	for _, action := range admission.JobActions {
		form, known := admission.JobForms[action]
		if !known || action == "pull" || !slices.Contains(api.ServedActions, action) {
			continue
		}
		note := "asks"
		if len(form.Options) > 0 {
			note = "asks for its options"
		}
		out = append(out, command{words: action + " " + o.Name, note: note, act: "create", action: action, object: o})
	}
	return out
}

// jobChooser lists the jobs that can be created for a repository.
func jobChooser(o object) chooser {
	all := jobCommands(o)
	return chooser{title: "New job for " + o.Name, w: 72, most: len(all), all: all}.search("")
}

func createRefusal(s *facts, action string, o object) string {
	now, _ := s.current(o)
	orphans, gone := slices.Contains(api.OrphanActions, action), now.repo.UID == "" || !now.repo.Deleting.IsZero()
	switch why := s.notSentReason(); {
	case why != "":
		return why
	case orphans && !gone:
		return action + " is for repositories that are deleted"
	case !orphans && gone:
		return "repository " + o.Name + " is deleted or being deleted"
	case now.repo.ReadOnly != "" && slices.Contains(api.WriteActions, action):
		return "repository " + o.Name + " is only read: " + now.repo.ReadOnly
	}
	return ""
}

func createLine(s *facts, action string, o object, given map[string][]string) string {
	words := "job create " + named(s, o) + " --action " + action
	for _, option := range admission.JobForms[action].Options {
		for _, value := range given[option.Name] {
			if words += " --" + option.Name; !option.Switch {
				words += " " + text.ShellWord(value)
			}
		}
	}
	return s.limpet(words)
}

func openForm(s *State, action string, o object) {
	q := form{action: action, on: o, values: make([]string, len(admission.JobForms[action].Options))}
	if len(q.values) == 0 {
		q.submit(s)
		return
	}
	s.overlay = q
}

func (q form) options() []admission.JobOption { return admission.JobForms[q.action].Options }

// given returns the options that have values.
func (q form) given() map[string][]string {
	given := map[string][]string{}
	for i, o := range q.options() {
		values := []string{q.values[i]}
		if o.Many {
			values = strings.Split(q.values[i], ",")
		}
		for _, v := range values {
			if v = strings.TrimSpace(v); v != "" {
				given[o.Name] = append(given[o.Name], v)
			}
		}
	}
	return given
}

func (q form) key(s *State, name, txt string) {
	s.overlay = nil
	last := len(q.values) - 1
	switch {
	case name == "esc":
		return
	case name == "enter":
		q.submit(s)
		return
	case name == "up", name == "shift+tab":
		q.at = max(q.at-1, 0)
	case name == "down", name == "tab":
		q.at = min(q.at+1, last)
	default:
		q.why, q.values = "", slices.Clone(q.values)
		value := &q.values[q.at]
		if q.options()[q.at].Switch {
			*value = widget.When(name == "space" && *value == "", "true")
		} else {
			*value = widget.Edit(*value, name, txt)
		}
	}
	s.overlay = q
}

// submit creates the job, or shows what is wrong.
func (q form) submit(s *State) {
	spec, err := admission.JobSpec(q.action, q.given())
	if err != nil {
		q.why = text.Clean(err.Error())
		s.overlay = q
		return
	}
	data, _ := json.Marshal(spec) // plain data
	send := command{act: "submit", action: q.action, object: q.on, spec: string(data)}
	then := admission.JobForms[q.action].Then
	if then == "" {
		s.perform(send)
		return
	}
	ask := confirm{title: q.action + " " + q.on.Name + "?", lines: []string{then, createLine(&s.facts, q.action, q.on, q.given())},
		choices: []choice{{"y", "Yes, " + q.action, send}}}
	if q.action == "deleteResources" {
		ask.name = q.on.Name
	}
	s.overlay = ask
}

func (q form) hints(*scene) string { return "^v option|enter create|space on/off|esc close" }

func (q form) draw(p *view) overlay {
	w := min(78, p.c.W-2)
	room := max(w-labelWidth-7, 4)
	var lines []widget.TextLine
	for i, o := range q.options() {
		r, mark := widget.RolePlain, " "
		value := q.values[i]
		if i == q.at {
			r, mark = widget.RoleKey, p.c.G.Cursor
			value += "_"
		} else if value == "" {
			r, value = widget.RoleDim, widget.When(o.Needed, "(needed)")
		}
		for displaywidth.String(value) > room { // the end is where the user types
			value = value[len(string([]rune(value)[:1])):]
		}
		lines = append(lines, widget.Styled(r, fmt.Sprintf("%s %-*s %s", mark, labelWidth, o.Name, value)))
	}
	help := q.options()[q.at]
	lines = append(lines, widget.Styled(widget.RoleDim, help.Help+widget.When(help.Many, "; several with commas")))
	if q.why != "" {
		lines = widget.Wrapped(lines, widget.RoleBad, q.why, w-4)
	}
	box := widget.Box{Title: p.cut(q.action+" "+q.on.Name, max(w-16, 4)), Note: "esc closes", Focused: true,
		Foot: p.cut(createLine(p.facts, q.action, q.on, q.given()), max(w-6, 4))}
	p.c.Panel(p.c.Dialog(w, min(len(lines)+2, p.c.H-2)), box, lines)
	return q
}
