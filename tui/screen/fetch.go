package screen

import (
	"context"
	"errors"
	"reflect"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// Lookup fetches data that the snapshot does not contain. It runs concurrently with the screen.
// ctx ends with the dashboard, after LookupTimeout, and when another lookup starts. What it returns
// is for the value that asked, in a state that may have changed since.
type Lookup func(ctx context.Context, src Source) (result any)

// LookupTimeout bounds one lookup of a screen.
const LookupTimeout = 10 * time.Second

// Fetch returns the lookup that the present screen needs; nil = none.
func (s State) Fetch() (State, func(context.Context, Source) func(State) State) {
	var look Lookup
	if q, ok := s.overlay.(popup); ok { // no other lookup replaces it
		look = q.fetch(&s.scene)
	} else if s.compared.pending {
		look = s.detail.fetch(&s.scene)
	} else if f, ok := s.at(s.screen).(fetcher); ok {
		look = f.fetch(&s.scene)
	}
	if look == nil {
		return s, nil
	}
	return s, func(ctx context.Context, src Source) func(State) State {
		result := look(ctx, src)
		return func(s State) State {
			for _, f := range []interface{ take(result any) }{&s.detail.record, &s.repo.recent, &s.source.stored, &s.history.page,
				&s.agent.report, &s.changes.files, &s.diff.file, &s.files.page, &s.popupText} {
				f.take(result)
			}
			s.update()
			return s
		}
	}
}

type fetched[K comparable, T any] struct {
	key     K         // of the value, or of the error
	value   T         // clean
	known   bool      // the value has arrived
	err     string    // why the lookup failed
	at      time.Time // start of the last lookup; zero = it was cancelled
	request *K        // the running lookup; nil = none
	version int       // counts the values
}

// of returns the value for a key, and whether it has arrived or the lookup failed.
func (f *fetched[K, T]) of(key K) (value T, known bool, err string) {
	if f.key != key {
		return value, false, ""
	}
	return f.value, f.known, f.err
}

type result[K comparable, T any] struct {
	request *K
	value   T // clean
	err     error
}

// look starts a lookup of key unless it runs already.
func (f *fetched[K, T]) look(s *scene, key K, get func(context.Context, Source) (T, error)) Lookup {
	if s.Gone != "" || f.request != nil && *f.request == key {
		return nil
	}
	request := &key
	f.request, f.at = request, s.Now
	return func(ctx context.Context, src Source) any {
		value, err := get(ctx, src)
		return result[K, T]{request, clean(value), err}
	}
}

// take takes the result of the lookup that runs, not that of an earlier one or of another value.
func (f *fetched[K, T]) take(of any) {
	got, ok := of.(result[K, T])
	if !ok || f.request != got.request {
		return
	}
	f.request = nil
	switch key := *got.request; {
	case errors.Is(got.err, context.Canceled): // fetched again when the screen is shown
		f.at = time.Time{}
	case got.err != nil:
		var none T
		if f.key != key {
			f.value, f.known = none, false
		}
		f.key, f.err = key, text.Clean(got.err.Error())
	default:
		f.key, f.err = key, ""
		f.value, f.known = got.value, true
		f.version++
	}
}

func clean[T any](v T) T {
	cleanValue(reflect.ValueOf(&v).Elem())
	return v
}

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text.Clean(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			cleanValue(c.Elem())
			v.Set(c)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(c, v)
			for i := range c.Len() {
				cleanValue(c.Index(i))
			}
			v.Set(c)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				cleanValue(f)
			}
		}
	}
}

// cleanSnapshot returns a clean copy of a snapshot. Snapshots enter the screens only through it.
func cleanSnapshot(in *snapshot.Snapshot) *snapshot.Snapshot {
	out := clean(*in)
	for i := range out.Jobs {
		out.Jobs[i].Progress = percent(out.Jobs[i].Progress)
	}
	return &out
}

// percent bounds a progress, which may be NaN.
func percent(p float64) float64 {
	if !(p <= 100) {
		return 100
	}
	return p
}
