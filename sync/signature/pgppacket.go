package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"
	"time"
)

// Packets of OpenPGP. Source: RFC 9580, RFC 4880 for what it still allows.
const (
	tagSignature     = 2
	tagSecretKey     = 5
	tagPublicKey     = 6
	tagSecretSubkey  = 7
	tagUserID        = 13
	tagPublicSubkey  = 14
	tagUserAttribute = 17
)

// Algorithms of keys.
const (
	algoRSA         = 1
	algoRSAEncrypt  = 2
	algoRSASign     = 3
	algoElgamal     = 16
	algoDSA         = 17
	algoECDH        = 18
	algoECDSA       = 19
	algoEdDSA       = 22
	algoX25519      = 25
	algoX448        = 26
	algoEd25519     = 27
	algoEd448       = 28
	smallestRSA     = 2048 // bits
	largestRSA      = 8192
	largestExponent = 1 << 24
)

var errShort = errors.New("it ends in the middle of a packet")

// packet is one packet of OpenPGP.
type packet struct {
	tag  int
	body []byte
}

// nextPacket takes the first packet off data.
func nextPacket(data []byte) (p packet, rest []byte, err error) {
	r := reader{data: data}
	head := r.byte()
	if head&0x80 == 0 {
		return p, nil, errors.New("it is no packet of OpenPGP")
	}
	var size uint64
	if head&0x40 == 0 { // the old form
		p.tag = int(head >> 2 & 15)
		switch head & 3 {
		case 0:
			size = uint64(r.byte())
		case 1:
			size = uint64(r.uint16())
		case 2:
			size = uint64(r.uint32())
		default:
			return p, nil, errors.New("a packet does not say how long it is")
		}
	} else {
		p.tag = int(head & 63)
		var partial bool
		if size, partial = r.length(); partial {
			return p, nil, errors.New("a packet does not say how long it is")
		}
	}
	p.body = r.take(size)
	if r.short {
		return p, nil, errShort
	}
	return p, r.data, nil
}

// reader takes numbers off a text. Beyond its end there are zeros, and short is set.
type reader struct {
	data  []byte
	short bool
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.short = true
		r.data = nil
		return nil
	}
	taken := r.data[:n:n]
	r.data = r.data[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// length is that of a packet of the new form, or of a subpacket, which has no
// partial ones: what means one there is a length of two octets.
func (r *reader) length() (n uint64, partial bool) {
	switch first := r.byte(); {
	case first < 192:
		return uint64(first), false
	case first < 224:
		return uint64(first-192)<<8 + uint64(r.byte()) + 192, false
	case first == 255:
		return uint64(r.uint32()), false
	default:
		return 0, true
	}
}

// number is a multiprecision integer.
func (r *reader) number() []byte {
	bits := uint64(r.uint16())
	return r.take((bits + 7) / 8)
}

// pgpKey is a key or subkey: what its own packet says.
type pgpKey struct {
	body        []byte
	algo        byte
	created     time.Time
	fingerprint [20]byte
	public      any // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey; nil = none that signs here
	why         *Error
}

// id is the number by which signatures name a key.
func (k *pgpKey) id() uint64 { return binary.BigEndian.Uint64(k.fingerprint[12:]) }

// is says that two packets hold one key.
func (k *pgpKey) is(other *pgpKey) bool {
	return k.fingerprint == other.fingerprint && bytes.Equal(k.body, other.body)
}

func (k *pgpKey) name() string { return keyName(k.id()) }

func keyName(id uint64) string {
	return "0x" + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, id))
}

// curves by their object identifiers.
var curves = map[string]elliptic.Curve{
	"2a8648ce3d030107": elliptic.P256(),
	"2b81040022":       elliptic.P384(),
	"2b81040023":       elliptic.P521(),
}

const curveEd25519 = "2b06010401da470f01"

