// Program release makes what is published beside the binaries of a release: for each of them a
// bill of materials, and for those of Linux a .deb, a .rpm and an image, besides one image index
// in the OCI layout. The same binaries, version and date give the same bytes.
//
// It is a module of its own, so that its dependencies are not those of limpet.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release is what all files of a release share.
type release struct {
	dist    string // directory of the binaries and of the results
	texts   string // directory of what limpet prints of itself
	version string
	date    time.Time
}

// arch is one architecture of Linux under the names of its users.
type arch struct {
	name    string // in limpet-linux-NAME
	nfpm    string
	oci     string
	variant string // of oci
}

var archs = []arch{
	{"amd64", "amd64", "amd64", ""},
	{"arm64", "arm64", "arm64", "v8"},
	{"armv7", "arm7", "arm", "v7"},
	{"386", "386", "386", ""},
	{"riscv64", "riscv64", "riscv64", ""},
}

func main() {
	var r release
	var seconds int64
	flag.StringVar(&r.dist, "dist", "dist", "directory of the binaries")
	flag.StringVar(&r.version, "version", "", "version, as git describe prints it")
	flag.Int64Var(&seconds, "date", 0, "time of the files, in seconds since 1970")
	program := flag.String("limpet", "./limpet", "limpet for this host, which prints unit, manual, completions and config")
	flag.Parse()
	r.date = time.Unix(seconds, 0).UTC()
	if err := r.run(*program); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(program string) error {
	texts, err := os.MkdirTemp("", "limpet-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(texts)
	r.texts = texts
	if err := writeTexts(program, texts); err != nil {
		return err
	}
	binaries, err := filepath.Glob(filepath.Join(r.dist, "limpet-*-*"))
	if err != nil {
		return err
	}
	for _, binary := range binaries {
		if filepath.Ext(binary) != "" {
			continue // a result of an earlier run
		}
		if err := r.writeBOM(binary); err != nil {
			return err
		}
	}
	var built []arch
	for _, a := range archs {
		if _, err := os.Stat(r.binary(a)); err != nil {
			continue // a release of fewer platforms
		}
		built = append(built, a)
		if err := r.writePackages(a); err != nil {
			return err
		}
	}
	return r.writeImages(built)
}

// binary returns the path of limpet for an architecture of Linux.
func (r *release) binary(a arch) string {
	return filepath.Join(r.dist, "limpet-linux-"+a.name)
}

var sinceTag = regexp.MustCompile(`-(\d+)-g([0-9a-f]+)`)

// packageVersion returns a version that dpkg and rpm order by time: v1.2.0-rc.1 sorts before
// v1.2.0, and what git describes behind a tag after it. Without a tag the date comes first.
func (r *release) packageVersion() string {
	v := strings.TrimPrefix(r.version, "v")
	if !regexp.MustCompile(`^\d+\.\d`).MatchString(v) {
		v = "0.0." + r.date.Format("20060102150405") + "+" + v
	}
	v = strings.Replace(sinceTag.ReplaceAllString(v, "+$1.g$2"), "-dirty", "+dirty", 1)
	return strings.ReplaceAll(v, "-", "~")
}
