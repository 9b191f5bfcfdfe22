// The program apiserver is the real API machinery for tests: the server for
// custom resources that every Kubernetes has inside (apiextensions-apiserver)
// with its etcd, in one process and one directory. It is a module of its own,
// so that the product's go.mod stays small.
//
// It writes one JSON line on stdout when it serves:
//
//	{"url":"https://127.0.0.1:40123","ca":"…/ca.crt","signURL":"…","controlURL":"http://…"}
//
// What goes wrong with it a test says at the control address: requests that
// fail, hang or are late (faults.go), connections that do (proxies.go), a clock
// that is wrong, an etcd that has forgotten old versions (control.go).
//
// It stops at SIGTERM, SIGINT, or when stdin ends, so that it never outlives its
// test.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// options are the flags of the program.
type options struct {
	Dir       string
	Ephemeral bool
	Token     string
	Listen    string
	CRDs      string
	Deny      rules
	Manifests string
	NoFsync   bool
	Requests  string
	Sign      string
	SignToken string
	SignTTL   time.Duration
	NoCache   bool
}

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("apiserver", flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", "", "directory for etcd and certificates (required)")
	f.BoolVar(&o.Ephemeral, "ephemeral", false, "remove --dir at the end")
	f.StringVar(&o.Token, "token", "", "bearer token of the administrator (required)")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address to serve HTTPS on")
	f.StringVar(&o.CRDs, "crds", "", "YAML file with CustomResourceDefinitions to install")
	f.Var(&o.Deny, "deny", `"VERB RESOURCE NAMESPACE" that is answered with 403; * matches all (repeatable)`)
	f.StringVar(&o.Manifests, "manifests", "", "YAML file of a cluster, whose ServiceAccounts may do what their roles allow")
	f.BoolVar(&o.NoFsync, "no-fsync", false, "let etcd skip fsync")
	f.StringVar(&o.Requests, "requests", "", "file that receives one JSON line per request")
	f.StringVar(&o.Sign, "sign", "", "address of the token exchange (POST /sign/access-token); empty = off")
	f.StringVar(&o.SignToken, "sign-token", "ProvisioningAdminToken", "token that may be exchanged")
	f.DurationVar(&o.SignTTL, "sign-ttl", 10*time.Minute, "life of an exchanged token")
	f.BoolVar(&o.NoCache, "no-watch-cache", false, "serve watches from etcd, so that a version that it has forgotten is expired")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.Dir == "" || o.Token == "" {
		return o, errors.New("--dir and --token are required")
	}
	return o, nil
}

func main() {
	klog.LogToStderr(true)
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		err = run(ctx, o, os.Stdin, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends or in is at its end.
func run(ctx context.Context, o options, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	if o.Ephemeral {
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()

	if err := json.NewEncoder(out).Encode(s.ready()); err != nil {
		return err
	}
	// Nobody waits for this one: a read of stdin cannot be interrupted, and the
	// process ends with run.
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.ended:
		return fmt.Errorf("serve: %w", err)
	}
}
