package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"limpet/sync/fileid"
	"limpet/sync/signature"
)

// Secrets reads a core Secret. It returns nil, nil when there is none of that name, or it may not
// be read: the look-up goes on at the next place.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// Values reads secure values one by one, as an API that stores them itself can hand them to an
// agent in its own process. A look-up without a Repository is one for the Connection. Value returns
// nil, nil when there is none.
type Values interface {
	Value(ctx context.Context, l Lookup, field string) ([]byte, error)
}

// Observer is called with what is about to be read.
type Observer interface {
	ObserveFiles(namespace, name string) // of the credentials directory
	ObservePath(path string)             // of a rule
}

// Places are where credentials, keys of signers, signing keys and the secrets of Connections are
// looked up, in this order: Secrets, secure values, the credentials directory with the files of the
// Repository and then of its Connection, rules of the config file. Each look-up reads them again,
// so that a rotated secret is used at once. Errors never hold a secret.
type Places struct {
	Secrets     Secrets // nil = none
	Connections Source  // makes credentials of Connections, after the Secrets; nil = none
	Values      Values  // nil = none
	// Dir has files <namespace>.<name>/<key>. The flat form <namespace>.<name>_<key> is
	// read too: systemd lays out a LoadCredential directory that way. "" = none.
	Dir      string
	Rules    *List[Rule]
	Observer Observer // nil = none
}

// List is a list of the config file, which is replaced when that is read again. A nil List is
// empty.
type List[T any] struct{ entries atomic.Pointer[[]T] }

// NewList returns a List.
func NewList[T any](entries []T) *List[T] {
	l := &List[T]{}
	l.Set(entries)
	return l
}

// Set replaces the entries.
func (l *List[T]) Set(entries []T) { l.entries.Store(&entries) }

// Get returns the entries, which must not be changed.
func (l *List[T]) Get() []T {
	if l == nil {
		return nil
	}
	return *l.entries.Load()
}

// place is where a look-up has found keys.
type place struct {
	keys     map[string][]byte
	name     string // for people
	rule     *Rule  // nil = it is not a rule
	operator bool   // only the operator of this agent can write there
}

// text returns the value of a key without the line end that editors leave.
func (at place) text(key string) string { return strings.TrimRight(string(at.keys[key]), "\r\n") }

// wrong is an error about what was found.
func (at place) wrong(format string, args ...any) error {
	return fmt.Errorf("credentials in %s: %w", at.name, fmt.Errorf(format, args...))
}

// selection is the part of all keys that a look-up is about.
type selection struct {
	once  bool              // a key in two Secrets is an error: none of them is passed over
	skip  []string          // fields of spec.secure that are about something else
	is    func(string) bool // the keys in a Secret or a rule
	files func(string) bool // the keys in the directory, and the secure values
	check fileCheck         // of the files
	rules func(Rule) bool   // those that matter; nil = none
	host  bool              // a rule without such keys stands for the identity of this host
}

// The selections.
var (
	gitKeys = selection{
		skip:  notForGit,
		is:    isForGit,
		files: func(key string) bool { return slices.Contains(usedKeys, key) || unserved(key) },
		check: checkPrivate,
		rules: func(r Rule) bool { return !r.onlyTransport() && !r.onlySigning() },
		host:  true,
	}
	connectionKeys = selection{is: anyKey, files: oneOf(connectionNames), check: checkPrivate}
	webhookSecret  = selection{is: anyKey, files: oneOf([]string{fieldWebhook}), check: checkPrivate}
	// Keys of signers are no secrets: others may read the files, and must not be able to write to
	// them.
	trustKeys   = selection{once: true, skip: notForGit, is: signature.IsKeys, files: signature.IsKeys, check: checkOwned, rules: anyRule}
	signingKeys = selection{skip: []string{fieldWebhook}, is: isSigningKey, files: isSigningKey, check: checkPrivate, rules: anyRule}
)

func anyKey(string) bool { return true }

func anyRule(Rule) bool { return true }

