package sink_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/worker/sink"
)

// A tree is planned against what is in the directory, and takes its place as a whole. A second
// write of the same commit has nothing to do.
func Example() {
	prefix, err := os.MkdirTemp("", "limpet-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(prefix)
	target, err := sink.Permit(filepath.Join(prefix, "boards"), []string{prefix})
	if err != nil {
		panic(err)
	}
	const board = `{"title": "CPU"}`
	files := []sink.File{{Path: "team/cpu.json", Hash: "6f174f91df4aedfafbe62a4cdfc2cccc89d904f8", Size: int64(len(board))}}
	read := func(context.Context, sink.File) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(board)), nil
	}
	for range 2 {
		dir, err := sink.Open(context.Background(), target, "default/plant")
		if err != nil {
			panic(err)
		}
		plan, err := dir.Plan("commit-1", "", files)
		if err == nil {
			err = dir.Write(context.Background(), plan, read, func(f sink.File) { fmt.Println("written", f.Path) })
		}
		if err != nil {
			panic(err)
		}
		dir.Close()
	}
	content, err := os.ReadFile(filepath.Join(target.String(), "team", "cpu.json"))
	fmt.Println(string(content), err)

	// Output:
	// written team/cpu.json
	// {"title": "CPU"} <nil>
}
