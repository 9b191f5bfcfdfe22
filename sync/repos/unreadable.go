package repos

// unreadable says that an object cannot be read as what it is. That lasts until it
// is another version, so it is told once for each, and not tried again.
type unreadable struct {
	version string
	err     error
}

func (u *unreadable) Error() string { return u.err.Error() }
func (u *unreadable) Unwrap() error { return u.err }

// unread tells of an object that cannot be read, once for each version of it.
func (l *loop) unread(k Key, u *unreadable) {
	l.failMu.Lock()
	told := l.unreads[k] == u.version
	l.unreads[k] = u.version
	l.failMu.Unlock()
	if told {
		return
	}
	l.log.Warn("cannot read a "+l.what+": it is left alone until it is changed", "name", k.Name, "namespace", k.Namespace, "err", u.err)
	if l.say != nil {
		l.say(k, "warn", "left alone until it is changed: "+u.err.Error())
	}
}
