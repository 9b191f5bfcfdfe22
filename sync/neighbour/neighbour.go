// Package neighbour finds out whether another program looks after the Repositories
// and Connections of an API, so that two do not work against each other.
//
// Nobody announces that. What tells are the marks that a controller leaves in the
// status of an object (marks.go), and the field manager that left them: limpet's own
// are those of any agent, and what a person writes is not a controller's. From the
// last mark of a stranger and the age of the objects follows what this agent does
// (decide.go). One neighbour is there for all of an API: who looks after one
// Repository will look after the next.
//
// Where the server does not keep who wrote what, a check that has moved without
// this agent is a stranger's. Several agents cannot tell each other from a neighbour
// there: the first one works and the others rest, each for a little longer or shorter.
package neighbour

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Options of a Watch. Now, Blind, Grafana and Logger must be set.
type Options struct {
	Times
	Now func() time.Time // of the server
	// Blind says that what the API has cannot be seen at present.
	Blind func() bool
	// Grafana says whether the API is one of Grafana's own. An error is of the moment.
	Grafana func(ctx context.Context) (bool, error)
	ID      string // of this agent, other than that of any other one
	// Mute says that the phase is nobody's concern: it is not logged.
	Mute bool
	// Changed is called when the phase has, by the goroutine of Run.
	Changed func(State)
	Logger  *slog.Logger
}

// State is what a Watch has found out. All times are of this host.
type State struct {
	Phase Phase
	Since time.Time // of the phase
	Why   string    // of Active
	By    string    // field manager of the last stranger; "" = the server does not keep it, or there was none
	What  string    // it wrote, such as "health of default/boards"
	Seen  time.Time // when; zero = there was none
	Until time.Time // of the phase, if nothing is written; zero = not known
}

// Watch sees what is written and knows what this agent is to do. Make it with New,
// show it all objects with Saw, and Run it once.
type Watch struct {
	o     Options
	place float64       // of this agent among all others, 0 to 1
	again chan struct{} // capacity 1: something has been seen

	mu      sync.Mutex // guards what follows
	objects map[key]*object
	state   State
	own     time.Time // of the last sign of a limpet
	untold  bool      // the server does not keep who wrote what
	blind   time.Time
	grafana bool // as far as it was asked
}

type key struct{ kind, namespace, name string }

// object is what is remembered of one.
type object struct {
	uid     string
	created time.Time // by the clock of the server
	values  values
	written int64 // the check that this agent has written, or is about to
}

// New makes a Watch that has seen nothing yet, and waits.
func New(o Options) *Watch {
	o.Times = o.Times.filled()
	if o.Changed == nil {
		o.Changed = func(State) {}
	}
	now := time.Now()
	sum := sha256.Sum256([]byte(o.ID))
	return &Watch{o: o, place: float64(sum[0]) / 255, again: make(chan struct{}, 1), objects: map[key]*object{}, state: State{Since: now}, blind: now}
}

// Active says whether this agent is to look after Repositories and Connections
// now. It never blocks.
func (w *Watch) Active() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Phase == Active
}

// Late is by how much this agent's checks come after those of a neighbour.
func (w *Watch) Late() time.Duration { return w.o.Late }

// State returns what is known. It never blocks.
func (w *Watch) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Saw takes in an object as the server has sent it, with its managedFields. It costs
// next to nothing where no mark has moved. When it returns Active is false if a
// stranger has written.
func (w *Watch) Saw(kind string, u *unstructured.Unstructured) {
	k, is := key{kind, u.GetNamespace(), u.GetName()}, valuesOf(u)
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[k]
	if o != nil && o.uid == string(u.GetUID()) && o.values == is {
		return
	}
	known := o != nil && o.uid == string(u.GetUID())
	if !known {
		o = &object{uid: string(u.GetUID()), created: u.GetCreationTimestamp().Time}
		w.objects[k] = o
		w.wake()
	}
	was := o.values
	o.values = is
	for i, m := range marks {
		if is[i] == was[i] || is[i] == 0 {
			continue
		}
		who, manager, at := writer(u, m.path)
		if who == untold {
			who, at = w.guess(o, i, was[i], is[i], known)
		}
		w.note(who, manager, m.what+" of "+k.namespace+"/"+k.name, w.local(at))
	}
}

