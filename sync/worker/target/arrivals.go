package target

import (
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/git"
	"limpet/sync/worker/sink"
)

// patience is how long one fetch may wait for the use of files. Beyond it they are left to the plan,
// so that a slow disk does not keep a Git server.
const patience = 5 * time.Second

// arrivals hands files to workers while their pack comes.
type arrivals struct {
	files   chan arrived
	workers errgroup.Group
	left    time.Duration // of patience
}

// arrived is a file that has come. Its content is recycled after its use.
type arrived struct {
	sink.File
	content []byte
}

func newArrivals(workers int, use func(arrived)) *arrivals {
	a := &arrivals{files: make(chan arrived), left: patience}
	for range workers {
		a.workers.Go(func() error {
			for f := range a.files {
				use(f)
				git.Recycle(f.content)
			}
			return nil
		})
	}
	return a
}

// receive hands a file over. It is for one goroutine.
func (a *arrivals) receive(path, hash string, exec bool, content []byte) {
	f := arrived{sink.File{Path: path, Hash: hash, Size: int64(len(content)), Exec: exec}, content}
	select {
	case a.files <- f:
		return
	default:
	}
	began := time.Now()
	late := time.NewTimer(a.left)
	defer late.Stop()
	select {
	case a.files <- f:
	case <-late.C:
		git.Recycle(content)
	}
	a.left -= time.Since(began)
}

// end waits for the workers. What is received after it is dropped.
func (a *arrivals) end() {
	if a.files != nil {
		close(a.files)
		_ = a.workers.Wait() // what they have not done is left to the plan
		a.files = nil
		a.left = 0 // a later fetch is of what is read again
	}
}
