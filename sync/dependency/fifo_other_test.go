//go:build !unix

package dependency

import "os"

// mkfifo makes a file where there are no pipes with names.
func mkfifo(path string) error { return os.WriteFile(path, nil, 0o600) }
