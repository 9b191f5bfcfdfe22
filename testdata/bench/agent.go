package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const namespace = "default"

var (
	repositories = schema.GroupVersionResource{Group: "provisioning.grafana.app", Version: "v0alpha1", Resource: "repositories"}
	jobs         = schema.GroupVersionResource{Group: "provisioning.grafana.app", Version: "v0alpha1", Resource: "jobs"}
	sources      = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
)

// agent is a limpet that runs as on a host: the built program with its default settings, objects
// from files, a state file of its own.
type agent struct {
	binary string
	home   string
	flags  []string
	cmd    *exec.Cmd
	client dynamic.Interface
	began  time.Time
}

// agent makes the home of one. It does not start it.
func (b *bench) agent(binary string, objects ...object) (*agent, error) {
	home, err := os.MkdirTemp(b.scratch, "a")
	if err != nil {
		return nil, err
	}
	a := &agent{binary: binary, home: home}
	site := filepath.Join(home, "site")
	if err := os.Mkdir(site, 0o755); err != nil {
		return nil, err
	}
	a.flags = []string{"--daemon", "--log-level", "warn", "--manifests", site, "--sink-prefix", home}
	for _, o := range objects {
		if err := a.declare(o); err != nil {
			return nil, err
		}
	}
	a.client, err = dynamic.NewForConfig(&rest.Config{
		Host: "http://limpet",
		QPS:  -1,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(home, "limpet.sock"))
		},
	})
	b.after(func() { a.kill(); os.RemoveAll(home) })
	return a, err
}

// declare writes the file of an object.
func (a *agent) declare(o object) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := unstructured.Unstructured{Object: o}
	return os.WriteFile(filepath.Join(a.home, "site", u.GetKind()+"-"+u.GetName()+".yaml"), data, 0o644)
}

func (a *agent) start() error {
	a.cmd = a.command(a.flags...)
	log, err := os.Create(filepath.Join(a.home, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd.Stderr = log
	a.began = time.Now()
	return a.cmd.Start()
}

func (a *agent) command(args ...string) *exec.Cmd {
	cmd := exec.Command(a.binary, args...)
	cmd.SysProcAttr = tied
	cmd.Dir = a.home
	cmd.Env = []string{
		"HOME=" + a.home,
		"PATH=" + os.Getenv("PATH"),
		"LIMPET_STATE=" + filepath.Join(a.home, "limpet.db"),
		"LIMPET_TELEMETRY_LISTEN=127.0.0.1:0",
	}
	return cmd
}

// kill ends it and returns what it cost since its start.
func (a *agent) kill() (sample, error) { return a.end(syscall.SIGKILL) }

// stop lets it end by itself.
func (a *agent) stop() (sample, error) { return a.end(syscall.SIGTERM) }

func (a *agent) end(by syscall.Signal) (sample, error) {
	if a.cmd == nil {
		return sample{}, nil
	}
	took := time.Since(a.began)
	peak, err := memory(a.cmd.Process.Pid, "VmHWM")
	_ = a.cmd.Process.Signal(by)
	_ = a.cmd.Wait() // it was asked to end
	s := ended(a.cmd.ProcessState)
	a.cmd = nil
	s.wall = took
	s.rss = peak
	return s, err
}

// timed measures what a running agent does, count times.
func (b *bench) timed(a *agent, count float64, do func() error) (sample, error) {
	before, err := running(a.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	received := b.git.sent.Load()
	began := time.Now()
	if err := do(); err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	s, err := running(a.cmd.Process.Pid)
	s.wall = took
	s.cpu -= before.cpu
	s.bytes = b.git.sent.Load() - received
	s.count = count
	return s, err
}

// patience bounds a wait for what limpet does.
const patience = 5 * time.Minute

// await watches an object until ready reports that it is as it should be.
func (a *agent) await(of schema.GroupVersionResource, name string, ready func(*unstructured.Unstructured) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last []byte
	for {
		w, err := a.client.Resource(of).Namespace(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			// It has only just started.
			select {
			case <-ctx.Done():
				log, _ := os.ReadFile(filepath.Join(a.home, "log"))
				return fmt.Errorf("%s %s: %w: %s: %s", of.Resource, name, err, last, log)
			case <-time.After(2 * time.Millisecond):
			}
			continue
		}
		for e := range w.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok || u.GetName() != name {
				continue
			}
			if ready(u) {
				w.Stop()
				return nil
			}
			last, _ = json.Marshal(u.Object["status"])
		}
	}
}

// object is one of the API.
type object = map[string]any

// repository is a Repository that is pulled into the API, or into a directory where dir is not "".
func repository(name, url, dir string) object {
	o := object{
		"apiVersion": repositories.GroupVersion().String(),
		"kind":       "Repository",
		"metadata":   object{"name": name, "namespace": namespace},
		"spec": object{
			"title": name,
			"type":  "git",
			"git":   object{"url": url, "branch": "main", "path": ""},
			"sync":  object{"enabled": true, "target": "folder", "intervalSeconds": 3600},
		},
	}
	if dir != "" {
		o["metadata"].(object)["annotations"] = object{"limpet/sink-dir": dir, "limpet/sink-strict": "true"}
	}
	return o
}

// source is a GitRepository.
func source(name, url, interval string) object {
	return object{
		"apiVersion": sources.GroupVersion().String(),
		"kind":       "GitRepository",
		"metadata":   object{"name": name, "namespace": namespace},
		"spec":       object{"url": url, "interval": interval, "ref": object{"branch": "main"}},
	}
}

// packed reports whether the artifact of a source is that of a commit.
func packed(commit string) func(*unstructured.Unstructured) bool {
	return func(u *unstructured.Unstructured) bool {
		revision, _, _ := unstructured.NestedString(u.Object, "status", "artifact", "revision")
		return strings.HasSuffix(revision, commit)
	}
}

// handled reports whether a source was looked at since a reconcile with this token.
func handled(token string) func(*unstructured.Unstructured) bool {
	return func(u *unstructured.Unstructured) bool {
		last, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
		return last == token
	}
}

// reconcile asks for a look at a source.
func (a *agent) reconcile(name, token string) error {
	return a.patch(name, object{"metadata": object{"annotations": object{"reconcile.fluxcd.io/requestedAt": token}}})
}

// patch changes a source.
func (a *agent) patch(name string, change object) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = a.client.Resource(sources).Namespace(namespace).Patch(context.Background(), name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// pulled reports whether the last pull of a Repository took a commit.
func pulled(commit string) func(*unstructured.Unstructured) bool {
	return func(u *unstructured.Unstructured) bool {
		state, _, _ := unstructured.NestedString(u.Object, "status", "sync", "state")
		ref, _, _ := unstructured.NestedString(u.Object, "status", "sync", "lastRef")
		return state == "success" && ref == commit
	}
}

// pull asks for a pull of a Repository.
func (a *agent) pull(name string) error {
	_, err := a.client.Resource(jobs).Namespace(namespace).Create(context.Background(), job(name), metav1.CreateOptions{})
	return err
}

// job is a pull of a Repository.
func job(repository string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": jobs.GroupVersion().String(),
		"kind":       "Job",
		"metadata":   object{"generateName": "pull-", "namespace": namespace},
		"spec":       object{"action": "pull", "repository": repository, "pull": object{"incremental": true}},
	}}
}
