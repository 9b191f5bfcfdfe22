// Program licences reads "MODULE VERSION DIRECTORY" lines and fails when a module has a licence
// that does not go with a permissive program, or none that it knows.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/licenseclassifier/v2/assets"
)

// allowed are the licences that ask for no more than a notice, and the MPL, whose claim ends at its
// own files.
var allowed = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "0BSD", "Unlicense"}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)

func main() {
	classifier, err := assets.DefaultClassifier()
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
	bad := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var module, version, dir string
		if n, _ := fmt.Sscan(lines.Text(), &module, &version, &dir); n < 3 {
			continue // the module itself
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "licences:", err)
			os.Exit(1)
		}
		var found, refused []string
		for _, e := range entries {
			if e.IsDir() || !licenceFile.MatchString(e.Name()) {
				continue
			}
			if filepath.Ext(e.Name()) == ".docs" { // of its documentation, which is not linked
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				fmt.Fprintln(os.Stderr, "licences:", err)
				os.Exit(1)
			}
			for _, match := range classifier.Match(text).Matches {
				if match.MatchType != "License" {
					continue
				}
				found = append(found, match.Name)
				if !slices.Contains(allowed, match.Name) {
					refused = append(refused, match.Name)
				}
			}
		}
		if len(found) == 0 || len(refused) > 0 {
			bad++
			fmt.Printf("%s %s: licences %q, of which %q are refused\n", module, version, found, refused)
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}
