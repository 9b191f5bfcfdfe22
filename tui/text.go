package tui

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"limpet/sync/view"
)

// clean makes foreign text safe to show: control characters, escape sequences'
// first bytes, direction overrides and broken UTF-8 go, line breaks become
// blanks. Names and messages come from Git and from the API.
func clean(s string) string {
	safe := true
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= 0x7f {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < 0x20, r == 0x7f, r >= 0x80 && r < 0xa0, r == utf8.RuneError,
			r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f,
			r == 0x061c, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f:
			return -1
		}
		return r
	}, s)
}

// cleanSnapshot returns a copy of s with every foreign text clean. It is the
// one border where such text enters the screens.
func cleanSnapshot(s *view.Snapshot) *view.Snapshot {
	out := *s
	out.Problem = clean(s.Problem)
	out.Agent.Host, out.Agent.Version, out.Agent.Namespace = clean(s.Agent.Host), clean(s.Agent.Version), clean(s.Agent.Namespace)
	out.API.Server, out.API.Error = clean(s.API.Server), clean(s.API.Error)
	out.Jobs = make([]view.Job, len(s.Jobs))
	for i, j := range s.Jobs {
		for _, p := range []*string{&j.Namespace, &j.Name, &j.Repository, &j.Action, &j.Detail, &j.State, &j.Message, &j.RefFrom, &j.RefTo, &j.Branch} {
			*p = clean(*p)
		}
		j.Errors, j.Warnings = cleanAll(j.Errors), cleanAll(j.Warnings)
		j.Log = cleanEvents(j.Log)
		j.Summary = append([]view.Summary(nil), j.Summary...)
		for k := range j.Summary {
			j.Summary[k].Kind = clean(j.Summary[k].Kind)
		}
		out.Jobs[i] = j
	}
	out.Repos = make([]view.Repo, len(s.Repos))
	for i, r := range s.Repos {
		for _, p := range []*string{&r.Namespace, &r.Name, &r.Title, &r.Type, &r.URL, &r.Branch, &r.Path, &r.Target, &r.Health, &r.SyncState, &r.SyncJob, &r.LastRef, &r.Runs} {
			*p = clean(*p)
		}
		out.Repos[i] = r
	}
	out.Events = cleanEvents(s.Events)
	return &out
}

func cleanAll(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = clean(s)
	}
	return out
}

func cleanEvents(in []view.Event) []view.Event {
	out := make([]view.Event, len(in))
	for i, e := range in {
		e.Job, e.Repo, e.Text, e.Level = clean(e.Job), clean(e.Repo), clean(e.Text), clean(e.Level)
		out[i] = e
	}
	return out
}

// clock is an elapsed time as 0:42, 12:03 or 1:02:03.
func clock(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}

// age is a time span in its largest unit: 42s, 5m, 3h, 2d.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// ago is the age of t, "-" when t is not known.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(now.Sub(t)) + " ago"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shortRef is a commit in the seven letters that people use.
func shortRef(ref string) string {
	if len(ref) >= 40 {
		return ref[:7]
	}
	return ref
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
