package auth

// Forget drops all tokens of an owner: what they were made with is not used any
// more. An attempt that is under way goes on.
func (t *Tokens) Forget(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, e := range t.entries {
		if key.Owner != owner {
			continue
		}
		if e.token = (Token{}); e.flight == nil {
			delete(t.entries, key)
		}
	}
}
