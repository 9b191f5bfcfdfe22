package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"limpet/sync/git/ignore"
	"limpet/sync/source/archive"
	"limpet/sync/text"
)

// The sizes of a chart. Source: --helm-chart-max-size, --helm-chart-file-max-size of
// source-controller; MaxDecompressedChartSize of helm.
const (
	MaxChart    = 10 << 20 // packed
	maxFile     = 5 << 20
	maxUnpacked = 100 << 20
	mostFiles   = 20_000
)

// Names of files of a chart.
const (
	chartFile        = "Chart.yaml"
	requirementsFile = "requirements.yaml" // the dependencies of charts of Helm 2
	valuesFile       = "values.yaml"
	ignoreFile       = ".helmignore"
	chartsDir        = "charts/"
)

// Chart is a chart in an archive.
type Chart struct {
	APIVersion   string                  `json:"apiVersion"`
	Name         string                  `json:"name"`
	Version      string                  `json:"version"`
	Dependencies []struct{ Name string } `json:"dependencies"`
	Valued       bool                    `json:"-"` // it has a values.yaml

	open   func() (io.ReadCloser, error) // the archive
	dir    string                        // of the chart in the archive; "" = the only one at its top
	top    string                        // that directory
	about  []byte                        // Chart.yaml
	rules  *ignore.Rules                 // of .helmignore
	nested []string                      // what is in charts/
}

// Open reads the chart in a directory of an archive, and with dir "" one that Helm's tools have
// packed: all is in one directory then. open opens the archive, each time anew. Errors say what is
// wrong with it as a chart.
func Open(open func() (io.ReadCloser, error), dir string) (*Chart, error) {
	c := &Chart{open: open, dir: dir}
	err := c.exclude(nil)
	if err == nil {
		err = c.files(c.read)
	}
	if err == nil && c.about == nil {
		err = errors.New("it has no Chart.yaml")
	}
	if err != nil {
		return nil, err
	}
	_, err = semver.NewVersion(c.Version)
	switch {
	case c.APIVersion == "":
		return nil, errors.New("its Chart.yaml has no apiVersion")
	case c.Name == "" || path.Base(c.Name) != c.Name || strings.ContainsAny(c.Name, "\\\x00"):
		return nil, fmt.Errorf("its Chart.yaml: %q is no name of a chart", text.Line(c.Name, 100))
	case err != nil:
		return nil, fmt.Errorf("its Chart.yaml: version %q: %w", text.Line(c.Version, 100), err)
	}
	return c, nil
}

// read reads a file that says what the chart is.
func (c *Chart) read(name string, f archive.File) error {
	if rest, is := strings.CutPrefix(name, chartsDir); is {
		first, _, _ := strings.Cut(rest, "/")
		c.nested = append(c.nested, first)
	}
	c.Valued = c.Valued || name == valuesFile
	if name != chartFile && name != requirementsFile && name != ignoreFile {
		return nil
	}
	data, err := io.ReadAll(f.Reader)
	if err != nil {
		return err
	}
	if name == ignoreFile {
		return c.exclude(data)
	}
	if name == chartFile {
		c.about = data
	}
	return yaml.Unmarshal(data, c)
}

// exclude reads a .helmignore, in the format of .gitignore: only what is behind a "!" means more
// there than to Helm.
func (c *Chart) exclude(data []byte) (err error) {
	c.rules, err = ignore.NewBudget().Parse(append([]byte("templates/.?*\n"), data...), nil) // Helm's default
	return err
}

// Missing returns the first dependency that is not below charts/, "" for none.
func (c *Chart) Missing() string {
	for _, d := range c.Dependencies {
		if !slices.ContainsFunc(c.nested, func(name string) bool {
			return name == d.Name || strings.HasPrefix(name, d.Name+"-") && strings.HasSuffix(name, ".tgz")
		}) {
			return d.Name
		}
	}
	return ""
}

// files calls visit for each file of the chart, by its path in the chart.
func (c *Chart) files(visit func(name string, f archive.File) error) error {
	from, err := c.open()
	if err != nil {
		return err
	}
	defer from.Close()
	count, total := 0, int64(0)
	for f, err := range archive.Files(from) {
		if err != nil {
			return err
		}
		name, err := c.within(f.Path)
		if err != nil {
			return err
		}
		if name == "" {
			continue
		}
		if count, total = count+1, total+f.Size; count > mostFiles || total > maxUnpacked {
			return fmt.Errorf("the chart has more than %d files, or more than %s in them", mostFiles, text.Size(maxUnpacked))
		}
		if f.Size > maxFile {
			return fmt.Errorf("%s has %s, and the limit of a file of a chart is %s", text.Line(f.Path, 200), text.Size(f.Size), text.Size(maxFile))
		}
		if err := visit(name, f); err != nil {
			return fmt.Errorf("%s: %w", text.Line(f.Path, 200), err)
		}
	}
	return nil
}

// within returns the path in the chart of a file of the archive, "" for one of something else.
func (c *Chart) within(file string) (string, error) {
	if c.dir != "" {
		name, is := strings.CutPrefix(file, c.dir+"/")
		if c.dir == "." {
			name, is = file, true
		}
		if !is {
			return "", nil
		}
		excluded, _, err := ignore.Match(context.Background(), []*ignore.Rules{c.rules}, strings.Split(name, "/"), false)
		if excluded {
			name = ""
		}
		return name, err
	}
	top, name, is := strings.Cut(file, "/")
	if !is || c.top != "" && top != c.top || strings.Contains(file, "\\") {
		return "", fmt.Errorf("%q is not in the one directory of a chart", text.Line(file, 200))
	}
	c.top = top
	return name, nil
}
