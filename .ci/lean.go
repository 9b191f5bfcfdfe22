// Lean makes what 'go build -modfile' needs to take 3 MiB off the program, and
// prints the path of that file. It changes nothing that the program does.
//
// The linker leaves out methods that nobody calls, unless some code asks for methods
// by a name that only the running program knows: then each exported method of each
// type stays. Of all that limpet is built of, only kong does so, for hooks and for
// Run. In the copy that is made below dist/ it asks by constants, the names that
// there are.
//
//	go build -modfile "$(go run .ci/lean.go)" .
//
// When kong has changed so that a line is not there any more, it says which and ends
// with 1. A build without it works too, and is larger.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const kong = "github.com/alecthomas/kong"

// change replaces a text of a file. It has to be there so many times.
type change struct {
	old, new string
	times    int
}

var changes = map[string][]change{
	"callbacks.go": {
		{"value.MethodByName(name)", "methodOf(value, name)", 2},
		{"value.Addr().MethodByName(name)", "methodOf(value.Addr(), name)", 2},
		{"t.MethodByName(name)", "typeMethodOf(t, name)", 1},
	},
	"context.go": {
		// Methods whose names begin with Provide; limpet has none.
		{"i < p.NumMethod()", "i < 0", 1},
		{"t.Method(i)", "reflect.Method{}", 1},
		{"p.Method(i)", "reflect.Value{}", 1},
	},
}

// names are the methods that kong looks for. Source: its README, "Hooks" and
// "Attach a Run() error method".
var names = []string{"Run", "BeforeReset", "BeforeResolve", "BeforeApply", "AfterApply", "AfterRun"}

// lookups is the file that is added to kong.
func lookups() string {
	var values, types strings.Builder
	for _, n := range names {
		fmt.Fprintf(&values, "\tcase %q:\n\t\treturn value.MethodByName(%q)\n", n, n)
		fmt.Fprintf(&types, "\tcase %q:\n\t\treturn t.MethodByName(%q)\n", n, n)
	}
	const text = `package kong

import "reflect"

func methodOf(value reflect.Value, name string) reflect.Value {
	switch name {
%s	}
	panic("kong: a method that lean.go does not know: " + name)
}

func typeMethodOf(t reflect.Type, name string) (reflect.Method, bool) {
	switch name {
%s	}
	panic("kong: a method that lean.go does not know: " + name)
}
`
	return fmt.Sprintf(text, values.String(), types.String())
}

func main() {
	path, err := lean("dist")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lean:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// lean writes the copy of kong and a go.mod that names it below dir, and returns the
// path of the latter. It runs where go.mod is.
func lean(dir string) (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", kong).Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", kong, err)
	}
	from, to := strings.TrimSpace(string(out)), filepath.Join(dir, "kong")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return "", err
	}
	for _, path := range append(files, filepath.Join(from, "go.mod"), filepath.Join(from, "COPYING")) {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text := string(data)
		for _, c := range changes[name] {
			if n := strings.Count(text, c.old); n != c.times {
				return "", fmt.Errorf("%s of %s has %q %d times, not %d: look at .ci/lean.go", name, filepath.Base(from), c.old, n, c.times)
			}
			text = strings.ReplaceAll(text, c.old, c.new)
		}
		if err := put(filepath.Join(to, name), text); err != nil {
			return "", err
		}
	}
	if err := put(filepath.Join(to, "methods.go"), lookups()); err != nil {
		return "", err
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		return "", err
	}
	if err := put(filepath.Join(dir, "lean.sum"), string(sum)); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "lean.mod")
	return path, put(path, string(mod)+"\nreplace "+kong+" => ./"+filepath.ToSlash(to)+"\n")
}

// put writes a file whole, and leaves one that is so already as it is: several may
// build at once.
func put(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
