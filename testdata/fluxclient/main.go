// Command fluxclient takes an artifact as the controllers of Flux do: it fetches it, verifies the digest, and unpacks it. A
// chart is loaded instead, with the loader that helm-controller has.
package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fluxcd/pkg/http/fetch"
	"github.com/fluxcd/pkg/tar"
	"helm.sh/helm/v3/pkg/chart/loader"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: fluxclient URL DIGEST DIR")
		os.Exit(2)
	}
	if err := take(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func take(url, digest, dir string) error {
	options := []fetch.Option{fetch.WithRetries(1), fetch.WithMaxDownloadSize(tar.UnlimitedUntarSize)}
	chart := strings.HasSuffix(url, ".tgz")
	if !chart {
		options = append(options, fetch.WithUntar(tar.WithMaxUntarSize(tar.UnlimitedUntarSize)))
	}
	if err := fetch.New(options...).FetchWithContext(context.Background(), url, digest, dir); err != nil || !chart {
		return err
	}
	c, err := loader.LoadFile(filepath.Join(dir, path.Base(url)))
	if err != nil {
		return err
	}
	return c.Validate()
}
