package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// obey reads commands until in ends, and answers each with one JSON line:
//
//	deny VERB RESOURCE NAMESPACE     answer such requests with 403 from now on
//	allow VERB RESOURCE NAMESPACE    take that rule away again
//	compact                          forget old versions in etcd: continue tokens expire
func (s *server) obey(ctx context.Context, in io.Reader, out *json.Encoder) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		reply := map[string]string{"event": "done", "command": lines.Text()}
		if err := s.command(ctx, lines.Text()); err != nil {
			reply = map[string]string{"event": "error", "command": lines.Text(), "error": err.Error()}
		}
		if out.Encode(reply) != nil {
			return
		}
	}
}

func (s *server) command(ctx context.Context, line string) error {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch verb {
	case "deny", "allow":
		r, err := parseRule(rest)
		if err == nil {
			s.access.set(r, verb == "deny")
		}
		return err
	case "compact":
		return s.compact(ctx)
	}
	return fmt.Errorf("unknown command %q", verb)
}

func (s *server) compact(ctx context.Context) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.etcdAddress()}})
	if err != nil {
		return err
	}
	defer c.Close()
	now, err := c.Get(ctx, "x", clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	_, err = c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	return err
}
