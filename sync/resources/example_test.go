package resources_test

import (
	"fmt"

	"limpet/sync/resources"
)

// A file becomes an object, and a tree becomes a plan against what the server has.
func Example() {
	kinds, err := resources.ParseKinds(nil)
	if err != nil {
		panic(err)
	}
	file := resources.File{Repository: "boards", Namespace: "default", Path: "team/cpu.json", Kinds: kinds}
	board, err := resources.Judge(file, []byte(`{"uid": "cpu", "title": "CPU", "tags": [], "schemaVersion": 39, "panels": []}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(board.Identity(), "with title", board.Title())

	_, err = resources.Judge(file, []byte(`{"uid": "cpu", "panels": [}`))
	fmt.Println(err)
	fmt.Println("left out, and the rest goes on:", resources.IsWarning(err))

	tree := resources.Tree{Files: []resources.TreeFile{{Path: "team/cpu.json", Hash: "2c3a"}}}
	plan := resources.Full(resources.Target{Repository: "boards", Kinds: kinds}, tree, nil, nil)
	for _, change := range plan.WriteFolders {
		fmt.Println("folder for", change.Path)
	}
	for _, change := range plan.WriteFiles {
		fmt.Println("file", change.Path)
	}

	// Output:
	// Dashboard cpu with title CPU
	// team/cpu.json:1:27: not JSON: invalid character '}' looking for beginning of value
	// left out, and the rest goes on: true
	// folder for team/
	// file team/cpu.json
}
