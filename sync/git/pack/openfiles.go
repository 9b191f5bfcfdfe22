package pack

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// maxOpen bounds the files of packs that all stores of the process hold open. Beyond it only those
// are open that are read at the moment, one a reader.
const maxOpen = 100

// ErrGone reports that the file of a pack was removed: the packs of the mirror were put together,
// or made anew. It comes with ErrDamaged.
var ErrGone = errors.New("it is gone")

// openFiles closes the file that was used least recently when there are too many.
type openFiles struct {
	mu    sync.Mutex // guards all below, and of each pack the file, its users and its place
	packs list.List  // *pack, the one that was used last in front
}

var files openFiles // the limit of the system is one of the process

// open returns the file of a pack for reading at offsets. done must follow.
func (o *openFiles) open(p *pack) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.file == nil {
		file, err := p.openFile(p.path)
		if err != nil {
			return nil, err
		}
		p.file, p.place = file, o.packs.PushFront(p)
	}
	if p.place != nil {
		o.packs.MoveToFront(p.place)
	}
	p.users++
	for place := o.packs.Back(); place != nil && o.packs.Len() > maxOpen; {
		last := place.Value.(*pack)
		place = place.Prev()
		if last.users == 0 {
			o.drop(last)
		}
	}
	return p.file, nil
}

// openFile opens the pack or its index.
func (p *pack) openFile(path string) (*os.File, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: pack %.8s: %w", ErrDamaged, p.name, ErrGone)
	}
	return file, err
}

func (o *openFiles) done(p *pack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.users--
}

// close closes the files of packs that are not read any more.
func (o *openFiles) close(packs []*pack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range packs {
		if p.users == 0 { // else another store of the mirror reads it
			o.drop(p)
		}
	}
}

// drop closes a file. The caller holds mu.
func (o *openFiles) drop(p *pack) {
	if p.place == nil { // it is closed, or the one of a Spooled
		return
	}
	p.file.Close()
	o.packs.Remove(p.place)
	p.file, p.place = nil, nil
}
