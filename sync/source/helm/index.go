// Package helm reads what Helm's tools write: indexes of repositories, packed charts, directories
// of charts. It sends no request.
//
//	index.go   versions of an index, read a version at a time
//	choose.go  the version that a range means
//	chart.go   what a chart says of itself, and whether its archive is one
//	pack.go    a chart packed again, with other values or from a directory
//
// Nothing of it is trusted: paths, sizes and numbers are bounded before anything is in memory.
package helm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"limpet/sync/text"
)

const (
	// maxVersion bounds one version of an index, which is parsed in memory.
	maxVersion = 1 << 20
	// maxFlow bounds an index that is not in the form of Helm's tools, a line a member.
	maxFlow = 4 << 20
)

// Version is a version of a chart in an index.
type Version struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Type    string    `json:"type"`
	Created time.Time `json:"created"`
	Digest  string    `json:"digest"` // of the packed chart, in hex; "" = not known
	URLs    []string  `json:"urls"`
}

// valid reports whether Helm would take the version. Source: helm, pkg/chart/metadata.go.
func (v Version) valid() bool {
	_, err := semver.NewVersion(v.Version)
	return err == nil && v.Name != "" && !strings.ContainsAny(v.Name, `/\`) &&
		(v.Type == "" || v.Type == "application" || v.Type == "library")
}

// Versions returns the versions of one chart of an index, and with chart "" those of all. Those that
// Helm would not take are left out, as Helm does. One version at a time is parsed: an index of
// 50 MiB as a whole would take a GiB.
func Versions(index io.Reader, chart string) (found []Version, err error) {
	in := bufio.NewReaderSize(index, maxVersion)
	s := scan{in: in, chart: chart}
	if begin, _ := in.Peek(1); len(begin) > 0 && (begin[0] == '{' || begin[0] == '[') {
		err = s.flow(nil)
	} else {
		err = s.lines()
	}
	if err == nil && !s.entries {
		err = errors.New("it has no entries: this is no index of a Helm repository")
	}
	return s.found, err
}

// scan reads an index line by line.
type scan struct {
	in      *bufio.Reader
	chart   string // the only one that is wanted; "" = all
	found   []Version
	entries bool // they have been there

	name   string // of the chart whose versions are read
	indent int    // of the names; -1 = none has come
	item   int    // indent of the dashes of the versions of a chart; -1 = none has come
	text   []byte // of a version
}

func (s *scan) lines() error {
	inside := false
	s.indent = -1
	for {
		line, ended := s.in.ReadSlice('\n')
		if errors.Is(ended, bufio.ErrBufferFull) {
			return fmt.Errorf("it has a line of more than %s", text.Size(maxVersion))
		}
		rest := bytes.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		rest = bytes.TrimRight(rest, " \r\n")
		var err error
		switch {
		case len(rest) == 0 || rest[0] == '#':
			if len(s.text) > 0 { // it may be a line of a text
				err = s.take(line)
			}
		case indent == 0: // a member of the index
			err = s.end()
			value, is := bytes.CutPrefix(rest, []byte("entries:"))
			if inside = is; !is {
				break
			}
			s.entries = true
			if value = bytes.TrimSpace(value); len(value) > 0 && value[0] != '#' {
				return s.flow(bytes.Clone(line))
			}
		case inside:
			err = s.line(line, rest, indent)
		}
		if err != nil {
			return err
		}
		if errors.Is(ended, io.EOF) {
			return s.end()
		}
		if ended != nil {
			return ended
		}
	}
}

// line reads a line of the entries.
func (s *scan) line(line, rest []byte, indent int) error {
	dash := rest[0] == '-' && (len(rest) == 1 || rest[1] == ' ')
	if s.indent < 0 {
		s.indent = indent
	}
	switch {
	case indent < s.indent:
		return fmt.Errorf("near %q: the indent is less than that of the entries", text.Line(string(rest), 100))
	case indent == s.indent && !dash: // the name of a chart
		if err := s.end(); err != nil {
			return err
		}
		var entry map[string][]Version
		if err := yaml.Unmarshal(rest, &entry); err != nil || len(entry) != 1 {
			return fmt.Errorf("near %q: it is no name of a chart", text.Line(string(rest), 100))
		}
		for s.name = range entry {
			s.add(entry[s.name]) // in flow style
		}
		s.item = -1
		return nil
	case dash && (s.item < 0 || indent == s.item):
		if err := s.end(); err != nil {
			return err
		}
		s.item = indent
	}
	return s.take(line)
}

// take adds a line to the version.
func (s *scan) take(line []byte) error {
	if s.chart != "" && s.name != s.chart {
		return nil
	}
	if s.text = append(s.text, line...); len(s.text) > maxVersion {
		return fmt.Errorf("a version of %q has more than %s", text.Line(s.name, 100), text.Size(maxVersion))
	}
	return nil
}

// end parses the version whose lines have come.
func (s *scan) end() error {
	body := s.text
	s.text = s.text[:0]
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	var list []Version
	if err := yaml.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("a version of %q: %w", text.Line(s.name, 100), err)
	}
	s.add(list)
	return nil
}

func (s *scan) add(list []Version) {
	for _, v := range list {
		if v.valid() && (s.chart == "" || s.name == s.chart) {
			s.found = append(s.found, v)
		}
	}
}

// flow parses an index, or its rest from a line on, as a whole.
func (s *scan) flow(line []byte) error {
	body, err := io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(line), s.in), maxFlow+1))
	if err == nil && len(body) > maxFlow {
		err = fmt.Errorf("it is not written a line a member, and has more than %s", text.Size(maxFlow))
	}
	var index struct {
		Entries map[string][]Version `json:"entries"`
	}
	if err == nil {
		err = yaml.Unmarshal(body, &index)
	}
	s.entries = index.Entries != nil
	for s.name = range index.Entries {
		s.add(index.Entries[s.name])
	}
	return err
}
