package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	_ "crypto/sha1"   // of keys: they were signed long ago
	_ "crypto/sha256" // of all else
	_ "crypto/sha512"
	"errors"
	"math/big"
	"time"
)

// Types of signatures.
const (
	sigBinary     = 0x00
	sigText       = 0x01
	sigGeneric    = 0x10 // to sigPositive: of a key and the name of its owner
	sigPositive   = 0x13
	sigSubkey     = 0x18
	sigPrimary    = 0x19 // within sigSubkey: the subkey agrees
	sigDirect     = 0x1f
	revokesKey    = 0x20
	revokesSubkey = 0x28
	revokesID     = 0x30
)

// Subpackets.
const (
	subCreated     = 2
	subExpires     = 3
	subKeyExpires  = 9
	subIssuer      = 16
	subFlags       = 27
	subEmbedded    = 32
	subFingerprint = 33
)

// knownSubpackets may be marked as critical: they change nothing of what is read
// here, or are read.
var knownSubpackets = map[byte]bool{subCreated: true, subExpires: true, 7: true, subKeyExpires: true, 11: true, subIssuer: true, 21: true, 22: true,
	23: true, 24: true, 25: true, 26: true, subFlags: true, 28: true, 29: true, 30: true, subEmbedded: true, subFingerprint: true, 34: true}

const maySign = 0x02 // of the flags of a key

// hashes by their numbers.
var hashes = map[byte]crypto.Hash{1: crypto.MD5, 2: crypto.SHA1, 3: crypto.RIPEMD160, 8: crypto.SHA256, 9: crypto.SHA384, 10: crypto.SHA512, 11: crypto.SHA224}

// pgpSignature is a signature packet.
type pgpSignature struct {
	kind, algo, hash byte
	trailer          []byte // what is hashed after the text
	created          time.Time
	expires          time.Duration // after created; 0 = never
	keyExpires       time.Duration // after the creation of the key; 0 = never
	flags            byte
	flagged          bool // it has flags
	issuer           uint64
	named            bool // it has an issuer
	embedded         []byte
	unknown          bool // it has a critical subpacket that is not known
	numbers          []byte
}

func readSignature(body []byte) (*pgpSignature, error) {
	r := reader{data: body}
	if version := r.byte(); version != 4 {
		return nil, refuse(Unsupported, "has a signature of version %d of OpenPGP; only those of version 4 are supported", version)
	}
	s := &pgpSignature{kind: r.byte(), algo: r.byte(), hash: r.byte()}
	size := r.uint16()
	hashed := r.take(uint64(size))
	if r.short {
		return nil, errShort
	}
	signed := body[:6+int(size)]
	n := len(signed)
	s.trailer = append(append([]byte{}, signed...), 4, 0xff, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	unhashed := r.take(uint64(r.uint16()))
	r.uint16() // the first bits of the hash: a hint
	s.numbers = r.data
	if r.short {
		return nil, errShort
	}
	if err := s.subpackets(unhashed, false); err != nil {
		return nil, err
	}
	if err := s.subpackets(hashed, true); err != nil {
		return nil, err
	}
	if s.created.IsZero() {
		return nil, errors.New("a signature does not say when it was made")
	}
	return s, nil
}

// subpackets reads an area of subpackets. Of what is not signed only hints count:
// who may have signed, and a signature that stands for itself.
func (s *pgpSignature) subpackets(area []byte, signed bool) error {
	r := reader{data: area}
	for len(r.data) > 0 {
		size, wide := subLength(&r)
		body := r.take(size)
		if r.short || wide || len(body) == 0 {
			return errShort
		}
		kind, critical := body[0]&0x7f, body[0]&0x80 != 0
		b := reader{data: body[1:]}
		switch {
		case kind == subIssuer && len(b.data) == 8:
			s.issuer, s.named = uint64(b.uint32())<<32|uint64(b.uint32()), true
		case kind == subFingerprint && len(b.data) == 21 && b.data[0] == 4:
			b.take(13)
			s.issuer, s.named = uint64(b.uint32())<<32|uint64(b.uint32()), true
		case kind == subEmbedded:
			s.embedded = b.data
		case !signed:
		case kind == subCreated && len(b.data) == 4:
			s.created = time.Unix(int64(b.uint32()), 0)
		case kind == subExpires && len(b.data) == 4:
			s.expires = time.Duration(b.uint32()) * time.Second
		case kind == subKeyExpires && len(b.data) == 4:
			s.keyExpires = time.Duration(b.uint32()) * time.Second
		case kind == subFlags && len(b.data) > 0:
			s.flags, s.flagged = b.data[0], true
		case kind == subCreated || kind == subExpires || kind == subKeyExpires || kind == subFlags:
			return errors.New("a part of a signature has the wrong length")
		case critical && !knownSubpackets[kind]:
			s.unknown = true
		}
	}
	return nil
}

// subLength is the length of a subpacket.
func subLength(r *reader) (n uint64, wide bool) {
	switch first := r.byte(); {
	case first < 192:
		return uint64(first), false
	case first < 255:
		return uint64(first-192)<<8 + uint64(r.byte()) + 192, false
	}
	return uint64(r.uint32()), false
}

// endedBy says that the signature is not good any more.
func (s *pgpSignature) endedBy(now time.Time) bool {
	return s.expires > 0 && !now.Before(s.created.Add(s.expires))
}

// madeBy says that k has signed the parts, one after the other. weak allows SHA-1,
// which holds for keys that a person has chosen to trust.
func (s *pgpSignature) madeBy(k *pgpKey, weak bool, parts ...[]byte) *Error {
	h, known := hashes[s.hash]
	switch {
	case h == crypto.MD5 || h == crypto.RIPEMD160 || h == crypto.SHA1 && !weak:
		return refuse(Weak, "has a signature with %s, which is too weak", h)
	case !known:
		return refuse(Unsupported, "has a signature with hash %d, which is not supported", s.hash)
	case k.why != nil:
		return refuse(k.why.Kind, "is signed by %s, which %w", k.name(), k.why.Err)
	case s.algo != k.algo && !(s.algo == algoRSASign && k.algo == algoRSA):
		return refuse(Bad, "has a signature of another kind than its key %s makes", k.name())
	}
	sum := h.New()
	for _, part := range parts {
		sum.Write(part)
	}
	sum.Write(s.trailer)
	digest := sum.Sum(nil)
	r := reader{data: s.numbers}
	good := false
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		n := r.number()
		if size := public.Size(); len(n) <= size {
			n = append(make([]byte, size-len(n)), n...)
			good = rsa.VerifyPKCS1v15(public, h, digest, n) == nil
		}
	case *ecdsa.PublicKey:
		x, y := new(big.Int).SetBytes(r.number()), new(big.Int).SetBytes(r.number())
		good = ecdsa.Verify(public, digest, x, y)
	case ed25519.PublicKey:
		var both [ed25519.SignatureSize]byte
		if k.algo == algoEd25519 {
			good = copy(both[:], r.take(64)) == 64
		} else {
			a, b := r.number(), r.number()
			if good = len(a) <= 32 && len(b) <= 32; good {
				copy(both[32-len(a):], a)
				copy(both[64-len(b):], b)
			}
		}
		good = good && ed25519.Verify(public, digest, both[:])
	}
	if !good || r.short || len(r.data) > 0 {
		return refuse(Bad, "has a signature that its key %s has not made of it", k.name())
	}
	return nil
}