// readKey reads a key of version 4. One whose algorithm is not known can be read:
// it signs nothing.
func readKey(body []byte) (*pgpKey, error) {
	r := reader{data: body}
	if version := r.byte(); version != 4 {
		return nil, refuse(Unsupported, "a key of version %d of OpenPGP is in it; only those of version 4 are supported", version)
	}
	k := &pgpKey{body: body, created: time.Unix(int64(r.uint32()), 0), algo: r.byte()}
	if r.short || len(body) > 0xffff {
		return nil, errShort
	}
	sum := sha1.New() // the name of a key, not a proof
	sum.Write(k.signed())
	sum.Sum(k.fingerprint[:0])
	switch k.algo {
	case algoRSA, algoRSASign:
		k.readRSA(&r)
	case algoECDSA:
		k.readECDSA(&r)
	case algoEdDSA:
		oid, point := r.take(uint64(r.byte())), r.number()
		if hex.EncodeToString(oid) != curveEd25519 || len(point) != 33 || point[0] != 0x40 {
			k.why = refuse(Unsupported, "is on a curve that is not supported")
			break
		}
		k.public = ed25519.PublicKey(point[1:])
	case algoEd25519:
		if point := r.take(ed25519.PublicKeySize); point != nil {
			k.public = ed25519.PublicKey(point)
		}
	case algoDSA:
		k.why = refuse(Weak, "is of DSA, which is too weak")
	case algoRSAEncrypt, algoElgamal, algoECDH, algoX25519, algoX448:
		k.why = refuse(Unusable, "is for encryption only")
	default:
		k.why = refuse(Unsupported, "is of algorithm %d, which is not supported", k.algo)
	}
	if r.short {
		return nil, errShort
	}
	return k, nil
}

func (k *pgpKey) readRSA(r *reader) {
	n, e := new(big.Int).SetBytes(r.number()), new(big.Int).SetBytes(r.number())
	switch bits := n.BitLen(); {
	case bits < smallestRSA:
		k.why = refuse(Weak, "is of RSA with %d bits, which is too weak", bits)
	case bits > largestRSA:
		k.why = refuse(Unsupported, "is of RSA with %d bits, which is more than %d", bits, largestRSA)
	case !e.IsInt64() || e.Int64() < 3 || e.Int64() >= largestExponent || e.Bit(0) == 0 || n.Bit(0) == 0:
		k.why = refuse(Unsupported, "is of RSA with numbers that are not supported")
	default:
		k.public = &rsa.PublicKey{N: n, E: int(e.Int64())}
	}
}

func (k *pgpKey) readECDSA(r *reader) {
	oid, point := r.take(uint64(r.byte())), r.number()
	curve, known := curves[hex.EncodeToString(oid)]
	if !known {
		k.why = refuse(Unsupported, "is on a curve that is not supported")
		return
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		k.why = refuse(Malformed, "is not a point of its curve")
		return
	}
	k.public = public
}

// effort is how long verifying by the key takes, against one of RSA 4096.
func (k *pgpKey) effort() int {
	if public, ok := k.public.(*rsa.PublicKey); ok && public.Size() > 4096/8 {
		return 4
	}
	return 1
}

// signed is a key as it is signed.
func (k *pgpKey) signed() []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x99}, uint16(len(k.body))), k.body...)
}

// signedID is the name of an owner as it is signed.
func signedID(tag int, body []byte) []byte {
	mark := byte(0xb4)
	if tag == tagUserAttribute {
		mark = 0xd1
	}
	return append(binary.BigEndian.AppendUint32([]byte{mark}, uint32(len(body))), body...)
}

// mailOf is the mail address in the name of an owner, such as "Ada <ada@example.com>".
func mailOf(id []byte) string {
	if open := bytes.LastIndexByte(id, '<'); open >= 0 && bytes.HasSuffix(id, []byte(">")) {
		id = id[open+1 : len(id)-1]
	}
	return string(id)
}
