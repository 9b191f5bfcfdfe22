package tui

// overlay is a box before the screen. While it is there all keys are its own;
// only Ctrl-C comes first. Its methods are pure, as State's are.
type overlay interface {
	// key returns the state after a key press; s.over is this overlay, and stays
	// unless it is changed.
	key(s State, name, text string) (State, Outcome)
	draw(p *view)
	// hints are its keys, each with a word, for the last line of the screen.
	hints(p *view) [][2]string
}
