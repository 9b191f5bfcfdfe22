package helmchart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"limpet/sync/source/archive"
	"limpet/sync/source/controller"
	"limpet/sync/source/helm"
)

const (
	// packaged begins the message of a chart that was not taken as it is.
	packaged = "packaged"
	// metaPublished is a member of the metadata of an artifact: the digest of the bytes that were
	// published, where an index has one.
	metaPublished = "limpet/chart-digest"
)

// Pack returns the chart: as it was published, or packed again.
func (u *upstream) Pack(ctx context.Context) (controller.Content, error) {
	c, file := u.brought.chart, u.brought.file
	values, err := u.values()
	if err != nil {
		return controller.Content{}, noValues.of(err)
	}
	u.packed = true
	again := file == "" || values != nil || u.revision != c.Version
	content := controller.Content{
		Path:    strings.Join([]string{"helmchart", u.spec.namespace, u.spec.name, c.Name + "-" + u.revision + ".tgz"}, "/"),
		Subject: fmt.Sprintf("pulled '%s' chart with version '%s'", c.Name, u.revision),
	}
	if again {
		content.Subject = fmt.Sprintf("%s '%s' chart with version '%s'", packaged, c.Name, u.revision)
		content.Spent = file
		content.Write = func(w io.Writer) (archive.Digests, error) {
			d, err := c.Write(ctx, w, u.revision, values)
			if err == nil && d.Size > helm.MaxChart {
				err = tooLarge(c.Name)
			}
			if err != nil {
				return d, noPackage.of(err)
			}
			return d, nil
		}
	} else {
		content.File, content.Digests = file, u.brought.made
	}
	if len(u.used) > 0 {
		content.Subject += fmt.Sprintf(" and merged values files %v", u.used)
	}
	if u.brought.digest != "" {
		content.Metadata = map[string]string{metaPublished: u.brought.digest}
	}
	return content, nil
}

func tooLarge(name string) error {
	return fmt.Errorf("size of chart '%s' exceeds '%d' bytes limit", name, helm.MaxChart)
}

// values returns the values of the spec, nil for those of the chart.
func (u *upstream) values() ([]byte, error) {
	if !u.merges() {
		return nil, nil
	}
	found, err := u.brought.values(u.spec.ValuesFiles)
	if err != nil {
		return nil, err
	}
	var files [][]byte
	for _, name := range u.spec.ValuesFiles {
		data, is := found[name]
		switch {
		case is:
			files, u.used = append(files, data), append(u.used, name)
		case !u.spec.IgnoreMissingValuesFiles:
			return nil, fmt.Errorf("no values file found at path '%s'", name)
		}
	}
	switch {
	case len(files) == 0:
		return nil, nil
	case !u.brought.chart.Valued:
		return nil, errors.New("failed to locate values file: values.yaml")
	}
	return helm.Merge(files...)
}
