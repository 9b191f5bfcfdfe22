// Package bundle reads and writes bundles of Git: files with a pack, the refs that lead to its
// commits, and the commits that it builds on. What is read is not trusted: the header has limits,
// and the checksum at the end of the file has to fit, which that of a half-copied file does not.
package bundle

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// Header is the beginning of a bundle.
type Header struct {
	Refs  map[string]pack.ID // by full name, or HEAD
	Bases []pack.ID          // commits that its reader needs
	Ends  []pack.ID          // commits before the history that it has, which limpet does not need for its files; Git does
}

// endComment follows a commit of Ends. To Git it is a comment.
const endComment = "(the history before is left out)"

// Signatures of the versions. Version 3 adds capabilities.
const (
	v2 = "# v2 git bundle"
	v3 = "# v3 git bundle"
)

// Media is the type of a bundle over HTTP.
const Media = "application/x-git-bundle"

// The headers with which a limpet answers for a bundle.
const (
	HeaderRef      = "Limpet-Ref"      // full name
	HeaderCommit   = "Limpet-Commit"   // hash
	HeaderTag      = "Limpet-Tag"      // hash of the annotated tag, if the ref is one
	HeaderVerified = "Limpet-Verified" // true when it has verified the signature
	HeaderBehind   = "Limpet-Behind"   // the time since which it cannot read its Git host
)

// LineBytes is the buffer that a header is read with: no line may be longer.
const LineBytes = 64 << 10

// ReadHeader reads the header of a bundle, of at most limit bytes. The pack follows in r. The error
// of a context that has ended is its cause.
func ReadHeader(ctx context.Context, r *bufio.Reader, limit int64) (h Header, size int64, err error) {
	refs := map[string]pack.ID{}
	h, size, err = scan(ctx, r, limit, func(id pack.ID, name string) { refs[name] = id })
	h.Refs = refs
	return h, size, err
}

// scan reads a header and calls ref with each ref, of which it keeps none.
func scan(ctx context.Context, r *bufio.Reader, limit int64,
	ref func(pack.ID, string)) (h Header, size int64, err error) {
	version := ""
	for {
		if ctx.Err() != nil {
			return h, size, context.Cause(ctx)
		}
		line, err := r.ReadSlice('\n')
		if size += int64(len(line)); size > limit {
			return h, size, &giterr.TooLargeError{What: "header of the bundle", Size: size, Limit: limit}
		}
		if version == "" && err == nil {
			if version = string(line[:len(line)-1]); version == v2 || version == v3 {
				continue
			}
		}
		if version != v2 && version != v3 || err != nil {
			return h, size, damaged("it does not begin as a bundle of version 2 or 3")
		}
		switch text := string(line[:len(line)-1]); {
		case text == "":
			return h, size, nil
		case text[0] == '@' && version == v3:
			if text == "@object-format=sha256" {
				return h, size, giterr.SHA256
			}
			if text != "@object-format=sha1" {
				return h, size, unsupported(text)
			}
		case !h.parse(text, ref):
			return h, size, damaged("its header has a malformed line")
		}
	}
}

// parse reads the line of a ref or of a base.
func (h *Header) parse(line string, ref func(pack.ID, string)) bool {
	line, base := strings.CutPrefix(line, "-")
	hex, name, _ := strings.Cut(line, " ")
	id, ok := pack.ParseID(hex)
	switch {
	case !ok || !base && name == "":
		return false
	case base && name == endComment:
		h.Ends = append(h.Ends, id)
	case base:
		h.Bases = append(h.Bases, id)
	default:
		ref(id, name)
	}
	return true
}

func damaged(why string) *giterr.Error {
	return giterr.New(giterr.Corrupt, "damaged bundle: "+why, "copy it again")
}

// unsupported returns the refusal of a capability.
func unsupported(capability string) *giterr.Error {
	return giterr.Wrap(giterr.Refused, fmt.Errorf("the bundle has the capability %s, which is not supported", text.Line(capability[1:], 80)),
		"make one with: git bundle create --version=2, of a repository with sha1 and without filter")
}

// write writes the header.
func (h Header) write(w io.Writer) error {
	out := []byte(v2 + "\n")
	for _, id := range h.Bases {
		out = fmt.Appendf(out, "-%s\n", id)
	}
	for _, id := range h.Ends {
		out = fmt.Appendf(out, "-%s %s\n", id, endComment)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Refs)) {
		out = fmt.Appendf(out, "%s %s\n", h.Refs[name], name)
	}
	_, err := w.Write(append(out, '\n'))
	return err
}

// File describes a bundle whose checksum is right.
type File struct {
	Header // without Refs
	pack.Tips
	Heads []pack.ID // to which its refs lead, the first mostHeads
	Pack  int64     // offset of the pack
}

// mostHeads is how many commits and tags are kept of the refs of a bundle.
const mostHeads = 10_000

// Check reads a bundle: its header, its checksum, and the commits and tags at the beginning of its
// pack. The objects behind them are checked when the pack is installed.
func Check(ctx context.Context, f *os.File, l pack.Limits) (b File, err error) {
	info, err := f.Stat()
	if err != nil {
		return b, err
	}
	keep := func(id pack.ID, _ string) {
		if n := len(b.Heads); n == 0 || n < mostHeads && b.Heads[n-1] != id {
			b.Heads = append(b.Heads, id)
		}
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, info.Size()), LineBytes)
	if b.Header, b.Pack, err = scan(ctx, r, l.RefsBytes, keep); err != nil {
		return b, err
	}
	size := info.Size() - b.Pack
	if size > l.PackBytes {
		return b, &giterr.TooLargeError{What: "pack of the bundle", Size: size, Limit: l.PackBytes}
	}
	if ok, err := pack.Sealed(ctx, io.NewSectionReader(f, b.Pack, size)); err != nil || !ok {
		return b, cmp.Or(err, error(damaged("its checksum does not fit; it may be half copied")))
	}
	b.Tips, err = pack.ReadTips(ctx, io.NewSectionReader(f, b.Pack, size), l)
	return b, err
}

// Time returns the commit time of the newest commit, or when the file was written where that is not
// known.
func (b File) Time(written time.Time) time.Time {
	if b.Last.IsZero() {
		return written
	}
	return b.Last
}
