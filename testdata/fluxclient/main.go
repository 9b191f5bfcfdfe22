// Command fluxclient takes an artifact as the controllers of Flux do: it fetches it, verifies the digest, and unpacks it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fluxcd/pkg/http/fetch"
	"github.com/fluxcd/pkg/tar"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: fluxclient URL DIGEST DIR")
		os.Exit(2)
	}
	f := fetch.New(fetch.WithRetries(1), fetch.WithMaxDownloadSize(tar.UnlimitedUntarSize),
		fetch.WithUntar(tar.WithMaxUntarSize(tar.UnlimitedUntarSize)))
	if err := f.FetchWithContext(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
