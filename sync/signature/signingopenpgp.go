package signature

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgpecdsa "github.com/ProtonMail/go-crypto/openpgp/ecdsa"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const oneKey = "a file with one key alone is wanted: gpg --armor --export-secret-keys FINGERPRINT"

// curves are those of NIST.
var curves = map[packet.Curve]elliptic.Curve{
	packet.CurveNistP256: elliptic.P256(),
	packet.CurveNistP384: elliptic.P384(),
	packet.CurveNistP521: elliptic.P521(),
}

func curveOf(key *packet.PublicKey) packet.Curve {
	curve, err := key.Curve()
	if err != nil {
		return ""
	}
	return curve
}

// parseSigningPGP parses the one key of a block, and chooses the part of it that gpg would sign
// with: the newest of its subkeys that may sign and whose private part is there, else the key
// itself.
func parseSigningPGP(data, passphrase []byte, now time.Time) (*SigningKey, error) {
	body, rest, err := unarmor(data, pgpPrivate)
	if err != nil {
		return nil, err
	}
	keys, parts, err := splitKeys(body)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, errors.New("something follows the private key; " + oneKey)
	case len(keys) != 1 || parts > maxKeys:
		return nil, errors.New("there are several keys in it or none; " + oneKey)
	}
	for _, p := range keys[0] {
		if err := checkSecret(p); err != nil {
			return nil, err
		}
	}
	key, err := newPGPKey(keys[0])
	if err != nil {
		return nil, err
	}
	part, err := key.signingPart(now)
	if err != nil {
		return nil, err
	}
	if err := open(part.PrivateKey, passphrase); err != nil {
		return nil, err
	}
	k := &SigningKey{method: GPG, key: key.fingerprint(), expires: key.expires(*part)}
	if part.PublicKey.KeyId != key.primary.KeyId {
		k.subkey = keyName(part.PublicKey)
	}
	k.sign = func(text []byte, made time.Time) ([]byte, error) {
		if e := key.check(*part, made, made); e != nil {
			return nil, cannotSign(e)
		}
		return signPGP(part, text, made)
	}
	return k, nil
}

// maxSecret is more than a private key of RSA with largestRSA bits takes. Unit: bytes.
const maxSecret = 6 << 10

// checkSecret refuses private parts that cannot be opened before the parser does its
// costly work. AEAD may come with Argon2, which takes as much memory as its writer says.
func checkSecret(p *packet.OpaquePacket) error {
	if p.Tag != tagSecretKey && p.Tag != tagSecretSubkey {
		return nil
	}
	if len(p.Contents) > maxSecret {
		return fmt.Errorf("it is a key of RSA with more than %d bits", largestRSA)
	}
	parsed, err := p.Parse()
	private, ok := parsed.(*packet.PrivateKey)
	if _, invalid := errors.AsType[pgperrors.KeyInvalidError](err); invalid {
		return errMismatch
	}
	if !ok {
		return fmt.Errorf("the private part of a key is damaged, protected in a way that is not supported, or on a card: "+
			"import it into gpg 2 and export it again: %w", err)
	}
	var public bytes.Buffer
	if err := private.PublicKey.SerializeForHash(&public); err != nil {
		return err
	}
	at := public.Len() - 3 // without the prefix of version 4
	if private.Version > 4 {
		at -= 2
	}
	if at < len(p.Contents) && p.Contents[at] == byte(packet.S2KAEAD) {
		return errors.New("its private part is protected with AEAD, which is not supported: export it with gpg")
	}
	return nil
}

// signingPart returns the part of the key that signs.
func (k *pgpKey) signingPart(now time.Time) (best *openpgp.Key, err error) {
	parts, why := k.able(now)
	if len(parts) == 0 {
		return nil, cannotSign(why)
	}
	for _, part := range parts {
		switch {
		case part.PrivateKey == nil || part.PrivateKey.Dummy():
			err = fmt.Errorf("the private part of %s, which would sign, is not in the file (it was left out when it was exported, gnu-dummy): %s",
				keyName(part.PublicKey), oneKey)
		case best == nil || best.PublicKey == k.PrimaryKey || part.PublicKey.CreationTime.After(best.PublicKey.CreationTime):
			best = &part
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, err
}

// cannotSign says what to do about a key that must not sign.
func cannotSign(e *Error) error {
	next := "use another key"
	switch e.Kind {
	case TooEarly:
		next = "it was made later than the time now: set the clock right"
	case Expired:
		next = "extend it (gpg --quick-set-expire) and export it again, or use another key"
	case Unusable:
		next = "add a subkey for signing (gpg --quick-add-key FINGERPRINT ed25519 sign) and export it again"
	}
	return fmt.Errorf("it cannot sign: %w: %s", aboutKey(e), next)
}

func open(private *packet.PrivateKey, passphrase []byte) error {
	if private.Encrypted {
		if len(passphrase) == 0 {
			return errLocked
		}
		if err := private.Decrypt(passphrase); err != nil {
			if _, invalid := errors.AsType[pgperrors.KeyInvalidError](err); invalid {
				return errMismatch
			}
			return errPassphrase
		}
	}
	// The library takes randomness for ECDSA from the system.
	if k, ok := private.PrivateKey.(*pgpecdsa.PrivateKey); ok {
		curve := curves[curveOf(&private.PublicKey)]
		if k.D.Cmp(curve.Params().N) >= 0 {
			return errMismatch
		}
		plain, err := ecdsa.ParseRawPrivateKey(curve, k.D.FillBytes(make([]byte, (curve.Params().N.BitLen()+7)/8)))
		if err != nil {
			return errMismatch
		}
		private.PrivateKey = repeatable{plain}
	}
	return nil
}

func signPGP(part *openpgp.Key, text []byte, made time.Time) ([]byte, error) {
	public := part.PublicKey
	sig := &packet.Signature{Version: public.Version, SigType: packet.SigTypeBinary, PubKeyAlgo: public.PubKeyAlgo,
		Hash: crypto.SHA512, CreationTime: made, IssuerKeyId: &public.KeyId}
	random := false
	config := &packet.Config{NonDeterministicSignaturesViaNotation: &random}
	hash, err := sig.PrepareSign(config)
	if err != nil {
		return nil, err
	}
	hash.Write(text)
	var out bytes.Buffer
	// The checksum is for older readers, which insist on it.
	w, err := armor.EncodeWithChecksumOption(&out, pgpSignature, nil, true)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(sig.Sign(hash, part.PrivateKey, config), sig.Serialize(w), w.Close()); err != nil {
		return nil, errMismatch
	}
	if again, err := parsePGPSignature(out.Bytes()); err != nil || !verifies(public, again, text) {
		return nil, errMismatch
	}
	return append(bytes.TrimSpace(out.Bytes()), '\n'), nil
}
