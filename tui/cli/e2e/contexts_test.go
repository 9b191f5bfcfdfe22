package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// stubSSH makes a program that is found in the place of ssh: it notes its process, and has the hosts
// that begin with hang not answer and others as the case of a script says; ssh has the rest.
func (h *home) stubSSH(t *testing.T, ssh string) {
	t.Helper()
	script := h.file(t, "bin/ssh", `#!/bin/sh
echo $$ >> `+filepath.Join(h.dir, "pids")+`
at=
for word in "$@"; do
  if [ "$at" = "--" ]; then host=$word; fi
  at=$word
done
case $host in
hang*) exec sleep 600 ;;
refuse*) echo "$host: Permission denied (publickey)." >&2; exit 255 ;;
here*) exec sh -c "$at" ;;
esac
exec `+ssh+` "$@"
`)
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "PATH="+filepath.Dir(script)+":"+filepath.Dir(limpetBinary(t))+":"+os.Getenv("PATH"))
}

// TestContexts: 50 sites, of which 10 hang and others refuse, are asked within 5 s. Each is a row, those
// behind a real sshd too; no process is left, and none listens on a port.
func TestContexts(t *testing.T) {
	suite.Full(t)
	const deadline = 5 * time.Second
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	hostKey, userKey := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
	server := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{hostKey}, Accept: []testenv.SSHKey{userKey}})
	far, h := newHome(t), newHome(t)
	far.daemon(t, "--controllers", "off")
	known := h.file(t, "known_hosts", server.Known(hostKey))
	h.stubSSH(t, fmt.Sprintf("%s -F none -i %s -o UserKnownHostsFile=%s", ssh, userKey.File, known))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var config strings.Builder
	config.WriteString("contexts:\n")
	want := map[string]string{}
	site := func(state, name, settings string) {
		want[name] = state
		fmt.Fprintf(&config, "- {name: %s, %s}\n", name, settings)
	}
	place := fmt.Sprintf("program: %s, state: %s", limpetBinary(t), far.state())
	for i := range 20 {
		site("ok", fmt.Sprintf("here-%d", i), fmt.Sprintf("ssh: here-%d, %s", i, place))
	}
	for i := range 2 {
		site("ok", fmt.Sprintf("sshd-%d", i), fmt.Sprintf("ssh: 'ssh://%s@%s', %s", server.User, server.Addr, place))
	}
	for i := range 6 {
		site("unreachable", fmt.Sprintf("hang-%d", i), fmt.Sprintf("ssh: hang-%d", i))
	}
	for i := range 4 {
		site("unreachable", fmt.Sprintf("silent-%d", i), "provisioning-server-url: 'http://"+silent.Addr().String()+"'")
	}
	for i := range 4 {
		site("unreachable", fmt.Sprintf("refuse-%d", i), fmt.Sprintf("ssh: refuse-%d", i))
	}
	for i := range 14 {
		site("ok", fmt.Sprintf("near-%d", i), "state: "+far.state())
	}
	h.args = []string{"--config", h.file(t, "sites.yaml", config.String())}
	h.must(t, exitOK, "--context", "sshd-0", "status")
	began := time.Now()
	r := h.must(t, exitError, "fleet", "status", "-o", "json")
	if took := time.Since(began); took > deadline {
		t.Errorf("it took %s", took)
	} else {
		t.Logf("it took %s", took)
	}
	var list struct {
		Items []struct {
			Name, State string
			Why         []string
		}
	}
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Items) != len(want) || len(want) != 50 {
		t.Fatalf("%v: %d rows", err, len(list.Items))
	}
	for _, row := range list.Items {
		if row.State != want[row.Name] || (len(row.Why) == 0) != (row.State == "ok") {
			t.Errorf("%+v, want %s", row, want[row.Name])
		}
	}
	pids, err := os.ReadFile(filepath.Join(h.dir, "pids"))
	if err != nil || strings.Count(string(pids), "\n") != 33 {
		t.Errorf("%v: %d processes of ssh", err, strings.Count(string(pids), "\n"))
	}
	until(t, "no process of ssh is left", func() bool {
		for pid := range strings.FieldsSeq(string(pids)) {
			// Another process may have the number by now.
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.Contains(string(line), "sleep\x00600") {
				return false
			}
		}
		return true
	})
}

// TestChangeOfContext: the dashboard shows a site through a relay, and changes to another one and back.
func TestChangeOfContext(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	far, h := newHome(t), newHome(t)
	far.must(t, exitOK, "repo", "create", "boards-of-the-site", "--url", "https://git.invalid/x.git", "--disabled")
	far.daemon(t, "--controllers", "off")
	h.stubSSH(t, "false")
	config := fmt.Sprintf("contexts:\n- {name: site-7, ssh: here, program: %s, state: %s}\n", limpetBinary(t), far.state())
	h.args = []string{"--config", h.file(t, "sites.yaml", config)}
	d := h.terminal(t)
	d.showsNow(t, "standalone")
	d.Press(t, ":ctx site")
	d.showsNow(t, "ctx site-7")
	d.Press(t, "\r")
	d.shows(t, "site-7, daemon")
	d.shows(t, "boards-of-the-site")
	d.Press(t, ":ctx none")
	d.shows(t, "this host")
	d.Press(t, "\r")
	d.showsNow(t, "standalone")
	d.Press(t, "q")
	if code := d.exit(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}