func oneOf(names []string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

// find returns the first result that make makes of a place; nil when there is none.
func find[T any](ctx context.Context, p Places, l Lookup, s selection, make func(place) (*T, error)) (*T, error) {
	for at, err := range p.each(ctx, l, s) {
		if err != nil {
			return nil, err
		}
		if found, err := make(at); err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// each yields the places that have keys of a selection, in order.
func (p Places) each(ctx context.Context, l Lookup, s selection) iter.Seq2[place, error] {
	return func(yield func(place, error) bool) {
		goOn := func(at place, err error) bool {
			return err == nil && at.keys == nil || yield(at, err) && err == nil
		}
		if !goOn(p.inSecrets(ctx, l, s)) || !goOn(p.inValues(ctx, l, s)) {
			return
		}
		for _, name := range []string{l.Repository, l.Connection} {
			if !goOn(p.inDir(l.Namespace, name, s)) {
				return
			}
		}
		a, err := ParseAddress(l.URL)
		if err != nil {
			return
		}
		if p.Observer != nil {
			for _, path := range RuleFiles(p.Rules.Get(), l.URL) {
				p.Observer.ObservePath(path)
			}
		}
		for _, r := range p.Rules.Get() {
			if s.rules == nil || !r.matches(a) || !s.rules(r) {
				continue
			}
			keys, err := r.keys(s.is, s.check)
			if keys == nil && s.host {
				keys = map[string][]byte{}
			}
			if !goOn(place{keys: keys, name: "rule " + r.URL, rule: &r, operator: true}, err) {
				return
			}
		}
	}
}

// inSecrets reads the Secrets that spec.secure names, in the namespace of the object. An empty one
// is an error: another identity must not take its place.
func (p Places) inSecrets(ctx context.Context, l Lookup, s selection) (at place, err error) {
	var names []string
	for _, field := range slices.Sorted(maps.Keys(l.Secure)) {
		name := "secret " + l.Namespace + "/" + l.Secure[field]
		if p.Secrets == nil || l.Secure[field] == "" || slices.Contains(s.skip, field) || slices.Contains(names, name) {
			continue
		}
		data, err := p.Secrets(ctx, l.Namespace, l.Secure[field])
		if err != nil {
			return at, fmt.Errorf("read %s: %w", name, err)
		}
		if data != nil && len(data) == 0 && !s.once {
			return at, fmt.Errorf("%s is empty", name)
		}
		found := false
		for key, value := range fluxNames(field, data) {
			if !s.is(key) {
				continue
			}
			if found = true; len(at.keys[key]) == 0 {
				at.set(key, value)
			} else if s.once {
				return at, fmt.Errorf("%s of %s is in another secret of the repository too", key, name)
			}
		}
		if found {
			names = append(names, name)
		}
	}
	at.name = strings.Join(names, " and ")
	return at, nil
}

func (at *place) set(key string, value []byte) {
	if at.keys == nil {
		at.keys = map[string][]byte{}
	}
	at.keys[key] = value
}

// inValues reads the secure values that have the name of a key.
func (p Places) inValues(ctx context.Context, l Lookup, s selection) (place, error) {
	owner := l.Namespace + "/" + l.Repository
	if l.Repository == "" {
		owner = "connection " + l.Namespace + "/" + l.Connection
	}
	at := place{name: "secure values of " + owner}
	for _, k := range slices.Sorted(maps.Keys(l.Secure)) {
		if p.Values == nil || !s.files(k) {
			continue
		}
		v, err := p.Values.Value(ctx, l, k)
		if err != nil {
			return at, fmt.Errorf("read secure.%s of %s: %w", k, owner, err)
		}
		if v != nil {
			at.set(k, v)
		}
	}
	return at, nil
}

// inDir reads the files of one object.
func (p Places) inDir(namespace, name string, s selection) (place, error) {
	if p.Dir == "" || !plainName(namespace) || !plainName(name) {
		return place{}, nil
	}
	if p.Observer != nil {
		p.Observer.ObserveFiles(namespace, name)
	}
	base := namespace + "." + name
	keys, err := readDir(p.Dir, base, s)
	return place{keys: keys, name: "directory " + p.Dir + " for " + base, operator: true}, err
}

// The keys that hold the secret of a Connection. Those of the first line are the fields of
// Grafana's spec.secure; the private key of a GitHub App may have Flux's names, old and new.
var (
	secretNames     = []string{"privateKey", keyToken, "clientSecret"}
	privateKeyNames = []string{"privateKey", "githubAppPrivateKey", "githubPrivateKey"}
)

// connectionNames are all keys of a Connection in the credentials directory.
var connectionNames = slices.Concat(privateKeyNames, secretNames[1:], transportKeys, []string{keyClientCert, keyClientKey})

// Connection finds the secret of the Connection that a look-up names: a PrivateKey, or a
// token as Password, and how its host is reached. Rules have none.
func (p Places) Connection(ctx context.Context, l Lookup) (*Credentials, error) {
	return find(ctx, p, Lookup{Namespace: l.Namespace, Connection: l.Connection, Secure: l.Secure}, connectionKeys, connectionSecret)
}

func connectionSecret(at place) (*Credentials, error) {
	if !slices.ContainsFunc(slices.Concat(privateKeyNames, secretNames), func(k string) bool { return len(at.keys[k]) > 0 }) {
		return nil, at.wrong("none of the keys %s in it, only [%s]", strings.Join(secretNames, ", "),
			strings.Join(slices.Sorted(maps.Keys(at.keys)), " "))
	}
	c, err := transport(at)
	if err != nil {
		return nil, err
	}
	for _, name := range privateKeyNames {
		if len(c.PrivateKey) == 0 {
			c.PrivateKey = bytes.TrimSpace(at.keys[name])
		}
	}
	c.Password = at.text(keyToken)
	switch {
	case c.Password != "" && !Printable(c.Password):
		return nil, at.wrong("token contains a space, a line break or another control character")
	case len(c.PrivateKey) > maxKey:
		return nil, at.wrong("the private key is longer than %d bytes", maxKey)
	}
	return c, nil
}

// Printable reports whether a token can be sent in a header.
func Printable(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// AppIdentity is a GitHub App that a secret describes, without a Connection.
type AppIdentity struct {
	AppID        string
	Installation string       // id; "" = the one of Owner
	Owner        string       // organization or user that has installed it
	API          string       // base URL of the REST, as it is; "" = GitHub's own
	Secret       *Credentials // PrivateKey, and how the host is reached
}

// webhookKeys are the names of the secret of a webhook; token is that of a Receiver of Flux.
var webhookKeys = []string{fieldWebhook, keyToken, "secret"}

// Webhook returns the secret of the webhook of a Repository, nil when there is none.
func (p Places) Webhook(ctx context.Context, l Lookup) ([]byte, error) {
	l.Secure = maps.Clone(l.Secure)
	maps.DeleteFunc(l.Secure, func(field, _ string) bool { return field != fieldWebhook })
	found, err := find(ctx, p, l, webhookSecret, func(at place) (*[]byte, error) {
		for _, key := range webhookKeys {
			if value := bytes.TrimSpace(at.keys[key]); len(value) > 0 {
				return &value, nil
			}
		}
		return nil, nil
	})
	if found == nil {
		return nil, err
	}
	return *found, err
}

// readDir reads the keys of one object in the credentials directory: <base>/<key>, else
// <base>_<key>; nil when there are none, also where there is no directory. Links are followed
// inside the directory only.
func readDir(dir, base string, s selection) (keys map[string][]byte, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open credentials directory: %w", err)
	}
	defer root.Close()
	defer func() {
		if err != nil {
			err = fmt.Errorf("credentials directory %s: %w", dir, err)
		}
	}()
	paths := map[string]string{}
	for _, dir := range []string{".", base} {
		names, err := list(root, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			key, flat := strings.CutPrefix(name, base+"_")
			switch {
			case dir == base && s.files(name):
				paths[name] = base + "/" + name
			case dir == "." && flat && s.files(key):
				paths[key] = name
			}
		}
	}
	var at place
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		v, err := readFile(root.OpenFile, paths[key], s.check.of(key))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			at.set(key, v)
		}
	}
	return at.keys, nil
}

// list returns the names in a directory, none when there is no such directory.
func list(root *os.Root, dir string) ([]string, error) {
	f, err := root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// plainName keeps names that come from the API from being paths.
func plainName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\\\x00")
}

// ReadPrivate reads a regular file of at most 1 MiB that holds a secret. It refuses one that others
// than its owner may read; a group may read it when root owns it, which is how systemd and
// Kubernetes hand over secrets. Errors name the file and never hold its content.
func ReadPrivate(path string) ([]byte, error) { return readFile(os.OpenFile, path, checkPrivate) }

// ReadPrivateIn is ReadPrivate of a file in a directory; a link does not lead out of it.
func ReadPrivateIn(root *os.Root, name string) ([]byte, error) {
	return readFile(root.OpenFile, name, checkPrivate)
}

// ReadPublicIn reads a file of public keys in a directory: one of at most 1 MiB that only its owner
// may write to. A link does not lead out of the directory. Errors name the file.
func ReadPublicIn(root *os.Root, name string) ([]byte, error) {
	return readFile(root.OpenFile, name, checkOwned)
}

// fileCheck checks owner and mode of a file.
type fileCheck func(name string, info fs.FileInfo) error

// IsPublic reports whether others may read the file of a key: CA certificates and host keys are
// public.
func IsPublic(key string) bool { return key == keyCA || key == keyCAOld || key == keyKnownHosts }

// of returns the check of the file of a key.
func (c fileCheck) of(key string) fileCheck {
	if IsPublic(key) {
		return checkOwned
	}
	return c
}

// readFile reads a regular file of at most 1 MiB that passes a check of its owner and mode.
func readFile(open fileid.OpenFile, name string, check fileCheck) ([]byte, error) {
	return fileid.ReadChecked(open, name, maxValue, check)
}

// checkPrivate allows what only the owner may read, and group-readable files
// of root: systemd's credentials and Kubernetes' mounts with fsGroup are so.
func checkPrivate(name string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	rootOwned := false
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		rootOwned = st.Uid == 0
	}
	if mode&0o007 == 0 && (mode&0o070 == 0 || rootOwned && mode&0o070 == 0o040) {
		return nil
	}
	return fmt.Errorf("%s has mode %04o and may be read by others; run: chmod 600 on it", name, mode)
}

// checkOwned refuses what others than the owner may write to.
func checkOwned(name string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %04o and may be written to by others; run: chmod go-w on it", name, mode)
	}
	return nil
}
