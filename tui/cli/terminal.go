package cli

import "io"

// printsOnly says that a terminal can do no more than print: it says so, or nobody
// has said which one it is.
func printsOnly(env func(string) string) bool {
	switch env("TERM") {
	case "", "dumb", "unknown":
		return true
	}
	return false
}

// readOut says that what is written to w is lines that can be read out: because that
// is asked for, or because w is a terminal that can only print. A pipe has no TERM
// either; what reads it wants columns.
func (r *run) readOut(w io.Writer) bool {
	return r.g.Accessible || isTerminal(w) && printsOnly(r.Getenv)
}
