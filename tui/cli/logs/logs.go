// Package logs has the command that reads the log of the agent.
package logs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Command is 'limpet logs'.
type Command struct {
	Follow bool          `short:"f" help:"Follow: print new lines until Ctrl-C."`
	Repo   string        `aliases:"repository" help:"Lines of this repository." placeholder:"NAME"`
	Job    string        `help:"Lines of this job." placeholder:"NAME"`
	Since  time.Duration `help:"Only lines that are younger than this, such as 10m." default:"0s"`
}

func (c Command) Run(ctx context.Context, e *command.Env) error {
	switch {
	case c.Since < 0:
		return command.Usagef("limpet logs --since 10m", "--since %s is less than 0", c.Since)
	case !e.Flags.Data() && e.Flags.Output != "table", e.Flags.Output == "yaml":
		return command.Usagef("limpet logs -o json", "-o %s: a log has the forms table, json and jsonl", e.Flags.Output)
	}
	unknown := c.unknown(ctx, e)
	if unknown != nil && c.Follow {
		return unknown
	}
	in, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer in.Close()
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	data := e.Flags.Data()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if shown := c.show(bytes.TrimSpace(line), data); shown != "" {
			fmt.Fprintln(e.Out, shown)
			unknown = nil // it was deleted
		}
		switch {
		case ctx.Err() != nil && c.Follow && !errors.As(context.Cause(ctx), new(command.TimeoutError)):
			return nil // Ctrl-C is how it ends
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			if journal, ok := in.(process); ok && journal.cmd.Wait() != nil {
				return command.Errorf(command.ExitError, "journalctl -u limpet", "journalctl: %s", journal.cmd.ProcessState)
			}
			return unknown
		case err != nil:
			return fmt.Errorf("read the log: %w", err)
		}
	}
}

// unitFile is the unit of the service of the host.
const unitFile = "/etc/systemd/system/limpet.service"

// unknown returns an error where the agent that holds a state file has no such repository.
func (c Command) unknown(ctx context.Context, e *command.Env) error {
	if c.Repo == "" {
		return nil
	}
	_, daemon, err := e.Attach(ctx)
	if err != nil {
		return nil
	}
	defer daemon.Close()
	snap, err := daemon.Snapshot(ctx)
	if err != nil || slices.ContainsFunc(snap.Repos, func(r snapshot.Repo) bool { return r.Name == c.Repo }) {
		return nil
	}
	return command.Errorf(command.ExitError, "limpet repo list", "no repository %q", c.Repo)
}

// open returns the log of the agent that holds a state file, else that of the last one.
func (c Command) open(ctx context.Context, e *command.Env) (io.ReadCloser, error) {
	path, daemon, err := e.Attach(ctx)
	if err == nil {
		lines, err := daemon.Logs(ctx, c.Follow)
		return attached{lines, daemon}, err
	}
	if !errors.Is(err, control.ErrNoDaemon) || errors.As(err, new(*command.UnresponsiveError)) {
		return nil, err
	}
	journal, err := exec.LookPath("journalctl")
	if _, unit := os.Stat(unitFile); err == nil && unit == nil {
		args := []string{"-u", "limpet", "-o", "cat", "--no-pager", "-q", "-n", "5000"}
		if c.Since > 0 {
			args = append(args, fmt.Sprintf("--since=@%d", time.Now().Add(-c.Since).Unix()))
		}
		if c.Follow {
			args = append(args, "-f")
		}
		cmd := exec.CommandContext(ctx, journal, args...)
		cmd.Stderr = e.Err
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		return process{out, cmd}, err
	}
	file, err := os.Open(path + ".log")
	if err != nil {
		return nil, command.Errorf(command.ExitError, "limpet --daemon    # its log is on stderr, and in limpet logs while it runs",
			"no agent runs, and there is no log of one: neither a journal of %s nor %s.log", unitFile, path)
	}
	if c.Follow {
		file.Close()
		return nil, command.Errorf(command.ExitError, "limpet logs    # the lines of the last one",
			"no agent runs, so there are no new lines to follow")
	}
	return file, nil
}

// attached is the log of an agent. Close ends the connection too.
type attached struct {
	io.ReadCloser
	daemon *control.Client
}

func (a attached) Close() error {
	defer a.daemon.Close()
	return a.ReadCloser.Close()
}

// textField is a field of a line of --log-format text.
var textField = regexp.MustCompile(`([^ =]+)=("(?:[^"\\]|\\.)*"|[^ ]*)`)

// fieldsOf returns the fields of a line of JSON or of text, nil for another one.
func fieldsOf(line []byte) (fields map[string]any) {
	if json.Unmarshal(line, &fields) == nil || !bytes.HasPrefix(line, []byte("time=")) {
		return fields
	}
	fields = map[string]any{}
	for _, m := range textField.FindAllStringSubmatch(string(line), -1) {
		value, err := strconv.Unquote(m[2])
		if err != nil {
			value = m[2]
		}
		fields[m[1]] = value
	}
	return fields
}

// process is the output of a program that ends with it.
type process struct {
	io.ReadCloser
	cmd *exec.Cmd
}

func (p process) Close() error {
	_ = p.cmd.Process.Kill() // or it has ended
	return errors.Join(p.ReadCloser.Close(), p.cmd.Wait())
}

// show returns a line as it is printed, "" for one that is not wanted. One that is neither JSON nor
// text of slog has no time and no names.
func (c Command) show(line []byte, data bool) string {
	fields := fieldsOf(line)
	if fields == nil {
		if data || c.Repo+c.Job != "" || c.Since > 0 {
			return ""
		}
		return text.Clean(string(line))
	}
	str := func(key string) string {
		s, _ := fields[key].(string)
		return s
	}
	job := str("job")
	at, err := time.Parse(time.RFC3339Nano, str("time"))
	switch {
	case c.Repo != "" && c.Repo != cmp.Or(str("repo"), str("repository")):
		return ""
	case c.Job != "" && c.Job != job && !strings.HasSuffix(job, "/"+c.Job):
		return ""
	case c.Since > 0 && (err != nil || time.Since(at) > c.Since):
		return ""
	case data && line[0] != '{':
		line, _ = json.Marshal(fields) // plain data
		fallthrough
	case data:
		var out strings.Builder
		_ = command.NewJSON(&out).Encode(json.RawMessage(line)) // it is valid
		return strings.TrimSpace(out.String())
	}
	shown := strings.TrimSpace(fmt.Sprintf("%s %-5s %s", at.UTC().Format(time.RFC3339), str("level"), str("msg")))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"time", "level", "msg", "uid"}, key) {
			shown += fmt.Sprintf(" %s=%v", key, fields[key])
		}
	}
	return text.Clean(shown)
}
