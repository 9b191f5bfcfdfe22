package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// pgpMaker signs with a key or subkey of OpenPGP.
type pgpMaker struct {
	owner   *pgpOwner
	key     *pgpKey
	private crypto.Signer
}

// parseSigningPGP reads the one key of a block, and takes the part of it that gpg would
// sign with: the newest of its subkeys that may sign and whose secret is there, else the
// key itself.
func parseSigningPGP(data, passphrase []byte, now time.Time) (*SigningKey, error) {
	body, rest, err := unarmor(data, "PGP PRIVATE KEY BLOCK")
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("something follows the private key; " + oneKey)
	}
	o, secrets, err := readSecrets(body)
	if err != nil {
		return nil, err
	}
	chosen, err := o.signing(secrets, now)
	if err != nil {
		return nil, err
	}
	m := &pgpMaker{owner: o, key: chosen.of}
	if m.private, err = chosen.open(passphrase); err != nil {
		return nil, err
	}
	k := &SigningKey{method: GPG, key: strings.ToUpper(hex.EncodeToString(o.key.fingerprint[:])), expires: o.until(m.key, now), maker: m}
	if m.key != o.key {
		k.part = m.key.name()
	}
	return k, nil
}

const oneKey = "a file with one key alone is wanted: gpg --armor --export-secret-keys FINGERPRINT"

// readSecrets reads a block of private keys: what is public of it, and the secret parts
// in order.
func readSecrets(body []byte) (*pgpOwner, []pgpSecret, error) {
	var ring ringReader
	var secrets []pgpSecret
	for len(body) > 0 {
		p, rest, err := nextPacket(body)
		if err != nil {
			return nil, nil, err
		}
		body = rest
		var secret []byte
		if p.tag == tagSecretKey || p.tag == tagSecretSubkey {
			if p.tag == tagSecretKey && ring.owner != nil {
				return nil, nil, errors.New("there are several keys in it; " + oneKey)
			}
			if p.body, secret, err = splitSecret(p.body); err != nil {
				return nil, nil, err
			}
			p.tag = map[int]int{tagSecretKey: tagPublicKey, tagSecretSubkey: tagPublicSubkey}[p.tag]
		} else if p.tag == tagPublicKey {
			return nil, nil, errors.New("there is a public key in it; " + oneKey)
		}
		if err := ring.packet(p); err != nil {
			return nil, nil, err
		}
		switch {
		case secret == nil:
		case ring.sub != nil:
			secrets = append(secrets, pgpSecret{ring.sub.key, secret})
		default:
			secrets = append(secrets, pgpSecret{ring.owner.key, secret})
		}
	}
	if ring.owner == nil {
		return nil, nil, errors.New("there is no key in it")
	}
	return ring.owner, secrets, nil
}

// signing is the part of a key that signs.
func (o *pgpOwner) signing(secrets []pgpSecret, now time.Time) (*pgpSecret, error) {
	var best *pgpSecret
	var why error // of the part that says more than "not for signing"
	for i := range secrets {
		s := &secrets[i]
		e := o.usable(s.of, now, now)
		if e == nil && s.of.why != nil {
			e = refuse(s.of.why.Kind, "is signed by %s, which %w", s.of.name(), s.of.why.Err)
		}
		away := s.away()
		switch {
		case e != nil && (why == nil || e.Kind != Unusable):
			why = s.of.cannot(e)
		case e != nil:
		case away != "":
			why = fmt.Errorf("the private part of %s, which would sign, is %s: %s", s.of.name(), away, oneKey)
		case best == nil, best.of == o.key, s.of != o.key && s.of.created.After(best.of.created):
			best = s
		}
	}
	if best == nil {
		return nil, why
	}
	return best, nil
}

