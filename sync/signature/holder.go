package signature

import (
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Holder is a key that may sign, or an entry about one.
type Holder struct {
	Key        string    // as of a Signer
	Principals []string  // of whom it is; empty = nobody is named
	Expires    time.Time // from when on nothing that it signs counts; zero = never
	Err        error     // why nothing that it signs now counts, with its name; nil = it does
}

// Holders are all keys as they are at a time, those of OpenPGP first, for who looks
// after them.
func (k *Keys) Holders(now time.Time) []Holder {
	if k == nil {
		return nil
	}
	var all []Holder
	for _, o := range k.pgp {
		all = append(all, o.holder(now))
	}
	for _, e := range k.ssh {
		all = append(all, e.holder(now))
	}
	return all
}

// holder is what can be said of a key with its subkeys: one that may sign is enough.
func (o *pgpOwner) holder(now time.Time) Holder {
	h := Holder{Key: strings.ToUpper(hex.EncodeToString(o.key.fingerprint[:])), Principals: o.mails(now)}
	able := false
	var why *Error
	for _, k := range o.keys() {
		e := o.usable(k, now, now)
		if k.why != nil {
			e = refuse(k.why.Kind, "is signed by %s, which %w", k.name(), k.why.Err)
		}
		switch {
		case e == nil:
			if until := o.until(k, now); !able || until.IsZero() || !h.Expires.IsZero() && until.After(h.Expires) {
				h.Expires = until
			}
			able = true
		case why == nil || why.Kind == Unusable: // of several the one that says more than "not for signing"
			why = e
		}
	}
	if !able {
		h.Err = ofKey(why)
	}
	return h
}

// until is when a key that is usable expires; zero = never.
func (o *pgpOwner) until(k *pgpKey, now time.Time) (at time.Time) {
	ends := func(k *pgpKey, after time.Duration) {
		if end := k.created.Add(after); after > 0 && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	ends(o.key, o.present(now).keyExpires)
	for _, s := range o.subkeys {
		if s.key == k {
			ends(k, s.bound.keyExpires)
		}
	}
	return at
}

func (e sshEntry) holder(now time.Time) Holder {
	h := Holder{Principals: e.principals, Expires: e.before}
	public, err := ssh.ParsePublicKey(e.key)
	if err != nil {
		h.Err = err
		return h
	}
	h.Key = ssh.FingerprintSHA256(public)
	if why := weakSSH(public, h.Key); why != nil {
		h.Err = ofKey(why)
	} else if _, why := e.allows(h.Key, Claim{Made: now, Now: now}); why != nil {
		h.Err = ofKey(why)
	}
	return h
}

// ofKey are the words about a key out of those about what it has signed.
func ofKey(e *Error) *Error {
	return &Error{e.Kind, errors.New(strings.TrimPrefix(e.Error(), "is signed by "))}
}
