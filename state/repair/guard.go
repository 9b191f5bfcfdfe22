package repair

import (
	"fmt"
	"runtime/debug"

	"limpet/state/frame"
)

// Guard is the border of the package: whatever bbolt does with a damaged page, a panic or a fault in the memory map, leaves
// as ErrCorrupt.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &FaultError{Cause: r}
		}
	}()
	return frame.Classify(fn())
}

// FaultError is a panic or memory fault that was caught at the border. It is an ErrCorrupt.
type FaultError struct{ Cause any }

func (e *FaultError) Error() string        { return fmt.Sprintf("%s: %v", frame.ErrCorrupt, e.Cause) }
func (e *FaultError) Is(target error) bool { return target == frame.ErrCorrupt }