// cannot says why k does not sign, and what to do.
func (k *pgpKey) cannot(e *Error) error {
	next := "use another key"
	switch e.Kind {
	case TooEarly:
		return fmt.Errorf("it cannot sign: %s was made at %s, which is later than the time now: set the clock right", k.name(), k.created.UTC().Format(time.RFC3339))
	case Expired:
		next = "extend it (gpg --quick-set-expire) and export it anew, or use another key"
	case Unusable:
		next = "add a subkey for signing (gpg --quick-add-key FINGERPRINT ed25519 sign) and export it anew"
	}
	return fmt.Errorf("it cannot sign: %w: %s", ofKey(e), next)
}

// sign makes a signature of version 4. Source: RFC 9580, section 5.2.3.
func (m *pgpMaker) sign(text []byte, made time.Time) ([]byte, error) {
	if e := m.owner.usable(m.key, made, made); e != nil {
		return nil, m.key.cannot(e)
	}
	const hash = 10 // SHA-512, with keys of every kind
	hashed := append([]byte{22, subFingerprint, 4}, m.key.fingerprint[:]...)
	hashed = binary.BigEndian.AppendUint32(append(hashed, 5, subCreated), uint32(made.Unix()))
	signed := binary.BigEndian.AppendUint16([]byte{4, sigBinary, m.key.algo, hash}, uint16(len(hashed)))
	signed = append(signed, hashed...)
	sum := hashes[hash].New()
	sum.Write(text)
	sum.Write(signed)
	sum.Write(binary.BigEndian.AppendUint32([]byte{4, 0xff}, uint32(len(signed))))
	digest := sum.Sum(nil)

	issuer := binary.BigEndian.AppendUint64([]byte{9, subIssuer}, m.key.id())
	body := append(binary.BigEndian.AppendUint16(signed, uint16(len(issuer))), issuer...)
	body = append(body, digest[:2]...)
	numbers, err := m.numbers(digest, hashes[hash])
	if err != nil {
		return nil, errMade
	}
	body = append(body, numbers...)
	s, err := readSignature(body)
	if err != nil || s.madeBy(m.key, false, text) != nil {
		return nil, errMade
	}
	packet := append(binary.BigEndian.AppendUint32([]byte{0xc0 | tagSignature, 255}, uint32(len(body))), body...)
	return rearm("PGP SIGNATURE", base64.StdEncoding.EncodeToString(packet), 64, "\n", "="+base64.StdEncoding.EncodeToString(crc24(packet))+"\n"), nil
}

// numbers are what a key makes of a digest.
func (m *pgpMaker) numbers(digest []byte, h crypto.Hash) ([]byte, error) {
	switch k := m.private.(type) {
	case *rsa.PrivateKey:
		n, err := rsa.SignPKCS1v15(nil, k, h, digest)
		return numberOf(n), err
	case *ecdsa.PrivateKey:
		der, err := k.Sign(nil, digest, h) // without a source of randomness it takes that of RFC 6979
		if err != nil {
			return nil, err
		}
		var both struct{ R, S *big.Int }
		if _, err := asn1.Unmarshal(der, &both); err != nil {
			return nil, err
		}
		return append(numberOf(both.R.Bytes()), numberOf(both.S.Bytes())...), nil
	case ed25519.PrivateKey:
		both := ed25519.Sign(k, digest)
		if m.key.algo == algoEd25519 {
			return both, nil
		}
		return append(numberOf(both[:32]), numberOf(both[32:])...), nil
	}
	return nil, errMade
}

// numberOf writes a multiprecision integer.
func numberOf(n []byte) []byte {
	i := new(big.Int).SetBytes(n)
	return append(binary.BigEndian.AppendUint16(nil, uint16(i.BitLen())), i.Bytes()...)
}

// crc24 is the checksum of an armor, which older readers insist on. Source: RFC 4880,
// section 6.1.
func crc24(data []byte) []byte {
	sum := uint32(0xb704ce)
	for _, b := range data {
		sum ^= uint32(b) << 16
		for range 8 {
			if sum <<= 1; sum&0x1000000 != 0 {
				sum ^= 0x1864cfb
			}
		}
	}
	return []byte{byte(sum >> 16), byte(sum >> 8), byte(sum)}
}