// guess says who has written a mark where the server does not keep it. Of those that
// were there before nobody knows.
func (w *Watch) guess(o *object, mark int, was, is int64, known bool) (hand, time.Time) {
	w.untold = true
	switch {
	case mark != checked || !known || is <= was:
		return nobody, time.Time{}
	case is == o.written:
		return own, w.o.Now()
	}
	return foreign, w.o.Now()
}

// note takes in one sign.
func (w *Watch) note(who hand, manager, what string, at time.Time) {
	switch {
	case who == own && at.After(w.own):
		w.own = at
		w.wake()
	case who == foreign && at.After(w.state.Seen):
		w.state.By, w.state.What, w.state.Seen = manager, what, at
		if w.state.Phase != Passive && time.Since(at) < w.o.Silence {
			w.enter(Passive, at.Add(w.o.Silence), "")
		}
		w.wake()
	}
}

// local is a time of the server by the clock of this host, not after now.
func (w *Watch) local(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return time.Now().Add(-max(0, w.o.Now().Sub(at)))
}

// Gone takes in that an object is no more.
func (w *Watch) Gone(kind, namespace, name, uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := key{kind, namespace, name}
	if o := w.objects[k]; o != nil && o.uid == uid {
		delete(w.objects, k)
	}
}

// Writes is told of a check before this agent sends it.
func (w *Watch) Writes(kind, namespace, name string, checked int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[key{kind, namespace, name}]; o != nil {
		o.written = checked
	}
}

func (w *Watch) wake() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// facts are those of now; unsure says that the API may be Grafana's. The caller
// holds mu.
func (w *Watch) facts(unsure bool) facts {
	f := facts{now: time.Now(), blind: w.blind, phase: w.state.Phase, foreign: w.state.Seen, own: w.own, grace: w.o.Grace, silence: w.o.Silence}
	for _, o := range w.objects {
		if at := w.local(o.created); f.first.IsZero() || at.Before(f.first) {
			f.first = at
		}
	}
	if w.grafana || unsure {
		f.grace = w.o.GraceGrafana
	}
	if w.untold {
		f.grace += time.Duration(w.place * float64(f.grace) / 4)
		f.silence += time.Duration(w.place * float64(f.silence) / 4)
	}
	return f
}

func (w *Watch) enter(phase Phase, until time.Time, why string) {
	w.state.Phase, w.state.Until, w.state.Why, w.state.Since = phase, until, why, time.Now()
}

// looks is how often Run looks whether the API can be seen, within one Silence.
const looks = 20

// Run decides until ctx ends, and returns nil then.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.o.Silence / looks)
	defer tick.Stop()
	told := Waiting
	for {
		state := w.settle(ctx)
		if state.Phase != told {
			told = state.Phase
			if !w.o.Mute {
				w.tell(state)
			}
			w.o.Changed(state)
		}
		timer := time.NewTimer(time.Until(state.Until))
		alarm := timer.C
		if state.Until.IsZero() {
			alarm = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-w.again:
		case <-tick.C:
		case <-alarm:
		}
		timer.Stop()
	}
}

// settle decides anew. Whose API it is matters only to who has waited for the
// shorter grace already, and is asked then. One that does not tell may be Grafana's.
func (w *Watch) settle(ctx context.Context) State {
	blind, asked, unsure := w.o.Blind(), false, false
	for {
		w.mu.Lock()
		if blind {
			w.blind = time.Now()
		}
		was := w.state.Phase
		phase, until, why := decide(w.facts(unsure))
		if blind && phase == Active {
			phase, until = was, time.Time{}
		}
		if was != Waiting || phase != Active || asked || w.grafana {
			if phase != was {
				w.enter(phase, until, why)
			}
			w.state.Until = until
			state := w.state
			w.mu.Unlock()
			return state
		}
		w.mu.Unlock()
		grafana, err := w.o.Grafana(ctx)
		asked, unsure = true, err != nil
		w.mu.Lock()
		w.grafana = err == nil && grafana
		w.mu.Unlock()
	}
}

func (w *Watch) tell(s State) {
	by := s.By
	if by == "" {
		by = "another controller"
	}
	switch s.Phase {
	case Passive:
		w.o.Logger.Info("repositories are looked after by another controller: this agent runs jobs only", "by", by, "wrote", s.What, "at", s.Seen.Round(0), "takes_over", "when it is silent for "+w.o.Silence.String())
	case Active:
		w.o.Logger.Info("this agent looks after repositories", "because", s.Why)
	case Waiting:
		w.o.Logger.Info("nobody looks after repositories, and there are none")
	}
}
