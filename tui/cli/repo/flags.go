package repo

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"limpet/sync/api"
	"limpet/sync/git/gitref"
	"limpet/sync/signature"
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

// annotationFlags set annotations of a Repository. nil leaves one as it is; an empty text removes
// it.
type annotationFlags struct {
	Ref     *string  `help:"Instead of the branch: tag:NAME, semver:RANGE, ref:FULLNAME or commit:SHA." xor:"ref,pin"`
	Mirror  []string `help:"Fallback URL while the first is unreachable. Up to four; empty = none." sep:"none" placeholder:"URL"`
	Verify  *string  `help:"Pull only what is signed: HEAD, Tag or TagAndHEAD; empty = all." placeholder:"MODE"`
	Signers *string  `name:"verify-principals" help:"Who may sign: mail addresses, or committer." placeholder:"NAMES"`

	SinkDir *string `name:"sink-dir" help:"Write the tree to this directory, under a --sink-prefix of the agent, instead of the API."`
	Strict  *bool   `name:"sink-strict" negatable:"" help:"Write only dashboards and folders to it. A full pull applies it."`
	SinkRun *string `name:"sink-run" help:"A program of --sink-exec and its arguments, run after a change of it." placeholder:"JSON"`

	Drift       *string `help:"What a check does that finds a change by hand: report, correct or off." placeholder:"MODE"`
	DriftIgnore *string `name:"drift-ignore" help:"JSON pointers of members that may differ, separated by commas." placeholder:"POINTERS"`

	ReportStatus *bool   `name:"report-status" negatable:"" help:"Report each sync as a status of its commit."`
	PRComment    *string `name:"pr-comment" help:"Comment on pull requests: update one comment, or a new one each." placeholder:"MODE"`

	LFS        *bool `negatable:"" help:"Fetch files in Git LFS (default)."`
	Submodules *bool `negatable:"" help:"Pull submodules as well."`
}

// sinkDir returns the directory of --sink-dir, "" = the API.
func (c annotationFlags) sinkDir() string { return *cmp.Or(c.SinkDir, new(string)) }

// annotations returns the values of the flags by annotation; nil removes one.
func (c annotationFlags) annotations() (map[string]any, error) {
	out := map[string]any{}
	for name, value := range map[string]*string{
		api.AnnoGitRef: c.Ref, api.AnnoGitVerify: c.Verify, api.AnnoGitVerifyPrincipals: c.Signers,
		api.AnnoSinkDir: c.SinkDir, api.AnnoSinkExec: c.SinkRun,
		api.AnnoDrift: c.Drift, api.AnnoDriftIgnore: c.DriftIgnore, api.AnnoPRComment: c.PRComment,
	} {
		if value != nil {
			out[name] = *value
		}
	}
	for name, value := range map[string]*bool{
		api.AnnoSinkStrict: c.Strict, api.AnnoCommitStatus: c.ReportStatus,
		api.AnnoGitLFS: c.LFS, api.AnnoGitSubmodules: c.Submodules,
	} {
		if value != nil {
			out[name] = strconv.FormatBool(*value)
		}
	}
	if c.Mirror != nil {
		out[api.AnnoGitMirrors] = strings.Join(c.Mirror, " ")
	}
	if c.Ref != nil && *c.Ref != "" {
		if _, err := gitref.Parse(*c.Ref); err != nil {
			return nil, fmt.Errorf("--ref: %w", err)
		}
	}
	if _, err := signature.ParseMode(*cmp.Or(c.Verify, new(string))); err != nil {
		return nil, fmt.Errorf("--verify: %w", err)
	}
	for name, value := range out {
		if value == "" {
			out[name] = nil
		}
	}
	return out, nil
}
