package auth

// Elsewhere is what of c is used for another host than the one it is for: whom to
// trust, and the way out. Nothing in it is a secret of that host. Nil stays nil.
func (c *Credentials) Elsewhere() *Credentials {
	if c == nil {
		return nil
	}
	return &Credentials{CA: c.CA, Proxy: c.Proxy, Source: c.Source}
}
