package signature

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
)

// pgpSecret is the secret part of a key or subkey, as it is in its packet.
type pgpSecret struct {
	of   *pgpKey
	data []byte
}

// How a secret part is protected. Source: RFC 9580, section 3.7; s2kGNU of GnuPG's
// doc/DETAILS.
const (
	secretPlain = 0
	secretAEAD  = 253
	secretSHA1  = 254
	s2kSalted   = 1
	s2kIterated = 3
	s2kGNU      = 101
	gnuDummy    = 1
	gnuCard     = 2
)

// s2kHashes are those of which a key is made of a passphrase.
var s2kHashes = map[byte]crypto.Hash{2: crypto.SHA1, 8: crypto.SHA256, 9: crypto.SHA384, 10: crypto.SHA512, 11: crypto.SHA224}

// aesSizes are lengths of keys by the numbers of ciphers. Unit: bytes.
var aesSizes = map[byte]int{7: 16, 8: 24, 9: 32}

// splitSecret takes the packet of a secret key apart: what a packet of its public key
// holds, and the rest.
func splitSecret(body []byte) (public, secret []byte, err error) {
	r := reader{data: body}
	version := r.byte()
	r.uint32()
	algo := r.byte()
	switch {
	case r.short:
		return nil, nil, errShort
	case version != 4:
		return nil, nil, fmt.Errorf("a key of version %d of OpenPGP is in it; only those of version 4 are supported", version)
	}
	numbers := 0
	switch algo {
	case algoRSA, algoRSAEncrypt, algoRSASign:
		numbers = 2
	case algoElgamal:
		numbers = 3
	case algoDSA:
		numbers = 4
	case algoECDSA, algoEdDSA, algoECDH:
		r.take(uint64(r.byte()))
		numbers = 1
	case algoX25519, algoEd25519:
		r.take(32)
	case algoX448:
		r.take(56)
	case algoEd448:
		r.take(57)
	default:
		return nil, nil, fmt.Errorf("a key of algorithm %d of OpenPGP is in it, which is not supported: export the part that signs alone", algo)
	}
	for range numbers {
		r.number()
	}
	if algo == algoECDH {
		r.take(uint64(r.byte()))
	}
	if r.short {
		return nil, nil, errShort
	}
	return body[:len(body)-len(r.data)], r.data, nil
}

// away says where the secret is, when it is not in the packet; "" = it is.
func (s *pgpSecret) away() string {
	r := reader{data: s.data}
	if r.byte() == secretPlain {
		return ""
	}
	r.byte() // the cipher
	if r.byte() != s2kGNU {
		return ""
	}
	r.byte() // a hash
	if mark := r.take(3); !bytes.Equal(mark, []byte("GNU")) {
		return "at a place that is not known here"
	}
	switch r.byte() {
	case gnuDummy:
		return "not in the file (it was left out when it was exported, gnu-dummy)"
	case gnuCard:
		return "on a card"
	}
	return "at a place that is not known here"
}

// open makes the private key.
func (s *pgpSecret) open(passphrase []byte) (crypto.Signer, error) {
	r := reader{data: s.data}
	var plain []byte
	switch usage := r.byte(); usage {
	case secretPlain:
		if len(r.data) < 2 {
			return nil, errShort
		}
		plain = r.data[:len(r.data)-2]
		sum := uint16(0)
		for _, b := range plain {
			sum += uint16(b)
		}
		if sum != binary.BigEndian.Uint16(r.data[len(plain):]) {
			return nil, errors.New("its private part is damaged: export it anew")
		}
	case secretSHA1:
		var err error
		if plain, err = unlock(&r, passphrase); err != nil {
			return nil, err
		}
	case secretAEAD:
		return nil, errors.New("its private part is protected with AEAD, which is not supported: export it with gpg")
	default:
		return nil, fmt.Errorf("its private part is protected in an old way (%d), which is not supported: import it into gpg 2 and export it anew", usage)
	}
	return s.private(plain)
}

