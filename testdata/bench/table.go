package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// String lists the figures that a sample has, for each that was done.
func (s sample) String() string {
	each := max(s.count, 1)
	var all []string
	if s.count > 0 && s.wall > 0 {
		all = append(all, fmt.Sprintf("%.0f/s", s.count/s.wall.Seconds()))
	}
	if s.wall > 0 {
		all = append(all, millis(s.wall.Seconds()/each)+" ms")
	}
	if s.cpu > 0 {
		all = append(all, millis(s.cpu.Seconds()/each)+" ms CPU")
	}
	if s.rss > 0 {
		all = append(all, fmt.Sprintf("%.0f MiB", float64(s.rss)/(1<<20)))
	}
	if s.bytes > 0 {
		all = append(all, fmt.Sprintf("%.0f B", float64(s.bytes)/each))
	}
	if s.calls > 0 {
		all = append(all, fmt.Sprintf("%.2f calls", float64(s.calls)/each))
	}
	return strings.Join(all, ", ")
}

// millis has as many digits as mean something.
func millis(seconds float64) string {
	ms := seconds * 1000
	if ms < 10 {
		return fmt.Sprintf("%.2f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

// print writes the table, as README has it.
func print(w io.Writer, b *bench, rows []row) {
	fmt.Fprintf(w, "%s\n\n", machine(b))
	fmt.Fprintln(w, "| goal | what | limpet | reference | of | ratio (spread) | P | S | verdict | rounds | over -vs |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		other := r.other.String()
		switch {
		case r.err != nil:
			text, _, _ := strings.Cut(r.err.Error(), "\n")
			fmt.Fprintf(w, "| %s | %s | failed: %s |\n", r.name, r.what, text)
		case r.rounds == 0:
			fmt.Fprintf(w, "| %s | %s | not measured |\n", r.name, r.what)
		default:
			if r.most > 0 {
				other = fmt.Sprintf("%g", r.most)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %.2f (%.2f-%.2f) | %s | %s | %s | %d | %s |\n", r.name, r.what, r.limpet, other,
				r.figure, r.ratio, r.low, r.high, limit(r.pass), limit(r.aim), r.verdict(), r.rounds, limit(r.vs))
		}
	}
}

func limit(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}

// machine names what the figures depend on.
func machine(b *bench) string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(info), "model name")
	model, _, _ := strings.Cut(rest, "\n")
	load, _ := os.ReadFile("/proc/loadavg")
	var u unix.Utsname
	_ = unix.Uname(&u)
	return fmt.Sprintf("%s; %d cores, %s; load %s; Linux %s; %s; %s; limpet %s", time.Now().UTC().Format("2006-01-02 15:04"), runtime.NumCPU(),
		strings.Trim(model, "\t :"), strings.Fields(string(load) + " ? ")[0], unix.ByteSliceToString(u.Release[:]), output("git", "--version"),
		runtime.Version(), output(b.limpet, "version"))
}

// output returns the first line that a program prints.
func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
