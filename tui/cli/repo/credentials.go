package repo

import (
	"bytes"

	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// credentialFlags name files whose contents are stored sealed in the Repository.
type credentialFlags struct {
	Token      string `name:"git-token-file" help:"File with the token for the Git host; - is stdin. Stored sealed." placeholder:"FILE"`
	Identity   string `name:"identity-file" help:"File with the private key for ssh; - is stdin. Stored sealed." placeholder:"FILE"`
	KnownHosts string `name:"known-hosts" help:"File with the host keys for ssh; limpet repo test prints the line." placeholder:"FILE"`
}

// secure returns the members of secure that the flags set. next is the command of an error.
func (c credentialFlags) secure(e *command.Env, next string) (map[string]any, error) {
	secure := map[string]any{}
	for _, f := range []struct{ field, what, file string }{
		{"token", "token", c.Token}, {"identity", "private key", c.Identity}, {"known_hosts", "host keys", c.KnownHosts},
	} {
		if f.file == "" {
			continue
		}
		data, err := e.ReadFile(f.file)
		if err != nil {
			return nil, command.Usagef(next, "read the %s: %w", f.what, err)
		}
		if f.field == "token" {
			data = bytes.TrimSpace(data)
		}
		if f.field != "known_hosts" {
			text.RegisterSecret(data)
		}
		secure[f.field] = map[string]any{"create": string(data)}
	}
	return secure, nil
}
