//go:build !unix

package auth

import "io/fs"

// checkPrivate accepts all: access lists guard the file in place of mode bits.
func checkPrivate(string, fs.FileInfo) error { return nil }

// checkOwned accepts all for the same reason.
func checkOwned(string, fs.FileInfo) error { return nil }
