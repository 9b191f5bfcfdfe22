package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"

	"sigs.k8s.io/yaml"

	"limpet/sync/source/archive"
	"limpet/sync/text"
)

// versionLine is the member of Chart.yaml that a chart of another version differs in.
var versionLine = regexp.MustCompile(`(?m)^version:.*$`)

// Write packs the chart as Helm's tools lay one out, with a version and with other values.yaml; nil
// leaves those as they are. The same chart gives the same bytes. It ends with ctx.
func (c *Chart) Write(ctx context.Context, w io.Writer, version string, values []byte) (archive.Digests, error) {
	about := c.about
	if version != c.Version {
		about = versionLine.ReplaceAllLiteral(about, []byte("version: "+version))
		var is Chart
		if err := yaml.Unmarshal(about, &is); err != nil || is.Version != version {
			return archive.Digests{}, errors.New("its Chart.yaml has the version on no line of its own, so that it cannot be replaced")
		}
	}
	return archive.Pack(ctx, w, func(add func(name string, size int64, content io.Reader) error) error {
		put := func(name string, data []byte) error {
			return add(path.Join(c.Name, name), int64(len(data)), bytes.NewReader(data))
		}
		if err := put(chartFile, about); err != nil { // the first, so that a reader need not go on
			return err
		}
		return c.files(func(name string, f archive.File) error {
			switch {
			case name == chartFile:
				return nil
			case name == valuesFile && values != nil:
				return put(name, values)
			}
			return add(path.Join(c.Name, name), f.Size, f.Reader)
		})
	})
}

// Find reads files of the chart by their paths in it; those that are not there are left out.
func (c *Chart) Find(paths []string) (map[string][]byte, error) {
	return Find(c.open, c.top, paths)
}

// Find reads files of an archive by their paths in a directory of it.
func Find(open func() (io.ReadCloser, error), dir string, paths []string) (map[string][]byte, error) {
	wanted := map[string]string{}
	for _, p := range paths {
		wanted[path.Join(dir, path.Clean(p))] = p
	}
	from, err := open()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	found, total := map[string][]byte{}, int64(0)
	for f, err := range archive.Files(from) {
		if err != nil {
			return nil, err
		}
		p, is := wanted[f.Path]
		if !is {
			continue
		}
		if total += f.Size; total > maxFile {
			return nil, fmt.Errorf("%s: the files have more than %s", text.Line(f.Path, 200), text.Size(maxFile))
		}
		if found[p], err = io.ReadAll(f.Reader); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Merge merges values as Flux does: of maps each member, of all else the last one counts.
func Merge(files ...[]byte) ([]byte, error) {
	merged := map[string]any{}
	for _, data := range files {
		var values map[string]any
		err := yaml.Unmarshal(data, &values, func(d *json.Decoder) *json.Decoder {
			d.UseNumber()
			return d
		})
		if err != nil {
			return nil, err
		}
		merged = mergeMaps(merged, values)
	}
	return yaml.Marshal(merged)
}

func mergeMaps(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for name, value := range b {
		below, isMap := value.(map[string]any)
		if before, is := out[name].(map[string]any); is && isMap {
			value = mergeMaps(before, below)
		}
		out[name] = value
	}
	return out
}