// unlock decrypts a secret part by a passphrase.
func unlock(r *reader, passphrase []byte) ([]byte, error) {
	cipher, mode, hash := r.byte(), r.byte(), r.byte()
	salt := r.take(8)
	count := 0
	if mode == s2kIterated {
		c := int(r.byte())
		count = (16 + c&15) << (c>>4 + 6) // at most 62 MiB
	}
	iv := r.take(aes.BlockSize)
	size, known := aesSizes[cipher]
	h := s2kHashes[hash]
	switch {
	case mode != s2kSalted && mode != s2kIterated:
		return nil, fmt.Errorf("its passphrase is used in a way (S2K %d) that is not supported: import it into gpg 2 and export it anew", mode)
	case !known:
		return nil, fmt.Errorf("its private part is encrypted with cipher %d, which is not supported (AES is): import it into gpg 2 and export it anew", cipher)
	case h == 0:
		return nil, fmt.Errorf("its passphrase is hashed with %d, which is not supported: import it into gpg 2 and export it anew", hash)
	case r.short || len(r.data) < sha1.Size:
		return nil, errShort
	case len(passphrase) == 0:
		return nil, errLocked
	}
	block, err := aes.NewCipher(stretch(h, append(salt, passphrase...), count, size))
	if err != nil {
		return nil, err
	}
	// CFB by hand: that of crypto/cipher is on its way out.
	plain, mask := make([]byte, len(r.data)), make([]byte, aes.BlockSize)
	for i, last := 0, iv; i < len(plain); i += aes.BlockSize {
		block.Encrypt(mask, last)
		part := r.data[i:min(i+aes.BlockSize, len(plain))]
		for j, b := range part {
			plain[i+j] = b ^ mask[j]
		}
		last = part
	}
	at := len(plain) - sha1.Size
	if sum := sha1.Sum(plain[:at]); !bytes.Equal(sum[:], plain[at:]) {
		return nil, errPassphrase
	}
	return plain[:at], nil
}

// stretch makes a key of a salted passphrase, of which count bytes are hashed, and all
// of it at least once. Longer keys take more hashes, each with one more zero before it.
func stretch(h crypto.Hash, salted []byte, count, size int) (key []byte) {
	count = max(count, len(salted))
	chunk := bytes.Repeat(salted, 1+8192/len(salted))
	chunk = chunk[:len(chunk)/len(salted)*len(salted)]
	for zeros := 0; len(key) < size; zeros++ {
		sum := h.New()
		sum.Write(make([]byte, zeros))
		for left := count; left > 0; left -= len(chunk) {
			sum.Write(chunk[:min(left, len(chunk))])
		}
		key = sum.Sum(key)
	}
	return key[:size]
}

// private makes a key of the numbers of its secret part.
func (s *pgpSecret) private(plain []byte) (crypto.Signer, error) {
	r := reader{data: plain}
	number := func(size int) []byte { // with zeros before it
		n := r.number()
		if len(n) > size {
			r.short = true
			return make([]byte, size)
		}
		return append(make([]byte, size-len(n)), n...)
	}
	var private crypto.Signer
	var err error
	switch public := s.of.public.(type) {
	case *rsa.PublicKey:
		size := public.Size()
		d, p, q := new(big.Int).SetBytes(number(size)), new(big.Int).SetBytes(number(size)), new(big.Int).SetBytes(number(size))
		r.number() // of p and q, made anew
		k := &rsa.PrivateKey{PublicKey: *public, D: d, Primes: []*big.Int{p, q}}
		if err = k.Validate(); err == nil {
			k.Precompute()
			private = k
		}
	case *ecdsa.PublicKey:
		var k *ecdsa.PrivateKey
		if k, err = ecdsa.ParseRawPrivateKey(public.Curve, number((public.Curve.Params().N.BitLen()+7)/8)); err == nil && k.PublicKey.Equal(public) {
			private = k
		}
	case ed25519.PublicKey:
		seed := make([]byte, ed25519.SeedSize)
		if s.of.algo == algoEd25519 {
			copy(seed, r.take(ed25519.SeedSize))
		} else {
			seed = number(ed25519.SeedSize)
		}
		if k := ed25519.NewKeyFromSeed(seed); public.Equal(k.Public()) {
			private = k
		}
	}
	if err != nil || private == nil || r.short || len(r.data) > 0 {
		return nil, errMade
	}
	return private, nil
}
