package jobs

import (
	"fmt"
	"slices"
	"strings"
)

// story tells the broken laws and everything about the job or the two that the
// first of them is about.
func (w *simWorld) story() string {
	var b strings.Builder
	for _, x := range w.oracle.broken {
		fmt.Fprintf(&b, "%s: %s\n", x.uid, x.law)
	}
	fmt.Fprintf(&b, "%d hosts, calm after %s, options %+v\n", len(w.hosts), w.calm.Sub(w.start), w.options)
	about := func(uid string) bool { // the first law names one job or two
		return uid == w.oracle.broken[0].uid || strings.HasSuffix(w.oracle.broken[0].law, " "+uid)
	}
	var lines []simTale
	for _, e := range w.audit {
		if uid := uidIn(e); about(uid) {
			lines = append(lines, simTale{e.at, e.who, e.String(), uid})
		}
	}
	for _, l := range w.told {
		if l.uid == "" || about(l.uid) {
			lines = append(lines, l)
		}
	}
	slices.SortStableFunc(lines, func(a, b simTale) int { return a.at.Compare(b.at) })
	for _, l := range lines {
		fmt.Fprintf(&b, "%10.3f %-6s %s %s\n", l.at.Sub(w.start).Seconds(), l.who, l.uid, l.what)
	}
	return b.String()
}

// print is a fingerprint of all that has happened: the writes in their order,
// and the rest whatever its order within one instant.
func (w *simWorld) print() uint64 {
	var rest uint64
	for _, l := range w.told {
		rest += uint64(fate(0).about(l.who).about(l.what).about(l.uid).of(uint64(l.at.UnixNano())))
	}
	f := fate(rest)
	for _, e := range w.audit {
		f = f.about(e.who).about(e.String()).of(uint64(e.at.UnixNano()))
	}
	return uint64(f)
}
