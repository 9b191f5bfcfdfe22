package gittest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
)

// Pack makes a pack of raw entries, with the right count and checksum.
func Pack(entries ...[]byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(entries)))
	out = append(out, bytes.Join(entries, nil)...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

func deflated(content []byte) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write(content)
	z.Close()
	return b.Bytes()
}

// Entry is an entry of a pack; size is what its header claims.
func Entry[K ~int8](k K, size int, extra, content []byte) []byte {
	var b bytes.Buffer
	head := []byte{byte(k)<<4 | byte(size&15)}
	for left := size >> 4; left > 0; left >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(left&0x7f))
	}
	b.Write(head)
	b.Write(extra)
	b.Write(deflated(content))
	return b.Bytes()
}

// Zeros is n zero bytes, deflated.
func Zeros(n int) []byte {
	var b bytes.Buffer
	z, _ := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	chunk := make([]byte, 1<<20)
	for ; n > 0; n -= len(chunk) {
		z.Write(chunk[:min(n, len(chunk))])
	}
	z.Close()
	return b.Bytes()
}

// EntryOf is an entry whose stream is given.
func EntryOf[K ~int8](k K, size int, extra, stream []byte) []byte {
	e := Entry(k, size, extra, nil)
	return append(e[:len(e)-len(deflated(nil))], stream...)
}

// ServeRaw is a server whose only commit and whose packs are given.
func ServeRaw(id [20]byte, pack func(io.Writer)) *httptest.Server {
	commit := fmt.Sprintf("%x", id)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+
				pkt(commit+" HEAD\x00shallow ofs-delta symref=HEAD:refs/heads/main\n")+pkt(commit+" refs/heads/main\n")+"0000")
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		io.WriteString(w, pkt("shallow "+commit)+"0000"+pkt("NAK\n"))
		pack(w)
	}))
}
